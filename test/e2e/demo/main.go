// Command demo shows imagemode on the local cluster: it starts the cluster,
// installs imagemode, has an image built and two machines reboot into it. Run it
// with "make demo"; what it leaves running goes with "make demo-down".
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/imagemode/imagemode/test/e2e/local"
	"github.com/imagemode/imagemode/test/e2e/story"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	cluster, err := local.Find(os.Stdout)
	if err != nil {
		return err
	}
	told := &story.Story{
		Cluster: cluster,
		Log:     story.NewLog(os.Stdout),
		Text:    "written by the demo at " + time.Now().Format(time.RFC3339) + "\n",
	}
	if err := told.Log.Run(ctx, clusterUp(told)...); err != nil {
		return err
	}
	if err := told.Begin(ctx); err != nil {
		return err
	}
	for _, part := range [][]story.Phase{told.Install(), told.Build(), told.ChangeQuickly(), told.Release()} {
		if err := told.Log.Run(ctx, part...); err != nil {
			if ctx.Err() == nil {
				told.Diagnose()
			}
			return err
		}
	}
	told.Summary()
	return nil
}

// clusterUp starts the cluster and puts imagemode's images into its registry.
// The times are those of a first run on a small machine, doubled: it compiles
// Kubernetes.
func clusterUp(told *story.Story) []story.Phase {
	return []story.Phase{
		{Name: "start the cluster", Timeout: 40 * time.Minute, Do: func(ctx context.Context) error {
			return told.Cluster.Command(ctx, "up")
		}},
		{Name: "build imagemode and push it to the local registry", Timeout: 20 * time.Minute, Do: func(ctx context.Context) error {
			return told.Cluster.Command(ctx, "images")
		}},
	}
}
