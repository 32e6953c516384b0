package agent

import (
	"fmt"
	"hash/fnv"
	"slices"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/imagemode/imagemode/api/v1alpha1"
	"github.com/imagemode/imagemode/rollout/bootc"
)

const (
	// firstRetry and lastRetry bound the wait before a failed command is tried
	// again: short enough to follow a registry that restarts, long enough that
	// a thousand nodes do not keep a struggling one down.
	firstRetry = 5 * time.Second
	lastRetry  = 5 * time.Minute
)

// settle returns the last attempt in the light of what was observed: a command
// that ended, or a boot that came back on another image. It is pure.
func settle(in Inputs) *v1alpha1.Attempt {
	switch {
	case in.Desired.IsZero() || in.Host == nil:
		return in.Attempt
	case cameBackOld(in):
		return failed(in, failedBoot(in))
	case in.Command.State != CommandFinished || in.Busy != "":
		return in.Attempt
	}
	verb, image := bootc.Describe(in.Command.Arguments)
	isStage, isKnown := verb == bootc.Stage, lastAttempt(in) != nil
	if verb == "" || (isStage && image != in.Desired) || (!isStage && !isKnown) {
		return in.Attempt // of an earlier order, or of nothing known: no news about this one
	}
	if failure, isFailure := judge(in, verb); isFailure {
		if !isKnown {
			return in.Attempt // it may be that of an earlier retry token
		}
		return failed(in, failure)
	}
	return &v1alpha1.Attempt{Image: in.Spec.DesiredImage, RetryToken: in.Spec.RetryToken, Time: metav1.NewTime(in.Now)}
}

// cameBackOld says whether the node was rebooted for the image and runs another.
// The boot id decides, never the time. A soft reboot that did not bring the image
// is no failure yet: a full one follows.
func cameBackOld(in Inputs) bool {
	return in.Intent.isFor(in.Spec) && in.Intent.Rebooting && !in.Intent.Soft && in.Intent.BootID != in.BootID && !in.Host.Runs(in.Desired)
}

// failedBoot tells a node that went back from one that never left.
func failedBoot(in Inputs) bootc.Failure {
	if in.Intent.WentBack != "" {
		return bootc.Failure{
			Class: v1alpha1.FailureRolledBack, Permanent: true,
			Message: "the node booted the image, was not confirmed on it and went back to " + bootedDigest(in) + ": see the journal of the boot before this one",
		}
	}
	return bootc.Failure{
		Class: v1alpha1.FailureFinalizeFailed, Permanent: true,
		Message: "the node was rebooted to boot the image and came back on " + bootedDigest(in) +
			": see the journal of ostree-finalize-staged.service in the boot before this one",
	}
}

// judge says how a finished command failed. bootc exits with 0 for every
// command that had nothing to do, so that only its effect tells success.
func judge(in Inputs, verb bootc.Verb) (bootc.Failure, bool) {
	output := in.Command.Output
	if output.Result == "timeout" {
		return bootc.Failure{Class: v1alpha1.FailureRegistry, Message: fmt.Sprintf("bootc %s took longer than %s and was stopped", verb, stageTimeout)}, true
	}
	if !output.Succeeded() {
		failure := bootc.Classify(output.Stderr)
		if failure.Message == "" {
			failure.Message = fmt.Sprintf("bootc %s ended without a message (%s, exit code %d)", verb, output.Result, output.ExitCode)
		}
		return failure, true
	}
	if hasEffect(in, verb) {
		return bootc.Failure{}, false
	}
	return bootc.Failure{Class: v1alpha1.FailureInternal, Message: fmt.Sprintf("bootc reported success to %s the image, but its status does not show it", verb)}, true
}

func hasEffect(in Inputs, verb bootc.Verb) bool {
	if !in.Host.HasStaged(in.Desired) {
		return verb != bootc.Stage && in.Host.Runs(in.Desired)
	}
	switch verb {
	case bootc.Lock:
		return in.Host.Status.Staged.DownloadOnly
	case bootc.Unlock, bootc.UnlockSoft:
		return !in.Host.Status.Staged.DownloadOnly
	}
	return true
}

// failed counts a failure of the desired image; failures of another image, or
// under another token, do not count.
func failed(in Inputs, failure bootc.Failure) *v1alpha1.Attempt {
	attempt := v1alpha1.Attempt{
		Image: in.Spec.DesiredImage, RetryToken: in.Spec.RetryToken, Failures: 1,
		Class: failure.Class, Permanent: failure.Permanent, Message: failure.Message,
		Time: metav1.NewTime(in.Now),
	}
	if last := lastAttempt(in); last != nil {
		attempt.Failures = last.Failures + 1
		if last.Class == attempt.Class && last.Permanent && attempt.Permanent {
			return last // the same finding as before: nothing is to be written
		}
	}
	return &attempt
}

// maxFailedImages is the limit of NodeImage.status.failedImages in the API.
const maxFailedImages = 8

// remember adds an attempt that failed for good to those known before.
func remember(known []v1alpha1.Attempt, attempt *v1alpha1.Attempt) []v1alpha1.Attempt {
	if attempt == nil || !attempt.Permanent || recollect(known, attempt.Image, attempt.RetryToken) != nil {
		return known
	}
	known = append(slices.Clone(known), *attempt)
	return known[max(len(known)-maxFailedImages, 0):]
}

// recollect finds the failure of an image under a token; nil when there is none.
func recollect(known []v1alpha1.Attempt, image, retryToken string) *v1alpha1.Attempt {
	for i := range known {
		if known[i].Image == image && known[i].RetryToken == retryToken {
			return known[i].DeepCopy()
		}
	}
	return nil
}

// begin is the attempt that starts with the decision. One under another retry token
// is reported before its command is started, so that the command's end can be told
// from that of the one before. An agent that is ended in the first attempt at an
// image does not know of it any more, and tries once more than it counts.
func begin(in Inputs, decision Decision) *v1alpha1.Attempt {
	isStart := decision.Action == Stage || decision.Action == Lock || decision.Action == Unlock
	if !isStart || lastAttempt(in) != nil {
		return in.Attempt
	}
	return &v1alpha1.Attempt{Image: in.Spec.DesiredImage, RetryToken: in.Spec.RetryToken, Time: metav1.NewTime(in.Now)}
}

// lastAttempt is the last attempt at what the spec asks for, or nil.
func lastAttempt(in Inputs) *v1alpha1.Attempt {
	if in.Attempt == nil || in.Attempt.Image != in.Spec.DesiredImage || in.Attempt.RetryToken != in.Spec.RetryToken {
		return nil
	}
	return in.Attempt
}

// retryAfter is how long after the attempt the next may start: doubling from
// 5 s to 5 min, and of that a half to the whole, by node and count, so that
// nodes that failed together do not come back together.
func retryAfter(node string, failures int32) time.Duration {
	delay := lastRetry
	if failures < 7 { // 5 s doubled six times is over the limit
		delay = min(firstRetry<<max(failures-1, 0), lastRetry)
	}
	sum := fnv.New32a()
	sum.Write([]byte(node + "/" + strconv.Itoa(int(failures))))
	return delay/2 + time.Duration(sum.Sum32()%1000)*(delay/2)/1000
}

func bootedDigest(in Inputs) string {
	if booted := in.Host.Status.Booted; booted != nil && booted.Image != nil {
		return booted.Image.ImageDigest
	}
	return "a system that is no container image"
}
