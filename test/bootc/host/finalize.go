package host

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/imagemode/imagemode/test/bootc/etc"
)

// Finalize does at shutdown what was put off until then: it carries this
// machine's changes of /etc into the staged deployment and makes that the one to
// boot. A locked stage stays on the disk and is forgotten with /run. When it
// fails the machine boots what it had, and a stamp says why.
func (h *Host) Finalize() error {
	unlock, err := h.lock()
	if err != nil {
		return err
	}
	defer unlock()
	state, err := h.load()
	if err != nil {
		return err
	}
	if state.staged == nil {
		return nil
	}
	if state.stagedLocked {
		h.say("Not finalizing; deployment is locked for finalization")
		return nil
	}
	err = h.FailOnPurpose("finalize")
	if err == nil {
		err = h.finalize(state)
	}
	if err != nil {
		stamp := filepath.Join(h.Sysroot, "boot", "finalize-failure.stamp")
		return errors.Join(err, os.WriteFile(stamp, []byte(err.Error()+"\n"), 0o644))
	}
	return nil
}

func (h *Host) finalize(state state) error {
	staged := state.staged
	target := filepath.Join(h.rootOf(staged.ID), "etc")
	changes, err := etc.Merge(h.pristineOf(state.booted.ID), filepath.Join(h.Root, "etc"), target)
	if err != nil {
		return err
	}
	h.say("Copying /etc changes: %d kept, %d deleted", len(changes.Kept), len(changes.Deleted))
	staged.Finalized = true
	if err := h.writeDeployment(staged); err != nil {
		return err
	}
	if err := writeJSON(h.entryFile(), bootEntry{Default: staged.ID, Rollback: state.booted.ID}); err != nil {
		return err
	}
	h.say("Next boot: %s", staged.ID)
	return os.Remove(h.stagedFile())
}

// Rollback makes the other deployment the next to boot and forgets what is
// staged; called twice it changes nothing.
func (h *Host) Rollback(apply bool) error {
	unlock, err := h.lock()
	if err != nil {
		return err
	}
	defer unlock()
	state, err := h.load()
	if err != nil {
		return err
	}
	if state.rollback == nil {
		return errors.New("No rollback available")
	}
	next, other, message := state.rollback, state.booted, "Next boot: rollback deployment"
	if state.rollbackQueued() {
		h.say("notice: Reverting queued rollback state")
		next, other, message = state.booted, state.rollback, "Next boot: current deployment"
	}
	if err := os.Remove(h.stagedFile()); err != nil && !os.IsNotExist(err) {
		return err
	}
	if err := h.dropNextRoot(); err != nil {
		return err
	}
	if err := writeJSON(h.entryFile(), bootEntry{Default: next.ID, Rollback: other.ID}); err != nil {
		return err
	}
	h.say("%s", message)
	return h.applyIf(apply)
}

// Install makes the image the first deployment of an empty sysroot. It is no
// verb of bootc's: the local cluster calls it in place of an installer.
func (h *Host) Install(ctx context.Context, reference ImageReference) error {
	if h.IsBootcHost() {
		return fmt.Errorf("%s holds an installation already", h.Sysroot)
	}
	image, err := h.open(ctx, reference)
	if err != nil {
		return err
	}
	defer image.Close()
	deployment, err := h.unpack(ctx, image)
	if err != nil {
		return err
	}
	deployment.Image, deployment.Transport, deployment.Finalized = reference.Image, reference.Transport, true
	if err := h.writeDeployment(deployment); err != nil {
		return err
	}
	return writeJSON(h.entryFile(), bootEntry{Default: deployment.ID})
}

// IsContainer tells whether a program with this root and environment runs in a
// container, by the marks container engines leave. A service of a machine has
// none of them: systemd does not pass its own variable "container" on.
func IsContainer(root string) bool {
	for _, marker := range []string{"run/.containerenv", ".dockerenv"} {
		if _, err := os.Stat(filepath.Join(root, marker)); err == nil {
			return true
		}
	}
	return os.Getenv("container") != ""
}
