package builder

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/imagemode/imagemode/containerfiles"
)

// isolatedVariable marks the process that builds in namespaces of its own.
const isolatedVariable = "IMAGEMODE_BUILDER_ISOLATED"

// exitNotIsolated is the exit status of such a process that could not make
// itself at home. It has not touched anything then.
const exitNotIsolated = 78

// killDelay is how long a build that is stopped may take to end by itself:
// programs in a RUN get the signal, too, and may not heed it.
const killDelay = 2 * time.Second

// ErrNotIsolated says that this process may not make the namespaces, or not mount
// their /proc: the kernel refuses that to a user namespace from which another one
// hides parts of /proc. In a builder pod the container runtime has made them.
var ErrNotIsolated = errors.New("no PID namespace can be made for the build")

// ExitError is a build in a process of its own that failed, and has said why.
type ExitError struct {
	// Code is its exit status.
	Code int
	// Signal that ended it, if one did; it has not said anything then.
	Signal syscall.Signal
}

func (e *ExitError) Error() string {
	if e.Signal != 0 {
		return fmt.Sprintf("the build was ended by the signal %s", e.Signal)
	}
	return fmt.Sprintf("the build failed with exit status %d", e.Code)
}

// RunsPrograms reports whether a build may run programs of an image, which
// could outlive it or leave mounts behind. A request that cannot be read runs
// none.
func RunsPrograms(options Options) bool {
	r, err := ReadRequest(options)
	if err != nil {
		return false
	}
	plan, err := containerfiles.Check(r.Containerfile)
	return err == nil && (r.WantsPackages() || !plan.Empty)
}

// Isolate runs this program again with the same arguments, in a PID and a mount
// namespace of its own: when it ends, by itself or by a signal, no process and
// no mount of it is left. When ctx is done it gets SIGTERM, and after two
// seconds SIGKILL. The error is an *ExitError, or ErrNotIsolated.
func Isolate(ctx context.Context) error {
	// The death of the thread that started it would be taken for this process's.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	command := exec.CommandContext(ctx, "/proc/self/exe", os.Args[1:]...)
	command.Args[0] = os.Args[0]
	command.Stdin, command.Stdout, command.Stderr = os.Stdin, os.Stdout, os.Stderr
	command.Env = append(os.Environ(), isolatedVariable+"=1")
	command.Cancel = func() error { return command.Process.Signal(unix.SIGTERM) }
	command.WaitDelay = killDelay
	command.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:   unix.CLONE_NEWPID,
		Unshareflags: unix.CLONE_NEWNS,
		Pdeathsig:    unix.SIGKILL,
	}
	err := command.Run()
	var exit *exec.ExitError
	switch {
	case err == nil:
		return nil
	case errors.Is(err, os.ErrPermission):
		return ErrNotIsolated
	case !errors.As(err, &exit):
		return err
	case exit.ExitCode() == exitNotIsolated:
		return ErrNotIsolated
	}
	failure := &ExitError{Code: exit.ExitCode()}
	if status, ok := exit.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		failure.Signal = status.Signal()
	}
	return failure
}

// EnterIsolation reports whether this process was started by Isolate, and makes
// its /proc show its own PID namespace. Where that is not allowed it ends the
// process.
func EnterIsolation() bool {
	if os.Getenv(isolatedVariable) == "" {
		return false
	}
	_ = os.Unsetenv(isolatedVariable) // the name is a constant: it cannot fail
	if err := unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		os.Exit(exitNotIsolated)
	}
	return true
}
