package host

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// state is what the host has at one moment.
type state struct {
	entry        bootEntry
	booted       *Deployment
	rollback     *Deployment
	staged       *Deployment
	stagedLocked bool
}

// load reads the state; the caller holds the lock.
func (h *Host) load() (state, error) {
	var state state
	err := readJSON(h.entryFile(), &state.entry)
	if errors.Is(err, fs.ErrNotExist) {
		return state, ErrNotBooted
	}
	if err != nil {
		return state, err
	}
	if state.booted, err = h.findBooted(); err != nil {
		return state, err
	}
	// The rollback is the first entry in boot order that is not booted.
	for _, id := range []string{state.entry.Default, state.entry.Rollback} {
		if id == state.booted.ID || state.rollback != nil {
			continue
		}
		if state.rollback, err = h.deployment(id); err != nil {
			return state, err
		}
	}
	var record stagedRecord
	err = readJSON(h.stagedFile(), &record)
	if errors.Is(err, fs.ErrNotExist) {
		return state, nil
	}
	if err != nil {
		return state, err
	}
	state.stagedLocked = record.Locked
	state.staged, err = h.deployment(record.Deployment)
	return state, err
}

// findBooted compares the running root with each deployment's: no file inside
// the root could tell, since a root may be booted under any name.
func (h *Host) findBooted() (*Deployment, error) {
	running, err := os.Stat(h.Root)
	if err != nil {
		return nil, err
	}
	deployments, err := h.all()
	if err != nil {
		return nil, err
	}
	for _, deployment := range deployments {
		root, err := os.Stat(h.rootOf(deployment.ID))
		if err == nil && os.SameFile(running, root) {
			return deployment, nil
		}
	}
	return nil, ErrNotBooted
}

// following is the deployment whose image an update follows.
func (s state) following() *Deployment {
	if s.staged != nil {
		return s.staged
	}
	return s.booted
}

func (s state) rollbackQueued() bool {
	return s.staged == nil && s.rollback != nil && s.entry.Default == s.rollback.ID
}

// isInUse tells that a deployment must not be removed.
func (s state) isInUse(id string) bool {
	for _, used := range []*Deployment{s.booted, s.rollback, s.staged} {
		if used != nil && used.ID == id {
			return true
		}
	}
	return id == s.entry.Default
}

// lock takes the sysroot's lock and waits for it without limit, as bootc does.
func (h *Host) lock() (unlock func(), err error) {
	if !h.IsBootcHost() {
		return nil, ErrNotBooted
	}
	file, err := os.OpenFile(filepath.Join(h.Sysroot, ".lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	descriptor := int(file.Fd())
	err = syscall.Flock(descriptor, syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		h.progress("Waiting for sysroot lock...")
		err = syscall.Flock(descriptor, syscall.LOCK_EX)
	}
	if err != nil {
		file.Close()
		return nil, err
	}
	return func() { file.Close() }, nil
}
