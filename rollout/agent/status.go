package agent

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/imagemode/imagemode/api/v1alpha1"
	"github.com/imagemode/imagemode/rollout/bootc"
)

// fieldManager owns all of NodeImage.status.
const fieldManager = client.FieldOwner("imagemode-agent")

// statusOf is the status for what was observed and decided. Conditions keep
// their transition times from the status before.
func statusOf(before v1alpha1.NodeImageStatus, generation int64, in Inputs, decision Decision) v1alpha1.NodeImageStatus {
	status := *before.DeepCopy()
	status.ObservedGeneration = generation
	status.BootID, status.SoftReboots = splitBootID(in.BootID)
	status.LastAttempt = in.Attempt.DeepCopy()
	status.FailedImages = in.Failed
	status.LiveHash = in.LiveHash
	status.FreeSpace = in.Survey.freeSpace
	if in.Host != nil {
		status.Booted = hostImage(in.Host.Status.Booted)
		status.Staged = hostImage(in.Host.Status.Staged)
		status.Rollback = hostImage(in.Host.Status.Rollback)
	}
	setConditions(&status.Conditions, generation, in, decision)
	return status
}

// hostImage copies what the API shows of a deployment, within the API's limits:
// one oversized label of an image must not make the whole report unwritable.
func hostImage(entry *bootc.BootEntry) *v1alpha1.HostImage {
	if entry == nil || entry.Image == nil {
		return nil
	}
	return &v1alpha1.HostImage{
		Image:        clip(entry.Image.Image.Image, 447),
		Digest:       clip(entry.Image.ImageDigest, 71),
		Version:      clip(entry.Image.Version, 253),
		DownloadOnly: entry.DownloadOnly,

		SoftRebootCapable: entry.SoftRebootCapable,
	}
}

func clip(text string, limit int) string {
	if text = bootc.OneLine(text); len(text) > limit {
		return ""
	}
	return text
}

func setConditions(conditions *[]metav1.Condition, generation int64, in Inputs, decision Decision) {
	set := func(kind string, isTrue bool, reason, message string) {
		status := metav1.ConditionFalse
		if isTrue {
			status = metav1.ConditionTrue
		}
		meta.SetStatusCondition(conditions, metav1.Condition{
			Type: kind, Status: status, Reason: reason, Message: bootc.OneLine(message), ObservedGeneration: generation,
		})
	}
	setManageable(set, in)
	switch why := whyNoWayBack(in); {
	case why != "":
		set(v1alpha1.ConditionRollbackReady, false, "NoWayBack", why)
	case decision.Reason == ReasonNoWayBack && in.Host.Runs(in.Desired):
		set(v1alpha1.ConditionRollbackReady, false, "NoWayBack", decision.Message)
	case decision.Action == GoBack && in.Problem != "":
		set(v1alpha1.ConditionRollbackReady, false, "GoingBackFails", decision.Message)
	default:
		meta.RemoveStatusCondition(conditions, v1alpha1.ConditionRollbackReady)
	}
	setSurvey(set, conditions, in.Survey)
	if in.LiveProblem != "" {
		set(v1alpha1.ConditionLiveFailed, true, "NotApplied", in.LiveProblem)
	} else {
		meta.RemoveStatusCondition(conditions, v1alpha1.ConditionLiveFailed)
	}
	if decision.Reason == ReasonIdle {
		meta.RemoveStatusCondition(conditions, v1alpha1.ConditionStaged)
		meta.RemoveStatusCondition(conditions, v1alpha1.ConditionBooted)
		return
	}
	isBooted := in.Host != nil && in.Host.Runs(in.Desired)
	isStaged := in.Host != nil && in.Host.HasStaged(in.Desired)
	switch {
	case isBooted:
		set(v1alpha1.ConditionStaged, true, ReasonBooted, "the node runs the image")
		set(v1alpha1.ConditionBooted, true, ReasonBooted, "the node runs the image")
		return
	case isStaged && (in.Host.Status.Staged.DownloadOnly || in.Spec.Phase == v1alpha1.PhaseBooted):
		set(v1alpha1.ConditionStaged, true, ReasonStaged, "the image is staged")
	case isStaged && decision.Reason == ReasonStagedUnlocked:
		set(v1alpha1.ConditionStaged, true, ReasonStagedUnlocked, decision.Message)
	default:
		set(v1alpha1.ConditionStaged, false, decision.Reason, decision.Message)
	}
	set(v1alpha1.ConditionBooted, false, decision.Reason, decision.Message)
}

// setManageable leaves the condition alone while nothing is known.
func setManageable(set func(kind string, isTrue bool, reason, message string), in Inputs) {
	if in.IsBroken {
		set(v1alpha1.ConditionManageable, false, "BootcFails", brokenMessage(in))
		return
	}
	if in.Host == nil {
		return
	}
	if reason, message := manageability(in.Host); reason != "" {
		set(v1alpha1.ConditionManageable, false, reason, message)
		return
	}
	set(v1alpha1.ConditionManageable, true, "BootcHost", "the node was booted from a container image")
}

// How long a step may go on before it is reported: each report is a write, and a
// thousand nodes take each step. A download that takes no longer is reported once,
// when it has ended; the other steps take seconds.
const (
	quietDownload = 5 * time.Second
	quietTime     = time.Minute
)

// isWorthAReport says whether somebody may wait for what has changed. The start of
// a step on the way (stage, lock, unlock, reboot) is not reported, nor is that a
// node with nothing left to do has seen a newer spec.
func isWorthAReport(before, after v1alpha1.NodeImageStatus, in Inputs, decision Decision) bool {
	after.FreeSpace = before.FreeSpace // goes along with what else is to be said
	switch {
	case equality.Semantic.DeepEqual(before, after):
		return false
	case before.BootID != after.BootID || before.SoftReboots != after.SoftReboots || isNews(before.LastAttempt, after.LastAttempt):
		return true
	case in.Problem != "":
		return true
	case decision.Action == Stage || decision.Action == Lock || decision.Action == Unlock || decision.Action == Reboot:
		return false
	case in.Command.State == CommandRunning && in.Now.Sub(in.Command.Started) < quietTimeOf(decision):
		return false
	case decision.Reason == ReasonBooted:
		return !equality.Semantic.DeepEqual(withoutGenerations(before), withoutGenerations(after))
	}
	return true
}

func quietTimeOf(decision Decision) time.Duration {
	if decision.Reason == ReasonStaging {
		return quietDownload
	}
	return quietTime
}

// isNews says whether an attempt has to be reported at once: it failed, or it is
// another attempt at the same image, whose command could be taken for the one
// before. The first at an image is told with what comes of it.
func isNews(before, after *v1alpha1.Attempt) bool {
	switch {
	case after == nil:
		return before != nil
	case before == nil || before.Image != after.Image:
		return after.Class != ""
	}
	return before.RetryToken != after.RetryToken || before.Class != after.Class || before.Failures != after.Failures
}

func withoutGenerations(status v1alpha1.NodeImageStatus) v1alpha1.NodeImageStatus {
	bare := *status.DeepCopy()
	bare.ObservedGeneration = 0
	for i := range bare.Conditions {
		bare.Conditions[i].ObservedGeneration = 0
	}
	return bare
}

// report writes the status.
func (a *Agent) report(ctx context.Context, object *v1alpha1.NodeImage, status v1alpha1.NodeImageStatus) error {
	apply, err := statusApplyConfiguration(object.Name, status)
	if err != nil {
		return err
	}
	if err := a.client.SubResource("status").Apply(ctx, apply, fieldManager, client.ForceOwnership); err != nil {
		return fmt.Errorf("NodeImage %s: status could not be written: %w", object.Name, err)
	}
	a.reported, a.reportedUID = &status, object.UID
	return nil
}

// statusApplyConfiguration holds the status and what identifies the object,
// and nothing that the agent may not write.
func statusApplyConfiguration(name string, status v1alpha1.NodeImageStatus) (runtime.ApplyConfiguration, error) {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&status)
	if err != nil {
		return nil, err
	}
	object := &unstructured.Unstructured{Object: map[string]any{"status": content}}
	object.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("NodeImage"))
	object.SetName(name)
	return client.ApplyConfigurationFromUnstructured(object), nil
}
