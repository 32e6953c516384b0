package process

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
	"time"
)

// Stop ends the named daemon, first with SIGTERM, after grace with SIGKILL, and
// forgets it. A daemon that does not run, or whose process id now belongs to
// another process, is only forgotten.
func (s Store) Stop(ctx context.Context, name string, grace time.Duration) error {
	record, running := s.Running(name)
	if running {
		if err := record.end(ctx, grace); err != nil {
			return err
		}
	}
	if err := os.Remove(s.recordFile(name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

func (r Record) end(ctx context.Context, grace time.Duration) error {
	handle, err := os.FindProcess(r.PID) // a pidfd: it cannot come to mean another process
	if err != nil {
		return err
	}
	defer handle.Release()
	if !r.alive() {
		return nil
	}
	if err := signal(handle, syscall.SIGTERM); err != nil {
		return err
	}
	if r.awaitEnd(ctx, grace) {
		return nil
	}
	if err := signal(handle, syscall.SIGKILL); err != nil {
		return err
	}
	if !r.awaitEnd(context.WithoutCancel(ctx), killTimeout) {
		return fmt.Errorf("process %d (%s) does not end even after SIGKILL", r.PID, r.Name)
	}
	return nil
}

// killTimeout is how long the kernel may take to end a killed process, which
// may be waiting for a disk.
const killTimeout = 10 * time.Second

func signal(handle *os.Process, sig syscall.Signal) error {
	err := handle.Signal(sig)
	if errors.Is(err, os.ErrProcessDone) || errors.Is(err, syscall.ESRCH) {
		return nil
	}
	return err
}

func (r Record) awaitEnd(ctx context.Context, timeout time.Duration) bool {
	deadline := time.Now().Add(timeout)
	for r.alive() {
		if ctx.Err() != nil || time.Now().After(deadline) {
			return false
		}
		time.Sleep(50 * time.Millisecond)
	}
	return true
}
