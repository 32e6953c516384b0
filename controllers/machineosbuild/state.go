package machineosbuild

import (
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"

	keys "github.com/imagemode/imagemode/api/machineconfiguration"
)

// phase is where a build is in its life: Prepared, Building, then one of
// Succeeded, Failed and Interrupted, which are final.
type phase = mcfgv1.BuildProgress

// phases in the order of a build's life, each with the reason and the message
// of its condition while nothing more is known.
var phases = []struct {
	phase           phase
	reason, message string
}{
	{mcfgv1.MachineOSBuildPrepared, "Prepared", "Build Prepared and Pending"},
	{mcfgv1.MachineOSBuilding, "Building", "Image Build In Progress"},
	{mcfgv1.MachineOSBuildSucceeded, "Ready", "Build Ready"},
	{mcfgv1.MachineOSBuildFailed, "Failed", "Build Failed"},
	{mcfgv1.MachineOSBuildInterrupted, "Interrupted", "Build Interrupted"},
}

// state is what is to be said about a build.
type state struct {
	phase phase
	// reason and message of the phase's condition; empty: the usual ones.
	reason, message string
	// digest of the image, sha256:<64 hex>; for Succeeded only.
	digest string
	// image by digest, for Succeeded, where it is not in the push repository.
	image string
}

func (s state) isTerminal() bool { return isTerminalPhase(s.phase) }

func isTerminalPhase(p phase) bool {
	return p == mcfgv1.MachineOSBuildSucceeded || p == mcfgv1.MachineOSBuildFailed || p == mcfgv1.MachineOSBuildInterrupted
}

// phaseOf returns the phase whose condition is True, or "" for a build nothing
// was said about yet.
func phaseOf(build *mcfgv1.MachineOSBuild) phase {
	for _, known := range phases {
		if apimeta.IsStatusConditionTrue(build.Status.Conditions, string(known.phase)) {
			return known.phase
		}
	}
	return ""
}

// conditionOf returns the condition that is True, or nil.
func conditionOf(build *mcfgv1.MachineOSBuild) *metav1.Condition {
	return apimeta.FindStatusCondition(build.Status.Conditions, string(phaseOf(build)))
}

func isTerminal(build *mcfgv1.MachineOSBuild) bool { return isTerminalPhase(phaseOf(build)) }

// hasSucceeded reports whether a build gave an image.
func hasSucceeded(build *mcfgv1.MachineOSBuild) bool {
	return phaseOf(build) == mcfgv1.MachineOSBuildSucceeded && build.Status.DigestedImagePushSpec != ""
}

// hasImage reports whether a build gave an image that is not known to be gone.
func hasImage(build *mcfgv1.MachineOSBuild) bool {
	return hasSucceeded(build) && build.Annotations[keys.AnnotationImageGone] == ""
}

// isSuperseded reports whether another build was chosen instead of this one.
func isSuperseded(build *mcfgv1.MachineOSBuild) bool {
	return build.Annotations[keys.AnnotationSupersededBy] != ""
}

// isSpent reports whether a build came, or is about to come, to an end without
// an image, or lost it, so that trying again needs another object.
func isSpent(build *mcfgv1.MachineOSBuild) bool {
	return !hasImage(build) && (isTerminal(build) || isSuperseded(build))
}

// buildStatus is the status of a build after s, at a time. It always has all
// five conditions. The API takes no change after a final one.
func buildStatus(old mcfgv1.MachineOSBuildStatus, repository string, s state, now time.Time) mcfgv1.MachineOSBuildStatus {
	status := *old.DeepCopy()
	for _, known := range phases {
		condition := metav1.Condition{
			Type: string(known.phase), Status: metav1.ConditionFalse,
			Reason: known.reason, Message: known.message, LastTransitionTime: metav1.NewTime(now),
		}
		if known.phase == s.phase {
			condition.Status = metav1.ConditionTrue
			condition.Reason = orElse(s.reason, known.reason)
			condition.Message = orElse(s.message, known.message)
		}
		apimeta.SetStatusCondition(&status.Conditions, condition)
	}
	if status.BuildStart == nil {
		status.BuildStart = &metav1.Time{Time: now.Truncate(time.Second)}
	}
	if s.isTerminal() && status.BuildEnd == nil {
		status.BuildEnd = endAfter(status.BuildStart, now)
	}
	switch {
	case s.image != "":
		status.DigestedImagePushSpec = mcfgv1.ImageDigestFormat(s.image)
	case s.digest != "":
		status.DigestedImagePushSpec = mcfgv1.ImageDigestFormat(digestSpec(repository, s.digest))
	}
	return status
}

// endAfter returns now, but at least a second after start: the API wants an end
// that is later, and keeps whole seconds.
func endAfter(start *metav1.Time, now time.Time) *metav1.Time {
	end := metav1.NewTime(now.Truncate(time.Second))
	if !end.After(start.Time) {
		end = metav1.NewTime(start.Add(time.Second))
	}
	return &end
}

// jobReferences fills in which Job builds, once it exists.
func jobReferences(status *mcfgv1.MachineOSBuildStatus, namespace, job string) {
	reference := mcfgv1.ObjectReference{Group: "batch", Resource: "jobs", Namespace: namespace, Name: job}
	status.Builder = &mcfgv1.MachineOSBuilderReference{ImageBuilderType: mcfgv1.JobBuilder, Job: &reference}
	status.RelatedObjects = []mcfgv1.ObjectReference{reference}
}

func orElse(text, otherwise string) string {
	if text == "" {
		return otherwise
	}
	return text
}
