package host

import (
	"errors"
	"io/fs"
	"path/filepath"
	"time"
)

// Faults are what a test wants to go wrong on a machine: the content of
// /sysroot/faults.json, which every command reads anew. bootc has nothing like it.
type Faults struct {
	// Fail makes commands end with exit code 1 and a text, by verb: status,
	// switch, upgrade, rollback, finalize.
	Fail map[string]Failure `json:"fail,omitempty"`
	// HoldLockSeconds is how long a command that changes something keeps the
	// sysroot's lock after it has done its work: others wait for it.
	HoldLockSeconds int `json:"holdLockSeconds,omitempty"`
	// Incompatible is what local package layering makes of the booted system: bootc
	// says so, and refuses to switch and to upgrade.
	Incompatible bool `json:"incompatible,omitempty"`
	// SoftRebootCapable says so of what is staged.
	SoftRebootCapable bool `json:"softRebootCapable,omitempty"`
	// SoftRebootStays makes a soft reboot come back to the system that runs.
	SoftRebootStays bool `json:"softRebootStays,omitempty"`
	// NoRollback hides the rollback entry, as after a cleanup by hand.
	NoRollback bool `json:"noRollback,omitempty"`
	// Without are flags that this bootc does not know, such as
	// switch --download-only before 1.16.10 and upgrade --download-only before
	// 1.12: "switch --download-only".
	Without []string `json:"without,omitempty"`
}

// Failure is one text.
type Failure struct {
	// Text stands after "error: "; the texts of bootc are in its sources.
	Text string `json:"text"`
	// Times is how often; 0: for ever.
	Times int `json:"times,omitempty"`
}

func (h *Host) faultsFile() string { return filepath.Join(h.Sysroot, "faults.json") }

// Faults reads the switches; without the file nothing goes wrong.
func (h *Host) Faults() (Faults, error) {
	var faults Faults
	err := readJSON(h.faultsFile(), &faults)
	if errors.Is(err, fs.ErrNotExist) {
		return Faults{}, nil
	}
	return faults, err
}

// FailOnPurpose returns the error that a test wants of a verb, and counts it.
func (h *Host) FailOnPurpose(verb string) error {
	faults, err := h.Faults()
	if err != nil {
		return err
	}
	failure, isWanted := faults.Fail[verb]
	if !isWanted {
		return nil
	}
	if failure.Times > 0 {
		if failure.Times--; failure.Times == 0 {
			delete(faults.Fail, verb)
		} else {
			faults.Fail[verb] = failure
		}
		if err := writeJSON(h.faultsFile(), faults); err != nil {
			return err
		}
	}
	return errors.New(failure.Text)
}

// refuseIncompatible is what bootc says where packages were layered by hand.
func (h *Host) refuseIncompatible() error {
	faults, err := h.Faults()
	if err == nil && faults.Incompatible {
		return errors.New("Deployment contains local rpm-ostree modifications; cannot upgrade via bootc. You can run `rpm-ostree reset` to undo the modifications.")
	}
	return err
}

// holdLock waits while the caller holds the lock.
func (h *Host) holdLock() {
	if faults, err := h.Faults(); err == nil && faults.HoldLockSeconds > 0 {
		time.Sleep(time.Duration(faults.HoldLockSeconds) * time.Second)
	}
}

// distort makes a status what the switches want it to be.
func (h *Host) distort(status *Status) error {
	faults, err := h.Faults()
	if err != nil {
		return err
	}
	if status.Status.Booted != nil {
		status.Status.Booted.Incompatible = faults.Incompatible
	}
	if status.Status.Staged != nil {
		status.Status.Staged.SoftRebootCapable = faults.SoftRebootCapable
	}
	if faults.NoRollback {
		status.Status.Rollback = nil
	}
	return nil
}
