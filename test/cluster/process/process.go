// Package process starts daemons that outlive the command that started them,
// knows them again later, and stops them. A daemon is identified by its process
// id together with its start time: a process id alone may belong to somebody
// else by the time it is used.
package process

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// Spec says how to start a daemon.
type Spec struct {
	// Name names the daemon, its record and its log file.
	Name string
	// Args are the program, an absolute path, and its arguments.
	Args []string
	// Env is added to a minimal environment (PATH and HOME).
	Env []string
	// Cgroups are directories whose cgroup.procs the daemon enters before it runs.
	Cgroups []string
	// Inputs are files the daemon reads once, at its start. When one of them has
	// changed, the running daemon no longer matches the Spec.
	Inputs []string
}

// Record is what is kept about a started daemon.
type Record struct {
	Name string `json:"name"`
	PID  int    `json:"pid"`
	// StartTime is field 22 of /proc/PID/stat: clock ticks since boot.
	StartTime uint64 `json:"startTime"`
	// BootID tells records of an earlier boot, whose start times mean nothing.
	BootID string `json:"bootID"`
	// Digest is over what the daemon was started with.
	Digest string `json:"digest"`
}

// Store keeps records and logs of daemons in two directories.
type Store struct {
	RecordDir string
	LogDir    string
}

// LogFile is where the named daemon's output goes.
func (s Store) LogFile(name string) string {
	return filepath.Join(s.LogDir, name+".log")
}

func (s Store) recordFile(name string) string {
	return filepath.Join(s.RecordDir, name+".json")
}

// Ensure starts the daemon unless it already runs as the Spec says; one that
// runs with other arguments or older inputs is stopped first. It reports
// whether a daemon was started.
func (s Store) Ensure(ctx context.Context, spec Spec) (started bool, err error) {
	digest, err := spec.digest()
	if err != nil {
		return false, fmt.Errorf("%s cannot be started: %w", spec.Name, err)
	}
	if record, ok := s.Running(spec.Name); ok {
		if record.Digest == digest {
			return false, nil
		}
		if err := s.Stop(ctx, spec.Name, StopGrace); err != nil {
			return false, err
		}
	}
	return true, s.start(spec, digest)
}

// enterCgroups is run by sh before the daemon: a process has to be in its
// cgroup before it has children, and version 1 has no way to be born in one.
const enterCgroups = `while [ "$1" != -- ]; do echo $$ > "$1/cgroup.procs" || exit 125; shift; done; shift; exec "$@"`

func (s Store) start(spec Spec, digest string) error {
	for _, dir := range []string{s.RecordDir, s.LogDir} {
		if err := os.MkdirAll(dir, 0o711); err != nil {
			return err
		}
	}
	log, err := os.OpenFile(s.LogFile(spec.Name), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	args := append([]string{"-c", enterCgroups, "sh"}, spec.Cgroups...)
	command := exec.Command("/bin/sh", append(append(args, "--"), spec.Args...)...)
	command.Dir = "/"
	command.Env = append([]string{"PATH=" + Path, "HOME=/root"}, spec.Env...)
	command.Stdout, command.Stderr = log, log
	command.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := command.Start(); err != nil {
		return fmt.Errorf("%s cannot be started: %w", spec.Name, err)
	}
	go command.Wait() // so that it does not stay a zombie while this command runs
	return s.record(spec.Name, command.Process.Pid, digest)
}

// Path is the daemons' search path; it does not depend on who starts them.
const Path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

func (s Store) record(name string, pid int, digest string) error {
	stat, err := readStat(pid)
	if err != nil {
		return fmt.Errorf("%s ended at once, see %s", name, s.LogFile(name))
	}
	boot, err := bootID()
	if err != nil {
		return err
	}
	record := Record{Name: name, PID: pid, StartTime: stat.startTime, BootID: boot, Digest: digest}
	content, err := json.Marshal(record)
	if err != nil {
		return err
	}
	return os.WriteFile(s.recordFile(name), append(content, '\n'), 0o600)
}

// Running returns the record of the named daemon when exactly that process is
// still alive.
func (s Store) Running(name string) (Record, bool) {
	content, err := os.ReadFile(s.recordFile(name))
	if err != nil {
		return Record{}, false
	}
	var record Record
	if err := json.Unmarshal(content, &record); err != nil {
		return Record{}, false
	}
	return record, record.alive()
}

func (r Record) alive() bool {
	boot, err := bootID()
	if err != nil || boot != r.BootID {
		return false
	}
	stat, err := readStat(r.PID)
	return err == nil && stat.matches(r)
}

// Recorded returns the names of all daemons with a record, running or not.
func (s Store) Recorded() ([]string, error) {
	entries, err := os.ReadDir(s.RecordDir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var names []string
	for _, entry := range entries {
		if name, ok := strings.CutSuffix(entry.Name(), ".json"); ok {
			names = append(names, name)
		}
	}
	return names, err
}

func bootID() (string, error) {
	content, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(content)), err
}

// digest is over the arguments, the environment, the inputs' content, and size
// and time of the program.
func (s Spec) digest() (string, error) {
	if len(s.Args) == 0 {
		return "", errors.New("no program is named")
	}
	program, err := os.Stat(s.Args[0])
	if err != nil {
		return "", err
	}
	hash := sha256.New()
	fmt.Fprintf(hash, "%q %q %d %d\n", s.Args, s.Env, program.Size(), program.ModTime().UnixNano())
	for _, input := range s.Inputs {
		content, err := os.ReadFile(input)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(hash, "%q %x\n", input, sha256.Sum256(content))
	}
	return hex.EncodeToString(hash.Sum(nil)), nil
}

// StopGrace is how long a daemon may take to end by itself: etcd and the
// apiserver finish their requests in it.
const StopGrace = 15 * time.Second
