package host

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

func (h *Host) nextRoot() string { return filepath.Join(h.Run, "nextroot") }

// prepareSoftReboot is --soft-reboot: required or auto; empty asks for nothing.
// Nothing is capable of a soft reboot unless a test says so: machines have no
// kernel of their own that could differ, and of the local cluster's streams one
// has a systemd that knows soft reboots and the other has not.
func (h *Host) prepareSoftReboot(mode string) error {
	if mode == "" {
		return nil
	}
	faults, err := h.Faults()
	switch {
	case err != nil:
		return err
	case mode != "auto" && mode != "required":
		return fmt.Errorf("invalid value '%s' for '--soft-reboot': use required or auto", mode)
	case !faults.SoftRebootCapable && mode == "required":
		return errors.New("Soft reboot was required but staged deployment is not soft-reboot capable")
	case !faults.SoftRebootCapable:
		return nil
	}
	state, err := h.load()
	if err != nil || state.staged == nil {
		return err
	}
	h.say("Staged deployment is soft-reboot capable, preparing for soft-reboot...")
	next := state.staged
	if faults.SoftRebootStays {
		next = state.booted
	}
	return h.mountNextRoot(h.rootOf(next.ID))
}

// mountNextRoot mounts a deployment where systemd looks for the root of a soft
// reboot, as the machine mounts the one it boots: /usr read-only, /var and
// /sysroot those of all deployments. Its /etc gets this machine's changes at the
// shutdown, as with any reboot.
func (h *Host) mountNextRoot(root string) error {
	if err := h.dropNextRoot(); err != nil {
		return err
	}
	next := h.nextRoot()
	if err := os.MkdirAll(next, 0o755); err != nil {
		return err
	}
	usr := filepath.Join(next, "usr")
	for _, arguments := range [][]string{
		{"--bind", root, next},
		// Or what is mounted in it would be mounted in the deployment, too, and go
		// when the shutdown unmounts that.
		{"--make-private", next},
		{"--bind", filepath.Join(root, "usr"), usr},
		{"-o", "remount,bind,ro", usr},
		{"--bind", filepath.Join(h.Sysroot, "var"), filepath.Join(next, "var")},
		{"--bind", h.Sysroot, filepath.Join(next, "sysroot")},
	} {
		if err := h.Execute("mount", arguments...); err != nil {
			return errors.Join(fmt.Errorf("Preparing soft reboot: %w", err), h.dropNextRoot())
		}
	}
	return nil
}

// dropNextRoot takes back what was prepared: the stage it belongs to is replaced,
// locked or dropped, and its files may be removed.
func (h *Host) dropNextRoot() error {
	isMounted, err := isMountPoint(h.nextRoot())
	if err != nil || !isMounted {
		return err
	}
	return h.Execute("umount", "--recursive", "--lazy", h.nextRoot())
}

// isMountPoint asks the kernel; a directory that is not there is none.
func isMountPoint(path string) (bool, error) {
	var found unix.Statx_t
	err := unix.Statx(unix.AT_FDCWD, path, 0, 0, &found)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return found.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0, err
}
