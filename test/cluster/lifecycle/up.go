package lifecycle

import (
	"context"
	"os"
	"time"

	"github.com/imagemode/imagemode/test/cluster/binaries"
	"github.com/imagemode/imagemode/test/cluster/layout"
	"github.com/imagemode/imagemode/test/cluster/network"
	"github.com/imagemode/imagemode/test/cluster/source"
)

// Up makes the whole cluster run.
func Up(ctx context.Context, options Options) error {
	began := time.Now()
	if err := checkMachine(ctx, options); err != nil {
		return err
	}
	if err := Binaries(ctx, options); err != nil {
		return err
	}
	if err := os.MkdirAll(layout.StateDir, 0o711); err != nil {
		return err
	}
	if err := recordForeign(); err != nil {
		return err
	}
	if err := network.Ensure(ctx, previousForwarding); err != nil {
		return err
	}
	changed, err := ensureParts(ctx, options)
	if err != nil {
		return err
	}
	client, err := newClient()
	if err != nil {
		return err
	}
	if err := awaitNode(ctx, client, layout.ControlPlane, controlPlaneLabel, began); err != nil {
		return err
	}
	streams, err := ensureStreams(ctx, options)
	if err != nil {
		return err
	}
	started, err := ensureWorkers(ctx, options, client, streams[0].Image)
	if err != nil {
		return err
	}
	reportUp(options, changed || started, began)
	return nil
}

func reportUp(options Options, changed bool, began time.Time) {
	if !changed {
		options.Log("the cluster is up already")
	} else {
		options.Log("the cluster is up after %s", time.Since(began).Round(time.Second))
	}
	options.Log("use it with: export KUBECONFIG=%s", layout.Kubeconfig)
}

// Binaries compiles what the cache lacks.
func Binaries(ctx context.Context, options Options) error {
	return binaries.Ensure(ctx, binaries.Options{
		ModuleDir: source.ClusterModule(options.Source),
		BinDir:    options.BinDir(),
		Log:       options.Log,
	})
}

// ensureParts makes every daemon of the host run and reports whether one had to
// be started.
func ensureParts(ctx context.Context, options Options) (changed bool, err error) {
	parts, err := parts(options)
	if err != nil {
		return false, err
	}
	for _, part := range parts {
		started, err := ensurePart(ctx, options, part)
		if err != nil {
			return changed, err
		}
		changed = changed || started
	}
	return changed, nil
}
