package agent

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/imagemode/imagemode/api/v1alpha1"
)

// intentPath is on /var, which all deployments share and a power cut spares.
const intentPath = "/var/lib/imagemode/pending.json"

// Intent is the record, written before the act, that the node is to be booted
// into an image. It stays until the node runs the image or is told otherwise,
// so that a boot that came back on the old image is known for what it is.
type Intent struct {
	// Image is the image to boot, by digest.
	Image string `json:"image"`
	// RetryToken is NodeImage.spec.retryToken at that time.
	RetryToken string `json:"retryToken,omitempty"`
	// Previous is the digest that the node ran.
	Previous string `json:"previous,omitempty"`
	// BootID is the boot in which the intent was written.
	BootID string `json:"bootID"`
	// Rebooting is set when the image was seen staged and unlocked, right
	// before the reboot was asked for. Only from there on does a boot into
	// another image mean that the image could not be put in place.
	Rebooting bool `json:"rebooting,omitempty"`
	// RollbackAfterSeconds is how long after its boot the node goes back by itself
	// if it is not confirmed; 0: never.
	RollbackAfterSeconds int64 `json:"rollbackAfterSeconds,omitempty"`
	// Soft: bootc was asked to prepare a soft reboot. SoftTried: an earlier reboot
	// for the image was one, and did not bring it; the next is a full one.
	Soft      bool `json:"soft,omitempty"`
	SoftTried bool `json:"softTried,omitempty"`
	// WentBack is the boot in which the node was told to go back to Previous. It
	// does so once: a second bad boot is for a human to look at.
	WentBack string `json:"wentBack,omitempty"`
	// Boots are the boots, by id, in which nobody had confirmed the image when they
	// began; see CountBoot.
	Boots []string `json:"boots,omitempty"`
	// Time is when the record was written, by the host's clock.
	Time time.Time `json:"time"`
}

// isFor says whether the intent is about what the spec asks for now.
func (i *Intent) isFor(spec v1alpha1.NodeImageSpec) bool {
	return i != nil && i.Image == spec.DesiredImage && i.RetryToken == spec.RetryToken
}

// readIntent returns nil when there is none. A record that cannot be read (it
// is written atomically, so somebody else did that) is none, and said so.
func readIntent(host Host) (*Intent, error) {
	content, err := host.ReadFile(intentPath)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	intent := &Intent{}
	if err := json.Unmarshal(content, intent); err != nil {
		return nil, fmt.Errorf("%s: %w", intentPath, err)
	}
	return intent, nil
}

func writeIntent(host Host, intent Intent) error {
	content, err := json.Marshal(intent)
	if err != nil {
		return err
	}
	return host.WriteFile(intentPath, append(content, '\n'), 0o600)
}

// newIntent is the record for the image that the spec asks to boot.
func newIntent(in Inputs, rebooting bool) Intent {
	intent := Intent{
		Image:      in.Spec.DesiredImage,
		RetryToken: in.Spec.RetryToken,
		BootID:     in.BootID,
		Rebooting:  rebooting,

		RollbackAfterSeconds: in.Spec.RollbackAfterSeconds,
		Soft:                 maySoftReboot(in),
		Time:                 in.Now.UTC().Truncate(time.Second),
	}
	if booted := in.Host.Status.Booted; booted != nil && booted.Image != nil {
		intent.Previous = booted.Image.ImageDigest
	}
	if in.Intent.isFor(in.Spec) && in.Intent.Rebooting {
		intent.SoftTried = in.Intent.Soft || in.Intent.SoftTried
	}
	return intent
}

// maySoftReboot says whether the userspace alone may be restarted into what is
// staged: allowed, possible, and not tried before without success.
func maySoftReboot(in Inputs) bool {
	hasTried := in.Intent.isFor(in.Spec) && in.Intent.BootID != in.BootID && (in.Intent.Soft || in.Intent.SoftTried)
	staged := in.Host.Status.Staged
	return in.Spec.AllowSoftReboot && in.Features.SoftReboots && !hasTried && staged != nil && staged.SoftRebootCapable
}

// isSpent says whether the record has done its work: the node runs the image and
// that was confirmed, or something else is asked for and no reboot is under way.
// An order that was taken back in the same boot counts: a later reboot will not
// be ours.
func isSpent(in Inputs) bool {
	switch {
	case in.Intent == nil || in.Host == nil:
		return false
	case in.Intent.isFor(in.Spec) && in.Host.Runs(in.Desired):
		return in.Spec.Phase != v1alpha1.PhaseBooted && in.Spec.Phase != v1alpha1.PhaseRolledBack
	}
	isTakenBack := in.Spec.Phase != v1alpha1.PhaseBooted && in.Spec.Phase != v1alpha1.PhaseRolledBack && in.Intent.BootID == in.BootID
	return (isTakenBack || !in.Intent.isFor(in.Spec)) && !isRebooting(in)
}

// isUnconfirmed says whether the node runs the image and may still go back.
func isUnconfirmed(in Inputs) bool {
	return in.Intent != nil && in.Host != nil && in.Intent.Rebooting && in.Intent.isFor(in.Spec) && in.Host.Runs(in.Desired) && !isSpent(in)
}

// isRebooting says whether a reboot was asked for in this boot and may still
// come: until then the host is neither touched nor reported on.
func isRebooting(in Inputs) bool {
	if in.Intent == nil || !in.Intent.Rebooting {
		return false
	}
	isGoingBack := in.Intent.WentBack == in.BootID
	return (in.Intent.BootID == in.BootID || isGoingBack) && in.Now.Sub(in.Intent.Time) < rebootPatience
}

// rebootPatience is how long an orderly shutdown may take before the reboot is
// held to be lost: stopping pods takes minutes, and writing the new deployment
// at shutdown alone may take five.
const rebootPatience = 15 * time.Minute
