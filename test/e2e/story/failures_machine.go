package story

import (
	"context"
	"fmt"
	"net"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/imagemode/imagemode/test/e2e/local"
	"github.com/imagemode/imagemode/test/faults"
)

// pullUnit is the transient unit in which bootc works on a machine.
const pullUnit = "imagemode-bootc.service"

// SlowRegistry leads a worker to the registry by a line of that many bytes per
// second, until the worker reboots or the line is taken away.
func (s *Story) SlowRegistry(ctx context.Context, worker string, rate int64) (*faults.Line, error) {
	host, port, err := net.SplitHostPort(local.Registry)
	if err != nil {
		return nil, err
	}
	line, err := faults.NewLine(host, local.Registry, rate)
	if err != nil {
		return nil, err
	}
	_, err = s.Cluster.Exec(ctx, worker, append([]string{"iptables", "-w", "10", "-t", "nat", "-A"}, detour(host, port, line)...)...)
	return line, err
}

func detour(host, port string, line *faults.Line) []string {
	return []string{"OUTPUT", "-d", host, "-p", "tcp", "--dport", port, "-j", "DNAT", "--to-destination", line.Address()}
}

// TakeAway closes the line and leads the worker straight to the registry again.
func (s *Story) TakeAway(worker string, line *faults.Line) error {
	ctx, cancel := shortly()
	defer cancel()
	host, port, err := net.SplitHostPort(local.Registry)
	if err != nil {
		return err
	}
	// A reboot has taken the rule away by itself.
	_, _ = s.Cluster.Exec(ctx, worker, append([]string{"iptables", "-w", "10", "-t", "nat", "-D"}, detour(host, port, line)...)...)
	return line.Close()
}

// AwaitBytes waits until so many bytes came through the line.
func (s *Story) AwaitBytes(ctx context.Context, line *faults.Line, count int64) error {
	return until(ctx, fmt.Sprintf("%d bytes from the registry", count), func(context.Context) (string, bool, error) {
		return fmt.Sprintf("%d so far", line.Passed()), line.Passed() >= count, nil
	})
}

// Pull names the download that runs on a worker: systemd gives each start of a
// unit another id. It is an error when none runs.
func (s *Story) Pull(ctx context.Context, worker string) (string, error) {
	said, err := s.Cluster.Exec(ctx, worker, "systemctl", "show", "--property=ActiveState,SubState,InvocationID,MainPID", pullUnit)
	if err != nil {
		return "", err
	}
	if !strings.Contains(said, "SubState=running") {
		return "", fmt.Errorf("%s: no download is running: %s", worker, said)
	}
	return said, nil
}

// KillAgent ends the agent's process on a worker with SIGKILL and waits until
// the kubelet has started it again.
func (s *Story) KillAgent(ctx context.Context, worker string) error {
	onWorker := func(pod *corev1.Pod) bool { return pod.Spec.NodeName == worker }
	pod, err := s.podOf(ctx, "agent", onWorker)
	if err != nil {
		return err
	}
	before := restarts(pod)
	if _, err := s.Cluster.Exec(ctx, worker, "sh", "-c", "kill -KILL $(pgrep -x imagemode-agent)"); err != nil {
		return err
	}
	return until(ctx, "the agent on "+worker+" to be started again", func(ctx context.Context) (string, bool, error) {
		if err := s.Cluster.Client.Get(ctx, client.ObjectKeyFromObject(pod), pod); err != nil {
			return err.Error(), false, nil
		}
		return fmt.Sprintf("%d restarts", restarts(pod)), restarts(pod) > before && isPodReady(pod), nil
	})
}

func restarts(pod *corev1.Pod) int32 {
	if len(pod.Status.ContainerStatuses) == 0 {
		return 0
	}
	return pod.Status.ContainerStatuses[0].RestartCount
}

func isPodReady(pod *corev1.Pod) bool {
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodReady {
			return condition.Status == corev1.ConditionTrue
		}
	}
	return false
}

// CutPower takes a worker's power away and gives it back, and waits until kubelet
// and agent report the new boot.
func (s *Story) CutPower(ctx context.Context, worker string) error {
	before, err := s.NodeImage(ctx, worker)
	if err != nil {
		return err
	}
	if err := s.Cluster.Command(ctx, "power-cut", worker); err != nil {
		return err
	}
	return until(ctx, worker+" to be back after the power cut", func(ctx context.Context) (string, bool, error) {
		node := &corev1.Node{}
		if err := s.Cluster.Client.Get(ctx, client.ObjectKey{Name: worker}, node); err != nil {
			return err.Error(), false, nil
		}
		image, err := s.NodeImage(ctx, worker)
		if err != nil {
			return err.Error(), false, nil
		}
		boot := node.Status.NodeInfo.BootID
		state := fmt.Sprintf("boot %s of the kubelet, %s of the agent, before %s", boot, image.Status.BootID, before.Status.BootID)
		return state, isReady(node) && boot != before.Status.BootID && boot == image.Status.BootID, nil
	})
}

// SetFaults tells the stand-in for bootc on a worker what is to go wrong, as JSON;
// see package test/bootc/host.
func (s *Story) SetFaults(ctx context.Context, worker, faults string) error {
	_, err := s.Cluster.Exec(ctx, worker, "sh", "-c", `printf %s "$1" >/sysroot/faults.json`, "sh", faults)
	return err
}
