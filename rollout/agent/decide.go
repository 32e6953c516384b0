package agent

import (
	"fmt"
	"strings"
	"time"

	"github.com/imagemode/imagemode/api/v1alpha1"
	"github.com/imagemode/imagemode/rollout/bootc"
)

// Action is what one pass does to the host: one thing at most.
type Action string

const (
	// Report does nothing.
	Report Action = "Report"
	// Cancel ends the running command: its image is not wanted any more.
	Cancel Action = "Cancel"
	// Stage, Lock and Unlock start the bootc command of that name.
	Stage  Action = "Stage"
	Lock   Action = "Lock"
	Unlock Action = "Unlock"
	// Reboot asks for the reboot into the staged image.
	Reboot Action = "Reboot"
	// GoBack queues the image before and reboots into it.
	GoBack Action = "GoBack"
)

// Reasons that a NodeImage's conditions give, beside the failure classes.
const (
	ReasonIdle             = "Idle"
	ReasonBooted           = "Booted"
	ReasonStaged           = "Staged"
	ReasonStagedUnlocked   = "StagedUnlocked"
	ReasonRebooting        = "Rebooting"
	ReasonInhibited        = "RebootInhibited"
	ReasonGoingBack        = "GoingBack"
	ReasonNoWayBack        = "NoWayBack"
	ReasonHostRefuses      = "HostRefuses"
	ReasonStaging          = "Staging"
	ReasonLocking          = "Locking"
	ReasonUnlocking        = "Unlocking"
	ReasonSuperseded       = "Superseded"
	ReasonBusy             = "HostBusy"
	ReasonNotManageable    = "NotManageable"
	ReasonWaitingForSecret = "WaitingForSecret"
)

const (
	// recheckInterval is how often the host is looked at without an occasion:
	// somebody may have used bootc by hand, or a secret may have arrived.
	recheckInterval = 30 * time.Second
	// watchInterval is how often a running command is looked at.
	watchInterval = time.Second
)

// Decision is the answer of decide.
type Decision struct {
	Action Action
	// Reason and Message go into the conditions that are not True.
	Reason, Message string
	// Again is after how long the next pass is due at the latest.
	Again time.Duration
}

// rule is one line of the specification: the first whose answer is not nil
// decides.
type rule struct {
	name   string
	answer func(Inputs) *Decision
}

// rules, in order. Every one may rely on those above it having passed.
var rules = []rule{
	// A host that is going down is left alone: nothing may change under it.
	{"rebooting", whenRebooting},
	// One command at a time; one for an image that is not wanted is ended.
	{"command running", whenRunning},
	// Idle asks for nothing, and neither does an image that is no reference.
	{"idle", whenIdle},
	{"invalid image", whenInvalid},
	// What cannot be seen, or cannot be updated, is not touched.
	{"busy", whenBusy},
	{"not manageable", whenNotManageable},
	// A node that does not do well on the image goes back, if it can.
	{"told to go back", whenToldToGoBack},
	// The end of the way.
	{"booted", whenBooted},
	// An image that cannot work is not tried again, others not at once.
	{"failed for good", whenPermanent},
	{"backing off", whenBackingOff},
	// Staging comes before everything else, locked wherever bootc can.
	{"not staged", whenNotStaged},
	{"unlocked too early", whenUnlocked},
	{"staged", whenStaged},
	// Somebody on the host has asked for time: the image stays locked meanwhile.
	{"inhibited", whenInhibited},
	// Booting: unlock, see that it is unlocked, reboot.
	{"locked", whenLocked},
	{"ready to boot", whenReadyToBoot},
}

// decide says what to do next. It is pure: equal inputs, equal answer.
func decide(in Inputs) Decision {
	for _, rule := range rules {
		if decision := rule.answer(in); decision != nil {
			if decision.Again == 0 {
				decision.Again = recheckInterval
			}
			return *decision
		}
	}
	panic("the last rule answers always")
}

// whenRebooting asks again for a reboot that is still wanted: the request of an
// agent that was ended right after it may not have arrived.
func whenRebooting(in Inputs) *Decision {
	if !isRebooting(in) {
		return nil
	}
	if in.Intent.WentBack == in.BootID {
		return &Decision{Action: GoBack, Reason: ReasonGoingBack, Message: "the node is going down to boot the image before", Again: 10 * time.Second}
	}
	decision := &Decision{Action: Report, Reason: ReasonRebooting, Message: "the node is going down to boot the image", Again: 10 * time.Second}
	if in.Intent.isFor(in.Spec) && in.Spec.Phase == v1alpha1.PhaseBooted {
		decision.Action = Reboot
	}
	return decision
}

func whenRunning(in Inputs) *Decision {
	if in.Command.State != CommandRunning {
		return nil
	}
	verb, image := bootc.Describe(in.Command.Arguments)
	if verb == bootc.Stage && image != in.Desired {
		return &Decision{Action: Cancel, Reason: ReasonSuperseded, Message: "ending the download of " + image.Digest(), Again: watchInterval}
	}
	reason := map[bootc.Verb]string{bootc.Stage: ReasonStaging, bootc.Lock: ReasonLocking, bootc.Unlock: ReasonUnlocking, bootc.UnlockSoft: ReasonUnlocking}[verb]
	if reason == "" {
		reason = ReasonBusy
	}
	message := "bootc is running since " + in.Command.Started.UTC().Format(time.RFC3339)
	if verb == bootc.Stage {
		message = stagingMessage
	}
	return &Decision{Action: Report, Reason: reason, Message: message, Again: watchInterval}
}

func whenIdle(in Inputs) *Decision {
	if in.Spec.Phase != v1alpha1.PhaseIdle && in.Spec.DesiredImage != "" {
		return nil
	}
	return &Decision{Action: Report, Reason: ReasonIdle}
}

func whenInvalid(in Inputs) *Decision {
	if !in.Desired.IsZero() {
		return nil
	}
	_, err := bootc.ParseReference(in.Spec.DesiredImage)
	return &Decision{Action: Report, Reason: string(v1alpha1.FailureImageInvalid), Message: "spec.desiredImage: " + err.Error()}
}

func whenBusy(in Inputs) *Decision {
	switch {
	case in.IsBroken:
		return &Decision{Action: Report, Reason: ReasonNotManageable, Message: brokenMessage(in)}
	case in.Busy == "" && in.Host != nil:
		return nil
	}
	return &Decision{Action: Report, Reason: ReasonBusy, Message: "bootc does not answer, its last known status is shown: " + in.Busy + "; see whether another bootc or rpm-ostree runs on the node", Again: 10 * time.Second}
}

func brokenMessage(in Inputs) string {
	return in.Busy + "; its last known status is shown: mend it on the node, or install that anew"
}

func whenNotManageable(in Inputs) *Decision {
	reason, message := manageability(in.Host)
	if reason == "" {
		return nil
	}
	return &Decision{Action: Report, Reason: ReasonNotManageable, Message: message}
}

// manageability says why bootc cannot update the host; empty when it can.
func manageability(host *bootc.Host) (reason, message string) {
	switch {
	case !host.IsManaged():
		return "NotBootc", "the node was not booted from a container image: install it with bootc"
	case host.Status.Booted.Incompatible:
		return string(v1alpha1.FailureHostDrift), "packages were layered on the node by hand, bootc refuses to update it: undo that with rpm-ostree reset"
	}
	return "", ""
}

// stagingMessage is the same before and during a download: a report less.
const stagingMessage = "downloading the image"

// whenToldToGoBack: a node that does not run the image has nothing to go back from.
func whenToldToGoBack(in Inputs) *Decision {
	if in.Spec.Phase != v1alpha1.PhaseRolledBack {
		return nil
	}
	if !in.Host.Runs(in.Desired) {
		if last := lastAttempt(in); last != nil && last.Class != "" {
			return &Decision{Action: Report, Reason: string(last.Class), Message: last.Message}
		}
		return &Decision{Action: Report, Reason: ReasonNoWayBack, Message: "the node was told to go back from an image that it does not run"}
	}
	if why := whyStay(wayBackOf(in)); why != "" {
		return &Decision{Action: Report, Reason: ReasonNoWayBack, Message: "the node cannot go back to the image before: " + why + "; boot that one by hand, or set another image"}
	}
	return &Decision{Action: GoBack, Reason: ReasonGoingBack, Message: "the node is going down to boot the image before", Again: 10 * time.Second}
}

// whenBooted also locks again what a withdrawn order to boot left unlocked: the
// next reboot, whatever its cause, would apply it.
func whenBooted(in Inputs) *Decision {
	if !in.Host.Runs(in.Desired) {
		return nil
	}
	if staged := in.Host.Status.Staged; isOurs(staged) && !staged.DownloadOnly && in.Features.UpgradeLocks && mayRetry(in) {
		return &Decision{Action: Lock, Reason: ReasonLocking, Message: "an image that is not wanted is staged", Again: watchInterval}
	}
	return &Decision{Action: Report, Reason: ReasonBooted}
}

// isOurs tells an image that the agent staged, always by digest, from one that
// an administrator staged by tag.
func isOurs(staged *bootc.BootEntry) bool {
	return staged != nil && staged.Image != nil && strings.Contains(staged.Image.Image.Image, "@sha256:")
}

func whenPermanent(in Inputs) *Decision {
	last := lastAttempt(in)
	if last == nil || !last.Permanent {
		return nil
	}
	return &Decision{Action: Report, Reason: string(last.Class), Message: cause(last) + "; not tried again until the image or retryToken changes: " + adviceOf[last.Class]}
}

func whenBackingOff(in Inputs) *Decision {
	if mayRetry(in) {
		return nil
	}
	last := lastAttempt(in)
	due := last.Time.Add(retryAfter(in.Node, last.Failures))
	again := max(due.Sub(in.Now), time.Second)
	if last.Class == v1alpha1.FailureAuthentication {
		if decision := waitForSecret(in); decision != nil {
			return decision // it is looked for often, and ends the wait
		}
		again = min(again, recheckInterval) // nobody tells of a change of the node's own
	}
	return &Decision{
		Action: Report, Reason: string(last.Class), Again: again,
		Message: fmt.Sprintf("%s; failed %d times, next try at %s: %s", cause(last), last.Failures, due.UTC().Format(time.RFC3339), adviceOf[last.Class]),
	}
}

// mayRetry says whether the wait after the last failure is over. A clock that
// was set back ends it, too: an hour in the future is no reason to wait an hour.
// And so does another pull secret, where the registry refused the one before.
func mayRetry(in Inputs) bool {
	last := lastAttempt(in)
	if last == nil || last.Class == "" {
		return true
	}
	if last.Class == v1alpha1.FailureAuthentication && hasSecret(in) && in.Secret.hash() != in.TriedSecret {
		return true
	}
	since := in.Now.Sub(last.Time.Time)
	return since < -lastRetry || since >= retryAfter(in.Node, last.Failures)
}

func whenNotStaged(in Inputs) *Decision {
	if in.Host.HasStaged(in.Desired) {
		return nil
	}
	if decision := waitForSecret(in); decision != nil {
		return decision
	}
	return &Decision{Action: Stage, Reason: ReasonStaging, Message: stagingMessage, Again: watchInterval}
}

// hasSecret says whether the credentials to pull with are there: the node's own,
// or those of the rollout with the content that the controller meant.
func hasSecret(in Inputs) bool {
	if in.IsSecretOwn {
		return in.Secret != nil
	}
	return in.Spec.PullSecretHash != "" && in.Secret.hash() == in.Spec.PullSecretHash
}

// waitForSecret holds back what needs the registry until the credentials that
// the controller meant have arrived on the node.
func waitForSecret(in Inputs) *Decision {
	if in.Spec.PullSecretHash == "" || hasSecret(in) {
		return nil
	}
	if in.IsSecretOwn {
		return &Decision{Action: Report, Reason: ReasonWaitingForSecret, Message: "the node has no pull secret of its own yet, see --pull-secret-file", Again: 5 * time.Second}
	}
	state := "has not arrived on the node yet"
	if in.Secret != nil {
		state = "is on the node with an earlier content"
	}
	return &Decision{Action: Report, Reason: ReasonWaitingForSecret, Message: "the pull secret of rollout " + in.Spec.Rollout + " " + state + ", it comes within minutes: else see Secret imagemode-node-pull and the agent's pod", Again: 5 * time.Second}
}

func whenUnlocked(in Inputs) *Decision {
	if in.Spec.Phase == v1alpha1.PhaseBooted || in.Host.Status.Staged.DownloadOnly || !in.Features.UpgradeLocks {
		return nil
	}
	if decision := waitForSecret(in); decision != nil {
		return decision
	}
	return &Decision{Action: Lock, Reason: ReasonLocking, Message: "the image is staged and being locked against an unplanned reboot", Again: watchInterval}
}

func whenStaged(in Inputs) *Decision {
	switch {
	case in.Spec.Phase == v1alpha1.PhaseBooted:
		return nil
	case in.Host.Status.Staged.DownloadOnly:
		return &Decision{Action: Report, Reason: ReasonStaged, Message: "the image is staged and locked"}
	}
	return &Decision{Action: Report, Reason: ReasonStagedUnlocked, Message: "the image is staged; this bootc (before 1.12) cannot lock it, any reboot boots it: do not reboot the node by hand"}
}

func whenInhibited(in Inputs) *Decision {
	if in.Inhibitor == "" {
		return nil
	}
	return &Decision{Action: Report, Reason: ReasonInhibited, Message: "the reboot is held back on the node by " + in.Inhibitor + "; end that, or wait for it (systemd-inhibit --list)"}
}

func whenLocked(in Inputs) *Decision {
	if !in.Host.Status.Staged.DownloadOnly {
		return nil
	}
	return &Decision{Action: Unlock, Reason: ReasonUnlocking, Message: "the staged image is being unlocked for the reboot", Again: watchInterval}
}

func whenReadyToBoot(Inputs) *Decision {
	return &Decision{Action: Reboot, Reason: ReasonRebooting, Message: "the node is going down to boot the image", Again: 10 * time.Second}
}
