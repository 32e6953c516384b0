package agent

import (
	"context"
	"io/fs"
	"time"
)

// Names of the transient units. There is one for everything that changes the
// host, so that two such commands can never run at once.
const (
	// unitBootc runs switch and upgrade.
	unitBootc = "imagemode-bootc.service"
	// unitQuery runs status and help.
	unitQuery = "imagemode-bootc-query.service"
	// unitRollback runs rollback: by the agent, or without one. Once per boot, as
	// a second time would take the first back; the name makes sure of that.
	unitRollback = "imagemode-bootc-rollback.service"
	// unitTrust runs what makes the trust store anew.
	unitTrust = "imagemode-trust.service"
	// unitDeadmanQuery runs status when there may be no agent.
	unitDeadmanQuery = "imagemode-deadman-query.service"
)

// Host is the machine that the agent looks after. Paths are the host's own.
type Host interface {
	// Run runs a command to its end and returns what it printed. A command
	// that exits with another code than 0 is no error. context.DeadlineExceeded
	// comes back when it takes longer than timeout; it is then stopped.
	Run(ctx context.Context, unit string, arguments []string, timeout time.Duration) (Output, error)
	// Start starts a command and returns at once. It fails while the unit
	// exists, running or finished: see Command and Forget.
	Start(ctx context.Context, unit string, arguments []string, timeout time.Duration) error
	// Command is what the unit runs or has run, also when another process
	// started it: this is how a restarted agent finds its work again.
	Command(ctx context.Context, unit string) (Command, error)
	// Forget stops the unit if it runs, waits until it has ended, and lets
	// systemd drop it. A unit that does not exist is no error.
	Forget(ctx context.Context, unit string) error
	// Reboot asks for an orderly reboot and returns before it happens. Asking
	// again is harmless. A soft one restarts the userspace only, if bootc has
	// prepared one.
	Reboot(ctx context.Context, soft bool) error
	// RebootInhibitor says who on the host does not want it to go down now, and
	// why; empty: nobody.
	RebootInhibitor(ctx context.Context) (string, error)
	// BootID is the host's boot id, with "+n" after it when the userspace was
	// restarted n times in this boot. It is another after every reboot.
	BootID(ctx context.Context) (string, error)
	// InstallProgram puts the running program at a path of the host, executable,
	// if it is not there yet.
	InstallProgram(path string) error
	// ReadFile returns fs.ErrNotExist for a file that is not there.
	ReadFile(path string) ([]byte, error)
	// Inspect describes what is at a path, with links followed inside the host,
	// or not followed at the end of the path. fs.ErrNotExist: nothing is there.
	Inspect(path string, follow bool) (FileState, error)
	// PutBack replaces a file as WriteFile does, with an owner.
	PutBack(path string, content []byte, state FileState) error
	// SetAuthorizedKeys brings the part of a user's ~/.ssh/authorized_keys that is
	// ours to these lines; without any it is removed. Other lines stay, and so does
	// the file if nothing is to be changed.
	SetAuthorizedKeys(user string, keys []string) error
	// FreeBytes is what is free in the file system of a path.
	FreeBytes(path string) (int64, error)
	// IsActive says whether a unit of the host is active; one that does not exist
	// is not.
	IsActive(ctx context.Context, unit string) (bool, error)
	// WriteFile replaces a file so that, also after a power cut, either the old
	// content or the new one is there. Missing directories are made.
	WriteFile(path string, content []byte, mode fs.FileMode) error
	// RemoveFile removes a file; one that is not there is no error.
	RemoveFile(path string) error
}

// FileState is what can be compared of a file, directory or link.
type FileState struct {
	// Kind is the type of fs.FileMode.
	Kind fs.FileMode
	// Mode are the permissions, with setuid, setgid and sticky as in chmod(2).
	Mode     uint32
	UID, GID int
	// SHA256 of a file's content, 64 hex.
	SHA256 string
	// Target of a link.
	Target string
}

// Output is what a finished command left.
type Output struct {
	// ExitCode is the exit status, or -1 when the command was killed by a
	// signal or could not be started.
	ExitCode int
	// Result is systemd's word for the end: success, exit-code, signal, timeout …
	Result string
	// Stdout and Stderr are bounded; of a longer text the end is kept.
	Stdout, Stderr string
}

// Succeeded says whether the command exited with 0.
func (o Output) Succeeded() bool { return o.ExitCode == 0 && o.Result == "success" }

// Command is a command in a unit.
type Command struct {
	State     CommandState
	Arguments []string
	// Started is when it was started, as the host's clock had it.
	Started time.Time
	// Output is set in state Finished only.
	Output Output
}

// CommandState is how far a command is.
type CommandState string

const (
	// CommandNone: the unit does not exist.
	CommandNone CommandState = ""
	// CommandRunning: the unit runs, or is on its way up or down.
	CommandRunning CommandState = "Running"
	// CommandFinished: the command has ended and its output can be read.
	CommandFinished CommandState = "Finished"
)
