package host

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/imagemode/imagemode/test/bootc/source"
)

// finalizeUnit does the /etc merge when it is stopped, which is at shutdown.
const finalizeUnit = "bootc-finalize-staged.service"

// stage makes the image the next deployment. Older deployments that nothing
// needs are removed first, for their space. The caller holds the lock.
func (h *Host) stage(ctx context.Context, state state, image *source.Image, reference ImageReference, locked bool) error {
	if image.IsMissingBootcLabel() {
		h.say("notice: Image is missing label: containers.bootc")
	}
	if err := h.dropNextRoot(); err != nil {
		return err
	}
	deployment, err := h.reusable(state, image)
	if err != nil {
		return err
	}
	if err := h.cleanUp(state, deployment); err != nil {
		return err
	}
	if deployment == nil {
		if deployment, err = h.unpack(ctx, image); err != nil {
			return err
		}
	}
	deployment.Image, deployment.Transport = reference.Image, reference.Transport
	if err := h.writeDeployment(deployment); err != nil {
		return err
	}
	if err := writeJSON(h.stagedFile(), stagedRecord{Deployment: deployment.ID, Locked: locked}); err != nil {
		return err
	}
	notice := fmt.Sprintf("bootc: Reboot required for image: %s\n", reference.Image)
	if err := os.WriteFile(filepath.Join(h.Run, "reboot-required"), []byte(notice), 0o644); err != nil {
		return err
	}
	return h.Execute("systemctl", "start", finalizeUnit)
}

// reusable finds a deployment of the same image that was unpacked earlier and
// never booted: a locked stage that a reboot dropped.
func (h *Host) reusable(state state, image *source.Image) (*Deployment, error) {
	deployments, err := h.all()
	if err != nil {
		return nil, err
	}
	for _, deployment := range deployments {
		isStaged := state.staged != nil && state.staged.ID == deployment.ID
		if deployment.Digest == image.Digest.String() && !deployment.Finalized && (isStaged || !state.isInUse(deployment.ID)) {
			return deployment, nil
		}
	}
	return nil, nil
}

// cleanUp removes the deployments that are not booted, not the rollback and not
// kept, with what an interrupted unpacking left, and the layers none of those
// that stay has. The stage of before is about to be replaced.
func (h *Host) cleanUp(state state, keep *Deployment) error {
	state.staged = keep
	entries, err := os.ReadDir(h.deployments())
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if state.isInUse(entry.Name()) {
			continue
		}
		if err := os.RemoveAll(filepath.Join(h.deployments(), entry.Name())); err != nil {
			return err
		}
	}
	return h.removeUnusedLayers()
}

func (h *Host) removeUnusedLayers() error {
	deployments, err := h.all()
	if err != nil {
		return err
	}
	used := map[string]bool{}
	for _, deployment := range deployments {
		for _, layer := range deployment.Layers {
			used[layer] = true
		}
	}
	files, err := filepath.Glob(filepath.Join(h.blobs(), "*", "*"))
	if err != nil {
		return err
	}
	for _, file := range files {
		layer := filepath.Base(filepath.Dir(file)) + ":" + filepath.Base(file)
		if used[layer] || strings.HasPrefix(filepath.Base(file), ".") {
			continue
		}
		if err := os.Remove(file); err != nil {
			return err
		}
	}
	return nil
}

// setLock changes whether the staged deployment is applied at the next reboot.
func (h *Host) setLock(state *state, locked bool) error {
	state.stagedLocked = locked
	if locked {
		if err := h.dropNextRoot(); err != nil {
			return err
		}
	}
	return writeJSON(h.stagedFile(), stagedRecord{Deployment: state.staged.ID, Locked: locked})
}
