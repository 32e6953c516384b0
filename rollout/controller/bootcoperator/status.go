package bootcoperator

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/imagemode/imagemode/api/v1alpha1"
)

// poolStatus is what is read of BootcNodePool.status.
type poolStatus struct {
	NodeCount     int32              `json:"nodeCount"`
	UpdatedCount  int32              `json:"updatedCount"`
	DegradedCount int32              `json:"degradedCount"`
	Conditions    []metav1.Condition `json:"conditions"`
}

// bootcNode is what is read of a BootcNode.
type bootcNode struct {
	Spec struct {
		DesiredImage      string `json:"desiredImage"`
		DesiredImageState string `json:"desiredImageState"`
	} `json:"spec"`
	Status struct {
		Booted     *bootcImage        `json:"booted"`
		Staged     *bootcImage        `json:"staged"`
		Rollback   *bootcImage        `json:"rollback"`
		Conditions []metav1.Condition `json:"conditions"`
	} `json:"status"`
}

type bootcImage struct {
	Image             string `json:"image"`
	ImageDigest       string `json:"imageDigest"`
	Version           string `json:"version"`
	SoftRebootCapable bool   `json:"softRebootCapable"`
	Incompatible      bool   `json:"incompatible"`
}

// report is everything that the rollout's status is made of.
type report struct {
	pool  poolStatus
	nodes []bootcNode
	// problem is why nothing is handed over; the zero condition: nothing is wrong.
	problem metav1.Condition
}

// readPoolStatus returns the zero status for no pool.
func readPoolStatus(pool *unstructured.Unstructured) (poolStatus, error) {
	var status poolStatus
	if pool == nil {
		return status, nil
	}
	content, _, err := unstructured.NestedMap(pool.Object, "status")
	if err != nil || content == nil {
		return status, err
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(content, &status); err != nil {
		return status, fmt.Errorf("BootcNodePool %s: status: %w", pool.GetName(), err)
	}
	return status, nil
}

func condition(kind string, isTrue bool, reason, message string) metav1.Condition {
	status := metav1.ConditionFalse
	if isTrue {
		status = metav1.ConditionTrue
	}
	return metav1.Condition{Type: kind, Status: status, Reason: reason, Message: message}
}

// statusOf is all of the rollout's status. How many nodes are unavailable is the
// operator's business, which does not say it: there is no condition Available.
func statusOf(rollout *v1alpha1.ImageRollout, report report) v1alpha1.ImageRolloutStatus {
	status := v1alpha1.ImageRolloutStatus{
		ObservedGeneration: rollout.Generation,
		Nodes: v1alpha1.NodeCounts{
			Total: report.pool.NodeCount, Updated: report.pool.UpdatedCount, Failed: report.pool.DegradedCount,
			Staged: countStaged(rollout.Spec.Image, report.nodes),
		},
		Conditions: append([]metav1.Condition(nil), rollout.Status.Conditions...),
	}
	meta.RemoveStatusCondition(&status.Conditions, v1alpha1.ConditionAvailable)
	for _, condition := range []metav1.Condition{progressing(rollout, report), degraded(report), paused(rollout)} {
		condition.ObservedGeneration = rollout.Generation
		meta.SetStatusCondition(&status.Conditions, condition)
	}
	return status
}

func countStaged(image string, nodes []bootcNode) int32 {
	_, digest, _ := strings.Cut(image, "@")
	var count int32
	for _, node := range nodes {
		if staged := node.Status.Staged; staged != nil && digest != "" && staged.ImageDigest == digest {
			count++
		}
	}
	return count
}

func progressing(rollout *v1alpha1.ImageRollout, report report) metav1.Condition {
	kind := v1alpha1.ConditionProgressing
	progress := fmt.Sprintf("%d of %d nodes updated, by the bootc operator", report.pool.UpdatedCount, report.pool.NodeCount)
	upToDate := meta.FindStatusCondition(report.pool.Conditions, "UpToDate")
	switch {
	case report.problem.Reason != "":
		return condition(kind, false, report.problem.Reason, report.problem.Message)
	case rollout.Spec.Image == "":
		return condition(kind, false, "NoImage", "there is no image yet")
	case upToDate == nil:
		return condition(kind, true, "Updating", "the bootc operator has not reported yet")
	case upToDate.Status == metav1.ConditionTrue && report.pool.NodeCount == 0:
		return condition(kind, false, "NoNodes", fmt.Sprintf("spec.nodeSelector (%s) selects no node of the bootc operator's", metav1.FormatLabelSelector(rollout.Spec.NodeSelector)))
	case upToDate.Status == metav1.ConditionTrue:
		return condition(kind, false, "Updated", progress)
	case upToDate.Reason == "Paused":
		return condition(kind, false, "Paused", progress)
	}
	return condition(kind, true, "Updating", progress+"; "+upToDate.Message)
}

func degraded(report report) metav1.Condition {
	if report.problem.Reason != "" {
		return report.problem
	}
	theirs := meta.FindStatusCondition(report.pool.Conditions, "Degraded")
	if theirs != nil && theirs.Status == metav1.ConditionTrue {
		return condition(v1alpha1.ConditionDegraded, true, theirs.Reason, theirs.Message)
	}
	return condition(v1alpha1.ConditionDegraded, false, "AsExpected", "")
}

func paused(rollout *v1alpha1.ImageRollout) metav1.Condition {
	if rollout.Spec.Paused {
		return condition(v1alpha1.ConditionPaused, true, "Paused", "spec.paused is true")
	}
	return condition(v1alpha1.ConditionPaused, false, "NotPaused", "")
}

// nodeImageSpec says what the operator asks of the node. No agent of ours runs
// there that would act on it.
func nodeImageSpec(rollout string, node bootcNode) v1alpha1.NodeImageSpec {
	phase := v1alpha1.PhaseIdle
	switch {
	case node.Spec.DesiredImageState == "Booted":
		phase = v1alpha1.PhaseBooted
	case node.Spec.DesiredImage != "":
		phase = v1alpha1.PhaseStaged
	}
	return v1alpha1.NodeImageSpec{Rollout: rollout, DesiredImage: node.Spec.DesiredImage, Phase: phase}
}

func nodeImageStatus(before v1alpha1.NodeImageStatus, generation int64, bootID string, node bootcNode) v1alpha1.NodeImageStatus {
	status := *before.DeepCopy()
	status.ObservedGeneration, status.BootID = generation, bootID
	status.Booted, status.Staged, status.Rollback = hostImage(node.Status.Booted), hostImage(node.Status.Staged), hostImage(node.Status.Rollback)
	status.LastAttempt = nil
	theirs := meta.FindStatusCondition(node.Status.Conditions, "Degraded")
	if theirs != nil && theirs.Status == metav1.ConditionTrue {
		status.LastAttempt = &v1alpha1.Attempt{
			Image: node.Spec.DesiredImage, Class: v1alpha1.FailureInternal, Permanent: true, Failures: 1,
			Message: clip(theirs.Message), Time: theirs.LastTransitionTime,
		}
	}
	isCompatible := node.Status.Booted == nil || !node.Status.Booted.Incompatible
	manageable := condition(v1alpha1.ConditionManageable, isCompatible, "BootcHost", "the node was booted from a container image")
	if !isCompatible {
		manageable.Reason, manageable.Message = string(v1alpha1.FailureHostDrift), "packages were layered on the node by hand, bootc refuses to update it: undo that with rpm-ostree reset"
	}
	meta.SetStatusCondition(&status.Conditions, manageable)
	return status
}

func hostImage(image *bootcImage) *v1alpha1.HostImage {
	if image == nil {
		return nil
	}
	return &v1alpha1.HostImage{Image: image.Image, Digest: image.ImageDigest, Version: image.Version, SoftRebootCapable: image.SoftRebootCapable}
}

// clip keeps to the limit of Attempt.message in the API.
func clip(message string) string {
	const limit = 1024
	return strings.ToValidUTF8(message[:min(len(message), limit)], "")
}
