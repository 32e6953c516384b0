package lifecycle

import (
	"context"
	"os"

	"github.com/imagemode/imagemode/test/cluster/cgroup"
	"github.com/imagemode/imagemode/test/cluster/debian"
	"github.com/imagemode/imagemode/test/cluster/layout"
	"github.com/imagemode/imagemode/test/cluster/preflight"
)

// Free space needed where the cluster's state is: two machines with two
// deployments each, the registry, and the images of builds.
const (
	spaceForNew     = 15 * preflight.GiB
	spaceForRunning = 2 * preflight.GiB
)

// checkMachine refuses a machine the cluster cannot run on, and installs missing
// packages. It changes nothing when it refuses.
func checkMachine(ctx context.Context, options Options) error {
	space := uint64(spaceForNew)
	if _, err := os.Stat(layout.Kubeconfig); err == nil {
		space = spaceForRunning // what it needs it has taken already
	}
	requirements := preflight.Requirements{
		Space: map[string]uint64{layout.StateDir: space},
		Ports: preflight.Ports,
	}
	for _, name := range daemonNames {
		if record, running := store.Running(name); running {
			requirements.Own = append(requirements.Own, record.PID)
		}
	}
	if strays, err := cgroup.Processes(layout.CgroupRoot); err == nil {
		requirements.Stray = strays
	}
	if err := preflight.Check(requirements); err != nil {
		return err
	}
	return ensurePackages(ctx, options)
}

func ensurePackages(ctx context.Context, options Options) error {
	missing, err := debian.Missing(ctx, debian.Packages)
	if err != nil || len(missing) == 0 {
		return err
	}
	options.Log("installing Debian packages: %v", missing)
	return debian.Install(ctx, missing)
}
