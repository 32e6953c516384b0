// Package program is what the benchmarks on the local cluster begin and end with.
package program

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/imagemode/imagemode/test/e2e/local"
	"github.com/imagemode/imagemode/test/e2e/story"
)

// Run runs a benchmark until it ends or is interrupted. The program fails with it.
func Run(benchmark func(context.Context) error) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := benchmark(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// Begin finds the cluster, clears it and installs imagemode.
func Begin(ctx context.Context) (*story.Story, error) {
	cluster, err := local.Find(os.Stdout)
	if err != nil {
		return nil, err
	}
	told := &story.Story{Cluster: cluster, Log: story.NewLog(os.Stdout)}
	if err := told.Begin(ctx); err != nil {
		return nil, err
	}
	return told, told.Log.Run(ctx, told.Reset(), told.Deploy())
}
