//go:build e2e

package e2e

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/imagemode/imagemode/test/e2e/story"
)

const (
	customPool = "infra"
	customFile = "/etc/imagemode-infra.conf"
)

// TestPools lets pools have their images by default: all workers go to that of
// their pool; a custom pool has one before it has nodes; a worker moves into it
// and back, and runs what its pool wants each time.
func TestPools(t *testing.T) {
	told := begin(t)
	run(t, told, told.Reset(), told.Deploy())
	ctx := inTime(t)
	workers := told.Workers.Names()
	moved := workers[0]
	t.Cleanup(func() {
		// Whatever happened: the label is the machine's, and outlives the installation.
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := told.Relabel(ctx, moved, customPool, false); err != nil {
			t.Error(err)
		}
	})

	must(t, told.AllowOut(ctx, story.Pool, len(workers)))
	must(t, told.AddPool(ctx, customPool, customFile, "infra\n"))
	must(t, told.BuildByDefault(ctx))
	workerImage, err := told.PoolImage(ctx, story.Pool)
	must(t, err)
	for _, machine := range workers {
		must(t, told.NodeRuns(ctx, machine, story.Pool, workerImage))
	}
	must(t, told.PoolIsUpdated(ctx, story.Pool, int32(len(workers))))

	infraImage, err := told.PoolImage(ctx, customPool)
	must(t, err)
	if infraImage == workerImage {
		t.Errorf("both pools have %s, although %s has a file more", infraImage, customPool)
	}
	must(t, told.PoolIsUpdated(ctx, customPool, 0))

	must(t, told.Relabel(ctx, moved, customPool, true))
	must(t, told.NodeRuns(ctx, moved, customPool, infraImage))
	must(t, told.PoolIsUpdated(ctx, customPool, 1))
	must(t, told.PoolIsUpdated(ctx, story.Pool, int32(len(workers)-1)))
	if got := inMachine(t, told, moved, "cat", customFile); got != "infra" {
		t.Errorf("%s: %s holds %q", moved, customFile, got)
	}
	if got := bootedDigest(t, told, moved); !strings.HasSuffix(infraImage, "@"+got) {
		t.Errorf("bootc says that %s is booted, want %s", got, infraImage)
	}

	must(t, told.Relabel(ctx, moved, customPool, false))
	must(t, told.NodeRuns(ctx, moved, story.Pool, workerImage))
	must(t, told.PoolIsUpdated(ctx, story.Pool, int32(len(workers))))
	must(t, told.PoolIsUpdated(ctx, customPool, 0))
	if _, err := told.Cluster.Exec(ctx, moved, "test", "-e", customFile); err == nil {
		t.Errorf("%s still has %s", moved, customFile)
	}
	checkReboots(t, told, moved)
	must(t, told.RemovePool(ctx, customPool))
}

// checkReboots: to the worker's image, to the custom pool's, and back; the others
// once.
func checkReboots(t *testing.T, told *story.Story, moved string) {
	t.Helper()
	for machine, reboots := range told.Workers.Reboots() {
		if want := map[bool]int{true: 3, false: 1}[machine == moved]; reboots != want {
			t.Errorf("%s rebooted %d times, want %d", machine, reboots, want)
		}
	}
}
