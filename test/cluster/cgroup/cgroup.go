// Package cgroup places the cluster's daemons in cgroups of their own and
// finds and removes those cgroups again. It works on version 1, version 2 and
// hybrid machines: a cgroup is a path that exists in every hierarchy.
package cgroup

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Hierarchies returns the mount points of all cgroup hierarchies, as in
// /sys/fs/cgroup/memory, or the single one of version 2.
func Hierarchies() ([]string, error) {
	mounts, err := os.Open("/proc/self/mounts")
	if err != nil {
		return nil, err
	}
	defer mounts.Close()
	var found []string
	for lines := bufio.NewScanner(mounts); lines.Scan(); {
		fields := strings.Fields(lines.Text())
		if len(fields) > 2 && (fields[2] == "cgroup" || fields[2] == "cgroup2") &&
			strings.HasPrefix(fields[1], "/sys/fs/cgroup") && !slices.Contains(found, fields[1]) {
			found = append(found, fields[1])
		}
	}
	if len(found) == 0 {
		return nil, errors.New("no cgroup hierarchy is mounted below /sys/fs/cgroup: mount cgroup2 there")
	}
	return found, nil
}

// Ensure makes the cgroup path in every hierarchy and returns the directories.
// A new cpuset of version 1 takes no process before its CPUs and memory nodes
// are set, so they are copied from the parent.
func Ensure(path string) ([]string, error) {
	hierarchies, err := Hierarchies()
	if err != nil {
		return nil, err
	}
	var dirs []string
	for _, hierarchy := range hierarchies {
		dir := hierarchy
		for _, name := range strings.Split(strings.Trim(path, "/"), "/") {
			dir = filepath.Join(dir, name)
			if err := ensureOne(dir); err != nil {
				return nil, err
			}
			if filepath.Dir(dir) == hierarchy {
				weigh(dir)
			}
		}
		dirs = append(dirs, dir)
	}
	return dirs, nil
}

func ensureOne(dir string) error {
	if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("cgroup %s cannot be made: %w", dir, err)
	}
	for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
		if err := inherit(dir, file); err != nil {
			return err
		}
	}
	return nil
}

// A cgroup at the top gets as much of the processors as one process beside it, and
// the cluster is some hundred: without more weight it stands still while something
// is compiled, and its leases run out.
var weights = map[string]string{"cpu.shares": "20480", "cpu.weight": "2000"}

// weigh gives a cgroup its weight, in the hierarchy that has one.
func weigh(dir string) {
	for file, weight := range weights {
		if _, err := os.Stat(filepath.Join(dir, file)); err == nil {
			_ = os.WriteFile(filepath.Join(dir, file), []byte(weight), 0o644) // slow is better than not at all
		}
	}
}

// inherit copies a cpuset setting from the parent where it exists and is empty.
func inherit(dir, file string) error {
	current, err := os.ReadFile(filepath.Join(dir, file))
	if err != nil || len(strings.TrimSpace(string(current))) > 0 {
		return nil
	}
	parent, err := os.ReadFile(filepath.Join(filepath.Dir(dir), file))
	if err != nil || len(strings.TrimSpace(string(parent))) == 0 {
		return nil
	}
	return os.WriteFile(filepath.Join(dir, file), parent, 0o644)
}

// Processes returns the ids of all processes in the cgroups named path, in any
// hierarchy, and in all cgroups below them.
func Processes(path string) ([]int, error) {
	var pids []int
	err := walk(path, func(dir string) error {
		content, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
		if err != nil {
			return nil // the cgroup went away, or is a threaded one
		}
		for _, field := range strings.Fields(string(content)) {
			if pid, err := strconv.Atoi(field); err == nil && pid > 0 {
				pids = append(pids, pid)
			}
		}
		return nil
	})
	slices.Sort(pids)
	return slices.Compact(pids), err
}

// Directories returns the cgroup directories named path, in any hierarchy.
func Directories(path string) ([]string, error) {
	hierarchies, err := Hierarchies()
	if err != nil {
		return nil, err
	}
	var dirs []string
	for _, hierarchy := range hierarchies {
		dir := filepath.Join(hierarchy, path)
		if _, err := os.Stat(dir); err == nil {
			dirs = append(dirs, dir)
		}
	}
	return dirs, nil
}

// removeTimeout is how long a cgroup may stay busy after its last process was
// killed: the kernel empties it a moment later.
const removeTimeout = 10 * time.Second

// Remove deletes the cgroups named path in every hierarchy, with all below them.
func Remove(path string) error {
	var dirs []string
	if err := walk(path, func(dir string) error { dirs = append(dirs, dir); return nil }); err != nil {
		return err
	}
	slices.Reverse(dirs) // children before their parents
	deadline := time.Now().Add(removeTimeout)
	for _, dir := range dirs {
		for {
			err := os.Remove(dir)
			if err == nil || errors.Is(err, fs.ErrNotExist) {
				break
			}
			if !errors.Is(err, syscall.EBUSY) || time.Now().After(deadline) {
				return fmt.Errorf("cgroup %s cannot be removed: %w", dir, err)
			}
			time.Sleep(50 * time.Millisecond)
		}
	}
	return nil
}

// walk visits every cgroup directory below path in every hierarchy, parents first.
func walk(path string, visit func(dir string) error) error {
	roots, err := Directories(path)
	if err != nil {
		return err
	}
	for _, root := range roots {
		err := filepath.WalkDir(root, func(dir string, entry fs.DirEntry, err error) error {
			if err != nil || !entry.IsDir() {
				return nil // a cgroup may vanish while it is read
			}
			return visit(dir)
		})
		if err != nil {
			return err
		}
	}
	return nil
}
