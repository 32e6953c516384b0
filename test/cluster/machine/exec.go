package machine

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/imagemode/imagemode/test/cluster/layout"
)

// Leader returns the host's process id of the machine's PID 1.
func Leader(config Config) (int, error) {
	content, err := os.ReadFile(config.pidFile())
	if err != nil {
		return 0, fmt.Errorf("machine %s does not run", config.Name)
	}
	supervisor := strings.TrimSpace(string(content))
	program, err := os.ReadFile(filepath.Join("/proc", supervisor, "comm"))
	if err != nil || strings.TrimSpace(string(program)) != "systemd-nspawn" {
		return 0, fmt.Errorf("machine %s does not run", config.Name)
	}
	children, err := os.ReadFile(filepath.Join("/proc", supervisor, "task", supervisor, "children"))
	if err != nil {
		return 0, err
	}
	fields := strings.Fields(string(children))
	if len(fields) == 0 {
		return 0, fmt.Errorf("machine %s is starting or ending", config.Name)
	}
	return strconv.Atoi(fields[0])
}

// ExecCommand runs a program inside a machine of the cluster, as root in all its
// namespaces, with a clean environment: `exec worker-1 -- systemctl status`.
func ExecCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "exec MACHINE -- COMMAND [ARGUMENT...]",
		Short: "Run a command inside a machine",
		Args:  cobra.MinimumNArgs(2),
		RunE: func(command *cobra.Command, arguments []string) error {
			config := Config{Name: arguments[0], StateDir: filepath.Join(layout.MachineDir, arguments[0])}
			leader, err := Leader(config)
			if err != nil {
				return err
			}
			return enter(leader, arguments[1:])
		},
	}
}

// enter becomes the program, so that input, output, signals and the exit code are
// its own.
func enter(leader int, arguments []string) error {
	program, err := exec.LookPath("nsenter")
	if err != nil {
		return err
	}
	return syscall.Exec(program, slices.Concat([]string{program}, Enter(leader), arguments), os.Environ())
}

// Enter is the arguments of nsenter before the program to run inside. The
// machine's variable "container" and the host's variables stay out, as in a
// login on real hardware.
func Enter(leader int) []string {
	return []string{
		"--target", strconv.Itoa(leader), "--mount", "--uts", "--ipc", "--net", "--pid", "--cgroup", "--",
		"/usr/bin/env", "-i", "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", "LANG=C.UTF-8",
	}
}
