package host

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/imagemode/imagemode/test/bootc/source"
)

// SwitchOptions are the flags of `bootc switch`.
type SwitchOptions struct {
	Target ImageReference
	Apply  bool
	// DownloadOnly stages locked.
	DownloadOnly bool
	// SoftReboot is required, auto or empty.
	SoftReboot string
}

// Switch stages another image and makes the host follow it.
func (h *Host) Switch(ctx context.Context, options SwitchOptions) error {
	unlock, err := h.lock()
	if err != nil {
		return err
	}
	defer unlock()
	state, err := h.load()
	if err != nil {
		return err
	}
	if err := h.refuseIncompatible(); err != nil {
		return err
	}
	target := options.Target
	if target.Image, err = source.Canonicalize(target.Image); err != nil {
		return err
	}
	if following := state.following(); following.Image == target.Image && following.Transport == target.Transport {
		h.say("Image specification is unchanged.")
		return h.applyIf(options.Apply && state.staged != nil)
	}
	image, err := h.open(ctx, target)
	if err != nil {
		return err
	}
	defer image.Close()
	if err := h.stage(ctx, state, image, target, options.DownloadOnly); err != nil {
		return err
	}
	h.holdLock()
	h.sayQueued(image, target, options.DownloadOnly)
	if err := h.prepareSoftReboot(options.SoftReboot); err != nil {
		return err
	}
	return h.applyIf(options.Apply)
}

// UpgradeOptions are the flags of `bootc upgrade`.
type UpgradeOptions struct {
	Check, DownloadOnly, FromDownloaded, Apply bool
	// SoftReboot is required, auto or empty.
	SoftReboot string
}

// Upgrade looks for a newer image under the name the host follows, or changes
// whether what is staged will be applied.
func (h *Host) Upgrade(ctx context.Context, options UpgradeOptions) error {
	unlock, err := h.lock()
	if err != nil {
		return err
	}
	defer unlock()
	state, err := h.load()
	if err != nil {
		return err
	}
	if err := h.refuseIncompatible(); err != nil {
		return err
	}
	if options.FromDownloaded {
		return h.unlockStaged(state, options)
	}
	following := state.following()
	if following.Image == "" {
		return errors.New("No image source specified")
	}
	reference := ImageReference{Image: following.Image, Transport: following.Transport}
	image, err := h.open(ctx, reference)
	if err != nil {
		return err
	}
	defer image.Close()
	if options.Check {
		h.sayCheck(state, image, reference)
		return nil
	}
	return h.upgradeTo(ctx, state, image, reference, options)
}

func (h *Host) upgradeTo(ctx context.Context, state state, image *source.Image, reference ImageReference, options UpgradeOptions) error {
	digest := image.Digest.String()
	switch {
	case state.staged != nil && state.staged.Digest == digest:
		if err := h.relock(state, options.DownloadOnly); err != nil {
			return err
		}
	case state.booted.Digest == digest:
		h.say("No update available.")
		return nil
	default:
		if err := h.stage(ctx, state, image, reference, options.DownloadOnly); err != nil {
			return err
		}
		h.sayQueued(image, reference, options.DownloadOnly)
	}
	h.holdLock()
	if err := h.prepareSoftReboot(options.SoftReboot); err != nil {
		return err
	}
	return h.applyIf(options.Apply)
}

// relock is what an upgrade that found nothing new does to the stage.
func (h *Host) relock(state state, locked bool) error {
	switch {
	case locked == state.stagedLocked:
		h.say("Staged update present, not changed")
		return nil
	case locked:
		h.say("Image downloaded, but will not be applied on reboot")
	default:
		h.say("Staged deployment will now be applied on reboot")
	}
	return h.setLock(&state, locked)
}

// unlockStaged is `upgrade --from-downloaded`: it never asks the registry.
func (h *Host) unlockStaged(state state, options UpgradeOptions) error {
	if state.staged == nil {
		return errors.New("No staged deployment found")
	}
	if !state.stagedLocked {
		h.say("Staged deployment is already set to apply on reboot")
	} else {
		if err := h.setLock(&state, false); err != nil {
			return err
		}
		h.say("Staged deployment will now be applied on reboot")
	}
	if err := h.prepareSoftReboot(options.SoftReboot); err != nil {
		return err
	}
	return h.applyIf(options.Apply)
}

// open reads an image's manifest and refuses what cannot be booted.
func (h *Host) open(ctx context.Context, reference ImageReference) (*source.Image, error) {
	if reference.Transport != "registry" {
		return nil, fmt.Errorf("transport %s is not supported by this stand-in: use registry", reference.Transport)
	}
	system := h.System
	if system.AuthFilePath == "" {
		file, err := h.authFile()
		if err != nil {
			return nil, err
		}
		system.AuthFilePath = file
	}
	image, err := source.Open(ctx, &system, reference.Image)
	if err != nil {
		return nil, fmt.Errorf("Pulling: %w", err)
	}
	if err := image.Check(); err != nil {
		image.Close()
		return nil, fmt.Errorf("Pulling: %w", err)
	}
	return image, nil
}

// authFile is the first of bootc's credential files that exists. Where none does,
// a file that is missing makes the registry be asked anonymously, and never with
// what a user's home holds.
func (h *Host) authFile() (string, error) {
	candidates := []string{
		filepath.Join(h.Run, "ostree", "auth.json"),
		filepath.Join(h.Root, "etc", "ostree", "auth.json"),
		filepath.Join(h.Root, "usr", "lib", "ostree", "auth.json"),
	}
	for _, candidate := range candidates {
		_, err := os.Stat(candidate)
		if err == nil {
			return candidate, nil
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return "", err
		}
	}
	return candidates[0], nil
}

func (h *Host) sayQueued(image *source.Image, reference ImageReference, locked bool) {
	if locked {
		h.say("Image downloaded, but will not be applied on reboot")
		return
	}
	h.say("Queued for next boot: %s", reference.Image)
	h.sayVersion(image)
}

func (h *Host) sayVersion(image *source.Image) {
	if version := image.Version(); version != "" {
		h.say("  Version: %s", version)
	}
	h.say("  Digest: %s", image.Digest)
}

func (h *Host) sayCheck(state state, image *source.Image, reference ImageReference) {
	if image.Digest.String() == state.following().Digest {
		h.say("No changes in: docker://%s", reference.Image)
		return
	}
	h.say("Update available for: docker://%s", reference.Image)
	h.sayVersion(image)
}

// applyIf reboots. Like bootc it does not return then: the machine's shutdown
// ends it.
func (h *Host) applyIf(wanted bool) error {
	if !wanted {
		return nil
	}
	if err := h.Execute("systemd-run", "--quiet", "--", "systemctl", "reboot", "--message=Initiated by bootc"); err != nil {
		return fmt.Errorf("Initiating a reboot: %w", err)
	}
	return h.Park()
}
