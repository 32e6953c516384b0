package controller

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/imagemode/imagemode/api/v1alpha1"
)

// statusOf is all of the rollout's status.
func statusOf(scope *Scope, slots []v1alpha1.Slot, held Hold) v1alpha1.ImageRolloutStatus {
	status := v1alpha1.ImageRolloutStatus{
		ObservedGeneration: scope.Rollout.Generation,
		Nodes:              countNodes(scope),
		Slots:              slots,
		Canary:             canaryStatus(scope),
		Rejected:           rejected(scope),
		Skipped:            scope.Rollout.Status.Skipped,
		NextWindow:         nextWindow(scope),
		Conditions:         append([]metav1.Condition(nil), scope.Rollout.Status.Conditions...),
	}
	for _, condition := range []metav1.Condition{
		availableCondition(scope), progressingCondition(scope, status.Nodes, slots, held), degradedCondition(scope, slots), pausedCondition(scope),
	} {
		condition.ObservedGeneration = scope.Rollout.Generation
		condition.LastTransitionTime = metav1.NewTime(scope.Now) // if it is one
		condition.Message = clip(condition.Message)
		meta.SetStatusCondition(&status.Conditions, condition)
	}
	return status
}

func countNodes(scope *Scope) v1alpha1.NodeCounts {
	var counts v1alpha1.NodeCounts
	target := scope.target()
	for _, node := range scope.selected() {
		counts.Total++
		if node.isUnavailable() {
			counts.Unavailable++
		}
		switch {
		case node.isUpdated(target):
			counts.Updated++
		case node.hasStaged(target):
			counts.Staged++
		}
		if node.failure(target, scope.Rollout.Spec.RetryToken) != nil {
			counts.Failed++
		}
	}
	return counts
}

func condition(kind string, isTrue bool, reason, message string) metav1.Condition {
	status := metav1.ConditionFalse
	if isTrue {
		status = metav1.ConditionTrue
	}
	return metav1.Condition{Type: kind, Status: status, Reason: reason, Message: message}
}

func availableCondition(scope *Scope) metav1.Condition {
	var down []string
	for _, node := range scope.selected() {
		if node.isUnavailable() {
			down = append(down, node.Name)
		}
	}
	switch {
	case len(down) == 0:
		return condition(v1alpha1.ConditionAvailable, true, "AllAvailable", "all nodes are Ready and schedulable")
	case len(down) > maxUnavailable(scope):
		return condition(v1alpha1.ConditionAvailable, false, "TooManyUnavailable", "not Ready or not schedulable: "+list(down))
	}
	return condition(v1alpha1.ConditionAvailable, true, "WithinMaxUnavailable", "not Ready or not schedulable: "+list(down))
}

func progressingCondition(scope *Scope, counts v1alpha1.NodeCounts, slots []v1alpha1.Slot, held Hold) metav1.Condition {
	kind := v1alpha1.ConditionProgressing
	progress := fmt.Sprintf("%d of %d nodes updated, %d staged", counts.Updated, counts.Total, counts.Staged)
	switch {
	case scope.Rollout.DeletionTimestamp != nil && len(slots) > 0:
		return condition(kind, true, "Deleting", "is deleted as soon as these nodes are back in service: "+describeSlots(slots))
	case scope.Rollout.DeletionTimestamp != nil:
		return condition(kind, true, "Deleting", "is being deleted")
	case len(slots) > 0:
		return condition(kind, true, "Updating", progress+waitsForZone(scope, slots, held)+"; "+describeSlots(slots))
	case held.Reason == "NoImage":
		return condition(kind, false, held.Reason, held.Message)
	case counts.Total == 0 && held.Reason != "InvalidSelector":
		return condition(kind, false, "NoNodes", noNodes(scope))
	case counts.Updated == counts.Total && counts.Total > 0:
		return condition(kind, false, "Updated", progress)
	case scope.Problem != "":
		return condition(kind, false, "PullSecretMissing", scope.Problem)
	case held.Reason == "StageOnly" && counts.Updated+counts.Staged < counts.Total:
		return condition(kind, true, "Staging", progress)
	case held.Reason == "CanarySoak":
		return condition(kind, true, held.Reason, progress+"; "+held.Message)
	case held.Reason != "":
		return condition(kind, false, held.Reason, progress+"; "+held.Message)
	}
	return unheldCondition(scope, counts, progress)
}

// unheldCondition is that of a rollout without slots that no rule holds. What somebody
// has to see to is said at once; it is True only while something changes by itself.
func unheldCondition(scope *Scope, counts v1alpha1.NodeCounts, progress string) metav1.Condition {
	kind, isToStage := v1alpha1.ConditionProgressing, isMoving(scope)
	stall := stallOf(scope)
	if stall != nil {
		progress = stall.message(progress)
	}
	switch {
	case counts.Staged == 0 && (isToStage || stall == nil):
		return condition(kind, true, "Staging", progress)
	case stall != nil:
		return condition(kind, isToStage, stall.reason, progress)
	}
	return condition(kind, true, "Updating", progress+waitingFor(scope)+waitsForControlPlane(scope))
}

// noNodes says why there is nothing to do: "0 of 0 nodes updated" would hide that a
// selector has a mistake in it.
func noNodes(scope *Scope) string {
	selector := scope.Rollout.Spec.NodeSelector
	taken := 0
	for _, node := range scope.Nodes {
		if node.IsSelected && node.Claimant != "" {
			taken++
		}
	}
	switch {
	case selector == nil:
		return "spec.nodeSelector is not set, so there are no nodes to update"
	case taken > 0:
		return fmt.Sprintf("spec.nodeSelector (%s) selects only nodes that belong to other ImageRollouts: %d", metav1.FormatLabelSelector(selector), taken)
	}
	return fmt.Sprintf("spec.nodeSelector (%s) selects no node; the image goes to those that come later", metav1.FormatLabelSelector(selector))
}

func describeSlots(slots []v1alpha1.Slot) string {
	var names []string
	for _, slot := range slots {
		text := slot.Node + " " + string(slot.Phase)
		if slot.Message != "" {
			text += ": " + slot.Message
		}
		names = append(names, text)
	}
	return list(names)
}

// waitingFor names the canary nodes that all others wait for.
func waitingFor(scope *Scope) string {
	var names []string
	for _, node := range firstToCome(scope) {
		names = append(names, node.Name)
	}
	if len(names) == 0 {
		return ""
	}
	return "; the canary nodes come first: " + list(names)
}

// maySkip is how long a status may wait because nothing but numbers and texts
// has changed in it and one was written just before; 0: not at all.
func (r *Reconciler) maySkip(rollout *v1alpha1.ImageRollout, status v1alpha1.ImageRolloutStatus) time.Duration {
	last, isKnown := r.written[rollout.Name]
	wait := last.at.Add(statusInterval).Sub(r.now())
	if !isKnown || wait <= 0 || !equality.Semantic.DeepEqual(withoutNumbers(rollout.Status), withoutNumbers(status)) {
		return 0
	}
	return wait
}

// withoutNumbers leaves what somebody may be waiting for.
func withoutNumbers(status v1alpha1.ImageRolloutStatus) v1alpha1.ImageRolloutStatus {
	bare := *status.DeepCopy()
	bare.Nodes = v1alpha1.NodeCounts{}
	for i := range bare.Conditions {
		bare.Conditions[i].Message = ""
		if bare.Conditions[i].Type == v1alpha1.ConditionAvailable {
			bare.Conditions[i].Reason = "" // how many are out, within what is allowed
		}
	}
	for i := range bare.Slots {
		if bare.Slots[i].Message != "" {
			bare.Slots[i].Message = "x" // that there is one counts
		}
	}
	return bare
}

// writeStatus writes the status. The resource version makes sure that nobody
// else gave slots in the meantime. It is replaced as a whole, having one writer:
// of hundreds of slots that costs the API server the least.
func (r *Reconciler) writeStatus(ctx context.Context, rollout *v1alpha1.ImageRollout, status v1alpha1.ImageRolloutStatus) error {
	object := *rollout
	object.Status = status
	if err := r.Client.Status().Update(ctx, &object, fieldOwner); err != nil {
		return err
	}
	if r.written == nil {
		r.written = map[string]writtenStatus{}
	}
	r.written[rollout.Name] = writtenStatus{r.now(), object.ResourceVersion}
	return nil
}

// warnOfZero tells the user once per change of the spec that 0 is read as 1.
func (r *Reconciler) warnOfZero(rollout *v1alpha1.ImageRollout) {
	value := rollout.Spec.MaxUnavailable
	if value == nil || rollout.Generation == rollout.Status.ObservedGeneration {
		return
	}
	if text := value.String(); text == "0" || text == "0%" {
		r.Recorder.Eventf(rollout, nil, corev1.EventTypeWarning, "MaxUnavailableZero", "Schedule",
			"spec.maxUnavailable %s is taken as 1: with 0 no node could ever be updated; use spec.paused to hold the rollout back", text)
	}
}
