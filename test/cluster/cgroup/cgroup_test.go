package cgroup

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
)

func TestProcessesAreFoundBelowAndCgroupsRemoved(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Fatal("needs root: makes cgroups")
	}
	path := fmt.Sprintf("/imagemode-test-%d", os.Getpid())
	t.Cleanup(func() { _ = Remove(path) })
	dirs, err := Ensure(path + "/below")
	if err != nil {
		t.Fatal(err)
	}
	hierarchies, err := Hierarchies()
	if err != nil || len(dirs) != len(hierarchies) {
		t.Fatalf("%d cgroups in %d hierarchies, %v", len(dirs), len(hierarchies), err)
	}
	sleeper := exec.Command("/bin/sleep", "1000")
	if err := sleeper.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = sleeper.Process.Kill() })
	for _, dir := range dirs { // a cpuset takes it only when its CPUs are set
		if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(sleeper.Process.Pid)), 0o644); err != nil {
			t.Fatal(err)
		}
	}

	pids, err := Processes(path)
	if err != nil || len(pids) != 1 || pids[0] != sleeper.Process.Pid {
		t.Errorf("processes %v, want %d, error %v", pids, sleeper.Process.Pid, err)
	}

	if err := sleeper.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = sleeper.Wait()
	if err := Remove(path); err != nil {
		t.Fatal(err)
	}
	if left, err := Directories(path); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
	if err := Remove(path); err != nil {
		t.Errorf("removing what is not there: %v", err)
	}
}
