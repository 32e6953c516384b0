package machine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/imagemode/imagemode/test/cluster/cgroup"
)

const supervisorName = "machine-supervisor"

// rebootStatus is how systemd-nspawn ends when the machine asked for a reboot
// and was started with --keep-unit.
const rebootStatus = 133

// SupervisorCommand is the program that Start leaves running. It has to be a
// command of the program that calls Start.
func SupervisorCommand() *cobra.Command {
	var config Config
	command := &cobra.Command{
		Use:    supervisorName,
		Short:  "Boot a machine, and boot it again whenever it reboots",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			ctx, stop := signal.NotifyContext(command.Context(), syscall.SIGTERM)
			defer stop()
			return supervise(ctx, config)
		},
	}
	flags := command.Flags()
	flags.StringVar(&config.Name, "name", "", "name of the machine")
	flags.StringVar(&config.StateDir, "state-dir", "", "directory of the machine")
	flags.StringVar(&config.Bridge, "bridge", "", "interface of the host to connect it to")
	return command
}

// supervise boots what the boot entry names, as long as the machine reboots. It
// returns when the machine powers off or ctx ends, which powers it off.
func supervise(ctx context.Context, config Config) error {
	// The machine's end is tied to the thread that started it.
	runtime.LockOSThread()
	for {
		root, err := config.bootRoot()
		if err != nil {
			return err
		}
		note("booting %s", filepath.Base(filepath.Dir(root)))
		began := time.Now()
		ended, err := boot(ctx, config, root)
		if err != nil {
			return err
		}
		note("systemd-nspawn ended after %s: %s", time.Since(began).Round(time.Second), ended)
		switch {
		case ctx.Err() != nil || ended.Success():
			return nil
		case ended.ExitCode() != rebootStatus:
			return fmt.Errorf("machine %s: systemd-nspawn ended (%s), see %s", config.Name, ended, config.console())
		}
		note("the machine reboots")
	}
}

func note(format string, arguments ...any) {
	fmt.Printf("%s %s\n", time.Now().UTC().Format(time.RFC3339), fmt.Sprintf(format, arguments...))
}

func (c Config) console() string { return filepath.Join(c.StateDir, "console.log") }
func (c Config) pidFile() string { return filepath.Join(c.StateDir, "nspawn.pid") }

// powerOffGrace is how long a machine may take to power off when asked to.
const powerOffGrace = 30 * time.Second

// boot runs the machine once and returns how systemd-nspawn ended.
func boot(ctx context.Context, config Config, root string) (*os.ProcessState, error) {
	groups, err := cgroup.Ensure(config.cgroup())
	if err != nil {
		return nil, err
	}
	console, err := os.OpenFile(config.console(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer console.Close()
	arguments := append([]string{"-c", enterCgroups, "sh"}, groups...)
	command := exec.CommandContext(ctx, "/bin/sh", append(append(arguments, "--"), nspawn(config, root)...)...)
	command.Env = append(os.Environ(), "SYSTEMD_NSPAWN_API_VFS_WRITABLE=yes")
	command.Stdout, command.Stderr = console, console
	// systemd-nspawn passes the wish on to the machine's systemd, see --kill-signal.
	command.Cancel = func() error { return command.Process.Signal(syscall.SIGTERM) }
	command.WaitDelay = powerOffGrace
	// Should the supervisor be killed, the machine powers off as well.
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM, Setsid: true}
	if err := command.Start(); err != nil {
		return nil, err
	}
	if err := os.WriteFile(config.pidFile(), []byte(strconv.Itoa(command.Process.Pid)), 0o644); err != nil {
		return nil, err
	}
	defer os.Remove(config.pidFile())
	err = command.Wait()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) && ctx.Err() == nil {
		return nil, err
	}
	return command.ProcessState, nil
}

// enterCgroups moves the shell into the cgroups it is given and becomes the
// program after --: systemd-nspawn makes the machine's cgroup root of them.
const enterCgroups = `while [ "$1" != -- ]; do echo $$ > "$1/cgroup.procs" || exit 125; shift; done; shift; exec "$@"`

// nspawn is the command line that boots a deployment. What kubelet, containerd
// and builder pods do needs all capabilities, the mount, keyring and bpf calls,
// the kernel's log and writable /proc/sys (by the environment). /sysroot comes
// without what is mounted in it: the booted root is in there, and unmounting it
// twice would take the cgroups from the machine's systemd during its shutdown.
func nspawn(config Config, root string) []string {
	return []string{
		"systemd-nspawn", "--quiet", "--boot", "--register=no", "--keep-unit", "--kill-signal=SIGRTMIN+4",
		"--machine=" + config.Name, "--hostname=" + config.Name, "--directory=" + root,
		"--bind-ro=" + filepath.Join(root, "usr") + ":/usr",
		"--bind=" + config.sysroot() + ":/sysroot:norbind",
		"--bind=" + filepath.Join(config.sysroot(), "var") + ":/var",
		"--bind=/dev/kmsg",
		"--network-bridge=" + config.Bridge,
		"--capability=all", "--system-call-filter=@mount @keyring bpf perf_event_open",
		"--resolv-conf=off", "--timezone=off", "--link-journal=no", "--console=read-only",
	}
}
