package lifecycle

import (
	"context"
	"fmt"
	"net/http"
	"path/filepath"
	"time"

	"github.com/imagemode/imagemode/test/cluster/cgroup"
	"github.com/imagemode/imagemode/test/cluster/controlplane"
	"github.com/imagemode/imagemode/test/cluster/host"
	"github.com/imagemode/imagemode/test/cluster/layout"
	"github.com/imagemode/imagemode/test/cluster/pki"
	"github.com/imagemode/imagemode/test/cluster/process"
	"github.com/imagemode/imagemode/test/cluster/registry"
)

// part is one daemon of the host and how to tell that it works.
type part struct {
	spec    process.Spec
	healthy func(context.Context) error
	// settle runs after the daemon became healthy; may be nil.
	settle func(context.Context) error
	// timeout is how long the daemon may take to become healthy.
	timeout time.Duration
}

// daemonNames are the parts' names in the order in which they start.
var daemonNames = []string{
	"registry", "etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "containerd", "kubelet",
}

// healthChecks tell whether each daemon works, by asking it.
func healthChecks(binDir string) (map[string]func(context.Context) error, error) {
	admin, err := adminClient()
	if err != nil {
		return nil, err
	}
	loopback := loopbackClient()
	local := func(scheme string, port int, path string) func(context.Context) error {
		return get(loopback, fmt.Sprintf("%s://%s:%d%s", scheme, layout.Loopback, port, path))
	}
	return map[string]func(context.Context) error{
		"registry":                func(ctx context.Context) error { return registry.Healthy(ctx, admin) },
		"etcd":                    local("http", layout.EtcdClientPort, "/health"),
		"kube-apiserver":          get(admin, layout.APIServer()+"/readyz"),
		"kube-controller-manager": local("https", layout.ControllerManagerPort, "/healthz"),
		"kube-scheduler":          local("https", layout.SchedulerPort, "/healthz"),
		"containerd":              host.Configuration{BinDir: binDir}.ContainerdHealthy,
		"kubelet":                 local("http", layout.KubeletHealthPort, "/healthz"),
	}, nil
}

// get asks a URL and expects status 200.
func get(client *http.Client, url string) func(context.Context) error {
	return func(ctx context.Context) error {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return err
		}
		response, err := client.Do(request)
		if err != nil {
			return err
		}
		defer response.Body.Close()
		if response.StatusCode != http.StatusOK {
			return fmt.Errorf("%s answers %s", url, response.Status)
		}
		return nil
	}
}

// partTimeout is how long a daemon may take to become healthy; on a busy
// machine the API server needs half a minute.
const partTimeout = 2 * time.Minute

// parts writes every daemon's configuration and returns the daemons in the order
// in which they start.
func parts(options Options) ([]part, error) {
	authority, err := pki.Open(layout.PKIDir)
	if err != nil {
		return nil, err
	}
	cgroups, err := cgroup.Ensure(layout.SystemCgroup)
	if err != nil {
		return nil, err
	}
	images, err := registry.Configure(authority, filepath.Join(options.BinDir(), "registry"), cgroups)
	if err != nil {
		return nil, err
	}
	control, err := controlplane.Configuration{Authority: authority, BinDir: options.BinDir(), Cgroups: cgroups}.Specs()
	if err != nil {
		return nil, err
	}
	node := host.Configuration{
		Authority: authority, BinDir: options.BinDir(), Cgroups: cgroups, AuthFile: registry.AuthFile(registry.NodePull),
	}
	if err := node.Prepare(); err != nil {
		return nil, err
	}
	specs := append([]process.Spec{images}, control...)
	specs = append(specs, node.Containerd(), node.Kubelet())
	settle := map[string]func(context.Context) error{"containerd": node.ImportPause}
	return assemble(options, specs, settle)
}

func assemble(options Options, specs []process.Spec, settle map[string]func(context.Context) error) ([]part, error) {
	checks, err := healthChecks(options.BinDir())
	if err != nil {
		return nil, err
	}
	var parts []part
	for _, spec := range specs {
		parts = append(parts, part{
			spec: spec, healthy: checks[spec.Name], settle: settle[spec.Name], timeout: partTimeout,
		})
	}
	return parts, nil
}
