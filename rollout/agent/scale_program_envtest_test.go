//go:build envtest

package agent

import (
	"bufio"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// program is the controller's process.
type program struct {
	pid   int
	ended atomic.Bool
}

// startProgram compiles and starts imagemode-controller, as it is deployed but
// for the lease; it ends with the test.
func startProgram(b *testing.B, config *rest.Config) *program {
	b.Helper()
	directory := b.TempDir()
	path := filepath.Join(directory, "imagemode-controller")
	if said, err := exec.Command("go", "build", "-o", path, "../../cmd/imagemode-controller").CombinedOutput(); err != nil {
		b.Fatalf("%v: %s", err, said)
	}
	kubeconfig := filepath.Join(directory, "kubeconfig")
	if err := clientcmd.WriteToFile(kubeconfigOf(config), kubeconfig); err != nil {
		b.Fatal(err)
	}
	log, err := os.Create(filepath.Join(directory, "log"))
	if err != nil {
		b.Fatal(err)
	}
	command := exec.Command(path, "--kubeconfig="+kubeconfig, "--builder-image=registry.example.com/builder:1", "--metrics-bind-address=0", "--health-probe-bind-address=0")
	command.Stdout, command.Stderr = log, log
	if err := command.Start(); err != nil {
		b.Fatal(err)
	}
	p := &program{pid: command.Process.Pid}
	over := make(chan struct{})
	go func() {
		_ = command.Wait()
		p.ended.Store(true)
		close(over)
	}()
	b.Cleanup(func() {
		_ = command.Process.Signal(syscall.SIGTERM)
		select {
		case <-over:
		case <-time.After(10 * time.Second):
			_ = command.Process.Kill()
		}
		if b.Failed() {
			content, _ := os.ReadFile(log.Name())
			b.Logf("the end of the controller's log:\n%s", content[max(0, len(content)-4000):])
		}
	})
	return p
}

func kubeconfigOf(config *rest.Config) clientcmdapi.Config {
	made := clientcmdapi.NewConfig()
	made.Clusters["c"] = &clientcmdapi.Cluster{Server: config.Host, CertificateAuthorityData: config.CAData}
	made.AuthInfos["u"] = &clientcmdapi.AuthInfo{ClientCertificateData: config.CertData, ClientKeyData: config.KeyData}
	made.Contexts["x"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u"}
	made.CurrentContext = "x"
	return *made
}

func (p *program) hasEnded() bool { return p.ended.Load() }

// peakMegabytes is the most memory that the process had so far.
func (p *program) peakMegabytes() float64 {
	content, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.pid))
	if err != nil {
		return 0
	}
	for _, line := range strings.Split(string(content), "\n") {
		if fields := strings.Fields(line); len(fields) == 3 && fields[0] == "VmHWM:" {
			kilobytes, _ := strconv.Atoi(fields[1])
			return float64(kilobytes) / 1000 * 1.024
		}
	}
	return 0
}

// serverWrites counts, by resource, the writes that the API server has answered.
func (s *scale) serverWrites() map[string]int {
	s.Helper()
	transport, err := rest.HTTPClientFor(s.config)
	if err != nil {
		s.Fatal(err)
	}
	answer, err := transport.Get(strings.TrimSuffix(s.config.Host, "/") + "/metrics")
	if err != nil {
		s.Fatal(err)
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		s.Fatalf("/metrics: %s", answer.Status)
	}
	writes := map[string]int{}
	lines := bufio.NewScanner(answer.Body)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		line := lines.Text()
		if !strings.HasPrefix(line, "apiserver_request_total{") {
			continue
		}
		verb, resource := label(line, "verb"), label(line, "resource")
		isWrite := verb == "APPLY" || verb == "PATCH" || verb == "PUT" || verb == "POST" || strings.HasPrefix(verb, "DELETE")
		isOurs := resource == "nodes" || resource == "nodeimages" || resource == "imagerollouts"
		if value, err := strconv.ParseFloat(line[strings.LastIndex(line, " ")+1:], 64); err == nil && isWrite && isOurs {
			writes[resource] += int(value)
		}
	}
	return writes
}

// label reads a label of a line of metrics.
func label(line, name string) string {
	_, rest, _ := strings.Cut(line, name+`="`)
	value, _, _ := strings.Cut(rest, `"`)
	return value
}

// sinceBefore is how many writes there were since the rollout began, without the
// kubelets' own.
func (s *scale) sinceBefore() (all int, byResource string) {
	s.Helper()
	now := s.serverWrites()
	now["nodes"] -= s.kubeletWrites.value()
	for _, resource := range []string{"nodes", "nodeimages", "imagerollouts"} {
		count := now[resource] - s.before[resource]
		all += count
		byResource += fmt.Sprintf(" %s %d", resource, count)
	}
	return all, byResource
}

func (s *scale) reportWrites() {
	s.Helper()
	all, byResource := s.sinceBefore()
	perNode := float64(all) / float64(*scaleNodes)
	s.Logf("writes:%s; of them by agents %d", byResource, s.agentWrites.value())
	s.ReportMetric(perNode, "writes/node")
	s.ReportMetric(scaleWrites, "writes/node-limit")
	if perNode > scaleWrites {
		s.Errorf("%.1f writes per node, %d at most", perNode, scaleWrites)
	}
}

func (s *scale) reportWaits() {
	s.Helper()
	for _, kind := range waitKinds {
		middle, most, longest := s.waits.quantiles(kind)
		s.Logf("%s: middle %s, 99 of 100 within %s, longest %s", kind, middle.Round(time.Millisecond), most.Round(time.Millisecond), longest.Round(time.Millisecond))
	}
	worst, of := s.waits.longest()
	s.ReportMetric(worst.Seconds(), "s/longest-wait")
	s.ReportMetric(scaleWait.Seconds(), "s/longest-wait-limit")
	if worst > scaleWait {
		s.Errorf("a node waited %s for the controller (%s), %s at most", worst.Round(time.Millisecond), of, scaleWait)
	}
}

// reportIdle sees that nothing is written when all is done.
func (s *scale) reportIdle() {
	s.Helper()
	time.Sleep(20 * time.Second) // numbers in a status may come a while later
	before, _ := s.sinceBefore()
	time.Sleep(*scaleIdle)
	after, byResource := s.sinceBefore()
	s.ReportMetric(float64(after-before), "writes/idle")
	if after != before {
		s.Errorf("%d writes in %s in which nothing happened; since the beginning%s", after-before, *scaleIdle, byResource)
	}
}
