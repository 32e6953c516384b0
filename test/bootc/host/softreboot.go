package host

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// prepareSoftReboot is --soft-reboot: required or auto; empty asks for nothing.
// It marks the next root in /run/nextroot, as bootc mounts it there. No machine
// of the local cluster has a systemd that knows soft reboots, so that nothing is
// capable of one unless a test says so, and the reboot is a full one even then.
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
	h.say("Staged deployment is soft-reboot capable, preparing for soft-reboot...")
	return os.MkdirAll(filepath.Join(h.Run, "nextroot"), 0o755)
}
