// Package leftover finds what of the cluster is on the machine without relying
// on any record: processes by their cgroup, their program and their root file
// system, mounts by their path. `down` uses it to clear what a crash left
// behind, and to prove that nothing is left.
package leftover

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/imagemode/imagemode/test/cluster/cgroup"
	"github.com/imagemode/imagemode/test/cluster/layout"
)

// Process is a process of the cluster.
type Process struct {
	PID     int
	Command string
}

func (p Process) String() string {
	return fmt.Sprintf("process %d (%s)", p.PID, p.Command)
}

// Processes returns all processes of the cluster except the calling one.
// binDir is the cache of compiled programs, cgroups the cgroup paths that are
// the cluster's.
func Processes(binDir string, cgroups []string) ([]Process, error) {
	var pids []int
	for _, path := range cgroups {
		below, err := cgroup.Processes(path)
		if err != nil {
			return nil, err
		}
		pids = append(pids, below...)
	}
	all, err := allProcesses()
	if err != nil {
		return nil, err
	}
	for _, pid := range all {
		if runsOurProgram(pid, binDir) || hasOurRoot(pid) {
			pids = append(pids, pid)
		}
	}
	slices.Sort(pids)
	var found []Process
	for _, pid := range slices.Compact(pids) {
		if pid != os.Getpid() && !isZombie(pid) {
			found = append(found, Process{PID: pid, Command: strings.Join(arguments(pid), " ")})
		}
	}
	return found, nil
}

func allProcesses() ([]int, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	var pids []int
	for _, entry := range entries {
		if pid, err := strconv.Atoi(entry.Name()); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids, nil
}

// runsOurProgram reports whether the process runs a program out of the cache,
// or systemd-nspawn, on the cluster's directories. kubectl is the user's.
func runsOurProgram(pid int, binDir string) bool {
	executable, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid))
	if err != nil {
		return false
	}
	args := arguments(pid)
	if len(args) == 0 || filepath.Base(args[0]) == "kubectl" {
		return false
	}
	ours := strings.HasPrefix(executable, binDir+"/") || filepath.Base(executable) == "systemd-nspawn"
	return ours && namesOurDirectory(strings.Join(args[1:], " "))
}

// hasOurRoot reports whether the process' root file system lives in the
// cluster's directories: a container's or a machine's process.
func hasOurRoot(pid int) bool {
	content, err := os.ReadFile(fmt.Sprintf("/proc/%d/mountinfo", pid))
	return err == nil && rootIsOurs(string(content))
}

// rootIsOurs looks at the mount at / in a mountinfo file: a bind mount names the
// directory in its root field, an overlay in its options.
func rootIsOurs(mountinfo string) bool {
	for line := range strings.Lines(mountinfo) {
		fields := strings.Fields(line)
		if len(fields) < 10 || fields[4] != "/" {
			continue
		}
		return namesOurDirectory(fields[3]) || namesOurDirectory(fields[len(fields)-1])
	}
	return false
}

func namesOurDirectory(text string) bool {
	return strings.Contains(text, layout.StateDir+"/") || strings.Contains(text, layout.RuntimeDir+"/")
}

func arguments(pid int) []string {
	content, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil || len(content) == 0 {
		return nil
	}
	return strings.Split(strings.TrimRight(string(content), "\x00"), "\x00")
}

// isZombie reports whether the process has ended and only waits for its parent.
func isZombie(pid int) bool {
	content, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	return err != nil || strings.Contains(string(content), "\nState:\tZ")
}

// Mounts returns the mount points below the cluster's directories, in this mount
// namespace, deepest and latest first: the order to unmount them in.
func Mounts() ([]string, error) {
	file, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	defer file.Close()
	var points []string
	for lines := bufio.NewScanner(file); lines.Scan(); {
		if point := mountPoint(lines.Text()); namesOurDirectory(point + "/") {
			points = append(points, point)
		}
	}
	slices.Reverse(points)
	slices.SortStableFunc(points, func(a, b string) int { return strings.Count(b, "/") - strings.Count(a, "/") })
	return points, nil
}

// mountPoint is field 5 of a mountinfo line, in which a space is written \040.
func mountPoint(line string) string {
	fields := strings.Fields(line)
	if len(fields) < 5 {
		return ""
	}
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\134`, `\`).Replace(fields[4])
}

// Unmount detaches every mount that Mounts finds. Lazily: what still has a file
// open in it was killed before and ends any moment.
func Unmount() error {
	points, err := Mounts()
	if err != nil {
		return err
	}
	for _, point := range points {
		if err := syscall.Unmount(point, syscall.MNT_DETACH); err != nil && err != syscall.EINVAL && err != syscall.ENOENT {
			return fmt.Errorf("%s cannot be unmounted: %w", point, err)
		}
	}
	return nil
}
