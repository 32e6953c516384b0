package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/imagemode/imagemode/test/cluster/cgroup"
	"github.com/imagemode/imagemode/test/cluster/layout"
	"github.com/imagemode/imagemode/test/cluster/leftover"
	"github.com/imagemode/imagemode/test/cluster/network"
)

// Down removes the cluster whatever state it is in, and fails when something of
// it is left. Compiled programs and OS images stay in the cache.
//
// Nothing is asked to end by itself, the machines neither: all data goes anyway,
// and killing also works on what a crash left half-made.
func Down(ctx context.Context, options Options) error {
	steps := []struct {
		name string
		run  func(context.Context, Options) error
	}{
		{"daemons", stopDaemons},
		{"processes", killProcesses},
		{"mounts", func(context.Context, Options) error { return leftover.Unmount() }},
		{"network", func(ctx context.Context, _ Options) error { return network.Remove(ctx, previousForwarding) }},
		{"cgroups", removeCgroups},
		{"directories", removeDirectories},
	}
	for _, step := range steps {
		began := time.Now()
		if err := step.run(ctx, options); err != nil {
			return fmt.Errorf("%s: %w", step.name, err)
		}
		if took := time.Since(began); took > time.Second {
			options.Log("%s: gone after %s", step.name, took.Round(100*time.Millisecond))
		}
	}
	if left, err := Leftovers(ctx, options); err != nil || len(left) > 0 {
		return errors.Join(err, fmt.Errorf("left behind: %s; run down again", strings.Join(left, ", ")))
	}
	options.Log("the cluster is down, nothing of it is left")
	return nil
}

// stopDaemons ends the recorded daemons, the kubelet first: it would start the
// pods again that are killed next.
func stopDaemons(ctx context.Context, _ Options) error {
	names, err := store.Recorded()
	if err != nil {
		return err
	}
	order := slices.Clone(daemonNames)
	slices.Reverse(order)
	for _, name := range names {
		if !slices.Contains(order, name) {
			order = append(order, name)
		}
	}
	for _, name := range order {
		if err := store.Stop(ctx, name, 0); err != nil {
			return err
		}
	}
	return nil
}

// cgroups are the cgroups the cluster makes, in every hierarchy: the host's part
// and one for each machine.
var cgroups = clusterCgroups()

func clusterCgroups() []string {
	paths := []string{layout.CgroupRoot}
	for _, worker := range layout.Machines {
		paths = append(paths, "/"+worker.Name)
	}
	return paths
}

// killTimeout is how long killed processes may take to go.
const killTimeout = 20 * time.Second

// killProcesses kills every process of the cluster until there is none: while
// they are killed, one may start another.
func killProcesses(_ context.Context, options Options) error {
	deadline := time.Now().Add(killTimeout)
	for {
		processes, err := leftover.Processes(options.BinDir(), cgroups)
		if err != nil || len(processes) == 0 {
			return err
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%s does not end after SIGKILL", processes[0])
		}
		for _, process := range processes {
			if err := syscall.Kill(process.PID, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
				return fmt.Errorf("%s cannot be killed: %w", process, err)
			}
		}
		time.Sleep(100 * time.Millisecond)
	}
}

func removeCgroups(context.Context, Options) error {
	for _, path := range cgroups {
		if err := cgroup.Remove(path); err != nil {
			return err
		}
	}
	return nil
}

// removeDirectories deletes the cluster's directories, and those of other
// programs that were made for it. It refuses while something is mounted below
// them, because deleting would go into the mount.
func removeDirectories(context.Context, Options) error {
	mounts, err := leftover.Mounts()
	if err != nil {
		return err
	}
	if len(mounts) > 0 {
		return fmt.Errorf("%s is still mounted", mounts[0])
	}
	if err := removeForeign(); err != nil {
		return err
	}
	for _, dir := range []string{layout.RuntimeDir, layout.StateDir} {
		if err := os.RemoveAll(dir); err != nil {
			return err
		}
	}
	return nil
}

// Leftovers lists everything of the cluster that is on this machine.
func Leftovers(ctx context.Context, options Options) ([]string, error) {
	var left []string
	processes, err := leftover.Processes(options.BinDir(), cgroups)
	if err != nil {
		return nil, err
	}
	for _, process := range processes {
		left = append(left, process.String())
	}
	mounts, err := leftover.Mounts()
	if err != nil {
		return nil, err
	}
	for _, mount := range mounts {
		left = append(left, "mount "+mount)
	}
	for _, path := range cgroups {
		dirs, err := cgroup.Directories(path)
		if err != nil {
			return nil, err
		}
		for _, dir := range dirs {
			left = append(left, "cgroup "+dir)
		}
	}
	interfaces, err := network.Interfaces()
	if err != nil {
		return nil, err
	}
	for _, name := range interfaces {
		left = append(left, "interface "+name)
	}
	for _, chain := range network.Chains(ctx) {
		left = append(left, "iptables chain "+chain)
	}
	for _, dir := range []string{layout.RuntimeDir, layout.StateDir} {
		if _, err := os.Stat(dir); err == nil {
			left = append(left, "directory "+dir)
		}
	}
	return left, nil
}
