package host

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// prepareSoftReboot is --soft-reboot: required or auto; empty asks for nothing.
// It marks the next root in /run/nextroot, as bootc mounts it there. Nothing is
// capable of a soft reboot unless a test says so: of the local cluster's streams
// one has a systemd that knows them and the other has not.
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
