package controller

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/imagemode/imagemode/api/v1alpha1"
)

// notice is what a step of a slot tells the user, on the Node, with the rollout
// beside it.
type notice struct {
	node                  *corev1.Node
	kind, reason, message string
}

// stepEvent is the notice for a slot that went from one phase to the next (nil:
// freed), or nil when nothing happened that a user wants to see.
func stepEvent(node *Node, before v1alpha1.Slot, after *v1alpha1.Slot) *notice {
	if node == nil {
		return nil
	}
	say := func(reason, message string) *notice {
		return &notice{node.Node, corev1.EventTypeNormal, reason, message}
	}
	isOverdueNow := after != nil && after.Phase == before.Phase && after.Message != "" && before.Message == ""
	switch {
	case after == nil && node.runs(before.Image):
		return say("Updated", "runs "+before.Image)
	case after == nil:
		return say("Returned", "back in service on the image it had; it was to run "+before.Image)
	case isOverdueNow && after.Phase == v1alpha1.SlotBooting:
		return &notice{node.Node, corev1.EventTypeWarning, "RebootTimeout", after.Message}
	case after.Phase == before.Phase:
		return nil
	case after.Phase == v1alpha1.SlotDraining:
		return say("Cordoned", "cordoned for the update to "+before.Image)
	case after.Phase == v1alpha1.SlotBooting:
		return say("Drained", "drained; the agent may reboot the node into "+before.Image)
	case after.Phase == v1alpha1.SlotSoaking && before.Phase == v1alpha1.SlotBooting && node.runs(before.Image):
		return say("Booted", "Ready on "+before.Image)
	}
	return nil
}

// emit makes the events, after the step was written: one that was not would be
// told twice.
func (r *Reconciler) emit(scope *Scope, events []notice) {
	for _, e := range events {
		r.Recorder.Eventf(e.node, scope.Rollout, e.kind, e.reason, "Rollout", "%s", e.message)
	}
}
