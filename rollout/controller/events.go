package controller

import (
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/imagemode/imagemode/api/v1alpha1"
)

// notice is what a step tells the user: on the Node with the rollout beside it,
// or, without a node, on the rollout.
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
	if trouble := troubleOf(before, after); trouble != "" {
		return &notice{node.Node, corev1.EventTypeWarning, trouble, after.Message}
	}
	say := func(reason, message string) *notice {
		return &notice{node.Node, corev1.EventTypeNormal, reason, message}
	}
	switch {
	case after == nil && node.runs(before.Image):
		return say("Updated", "runs "+before.Image)
	case after == nil:
		return say("Returned", "back in service on the image it had; it was to run "+before.Image)
	case after.Phase == before.Phase:
		return nil
	case after.Phase == v1alpha1.SlotBooting:
		return say("Drained", "drained; the agent may reboot the node into "+before.Image)
	case after.Phase == v1alpha1.SlotRollingBack:
		return &notice{node.Node, corev1.EventTypeWarning, "RollingBack", after.Message}
	case after.Phase == v1alpha1.SlotSoaking && before.Phase == v1alpha1.SlotBooting && node.runs(before.Image):
		return say("Booted", "Ready on "+before.Image)
	}
	return nil
}

// forcedEvent tells that a node is told to boot with volumes attached to it.
func forcedEvent(node *Node, next *v1alpha1.Slot, result outcome) *notice {
	if node == nil || next == nil || next.Phase != v1alpha1.SlotBooting || !result.isDrained || result.blocked == "" {
		return nil
	}
	return &notice{node.Node, corev1.EventTypeWarning, "DrainForced", clip("reboots all the same, spec.drain.onTimeout is Force: it " + result.blocked)}
}

// grantEvents tell on the nodes that get a slot what is about to happen to them.
func grantEvents(scope *Scope, grants []v1alpha1.Slot) []notice {
	var told []notice
	for _, slot := range grants {
		if node := scope.node(slot); node != nil {
			told = append(told, notice{node.Node, corev1.EventTypeNormal, "SlotGranted", "is taken out of service for " + slot.Image})
		}
	}
	return told
}

// troubleOf is the reason for a slot that has begun to say what it waits for.
func troubleOf(before v1alpha1.Slot, after *v1alpha1.Slot) string {
	if after == nil || after.Phase != before.Phase || after.Message == "" {
		return ""
	}
	isNowAboutVolumes := !strings.Contains(before.Message, stillAttached) && strings.Contains(after.Message, stillAttached)
	if before.Message != "" && !isNowAboutVolumes { // that pods have gone meanwhile is no news
		return ""
	}
	switch after.Phase {
	case v1alpha1.SlotDraining:
		return "DrainBlocked"
	case v1alpha1.SlotBooting:
		return "BootWaiting"
	}
	return ""
}

// statusEvents are the notices for what has happened to the whole rollout.
func statusEvents(before, after v1alpha1.ImageRolloutStatus) []notice {
	var events []notice
	held := phasesOf(before.Slots)
	var granted []string
	for _, slot := range after.Slots {
		if _, wasHeld := held[slot.NodeUID]; !wasHeld {
			granted = append(granted, slot.Node)
		}
	}
	if len(granted) > 0 {
		image := after.Slots[len(after.Slots)-1].Image
		events = append(events, notice{nil, corev1.EventTypeNormal, "SlotGranted", list(granted) + " out of service for " + image})
	}
	if n := len(after.Rejected); n > 0 && (len(before.Rejected) == 0 || before.Rejected[len(before.Rejected)-1] != after.Rejected[n-1]) {
		events = append(events, notice{nil, corev1.EventTypeWarning, "ImageRejected", after.Rejected[n-1].Digest + ": " + after.Rejected[n-1].Reason})
	}
	for _, skipped := range after.Skipped {
		if !wasThere(before.Skipped, skipped) {
			events = append(events, notice{nil, corev1.EventTypeWarning, "DrainSkipped", skipped.Node + " was put back into service, its drain took too long: " + skipped.Message})
		}
	}
	if after.Canary != nil && (before.Canary == nil || before.Canary.Image != after.Canary.Image) {
		events = append(events, notice{nil, corev1.EventTypeNormal, "CanaryDone", "the canary nodes run " + after.Canary.Image})
	}
	if paused := pausedEvent(before, after); paused != nil {
		events = append(events, *paused)
	}
	return events
}

// phasesOf are the phases of slots by the UIDs of their nodes.
func phasesOf(slots []v1alpha1.Slot) map[string]v1alpha1.SlotPhase {
	phases := make(map[string]v1alpha1.SlotPhase, len(slots))
	for _, slot := range slots {
		phases[slot.NodeUID] = slot.Phase
	}
	return phases
}

func wasThere(entries []v1alpha1.SkippedNode, skipped v1alpha1.SkippedNode) bool {
	for _, other := range entries {
		if other.NodeUID == skipped.NodeUID && other.Time.Time.Truncate(time.Second).Equal(skipped.Time.Time.Truncate(time.Second)) {
			return true
		}
	}
	return false
}

// emit makes the events, after the step was written: one that was not would be
// told twice.
func (r *Reconciler) emit(scope *Scope, events []notice) {
	for _, e := range events {
		if e.node == nil {
			r.Recorder.Eventf(scope.Rollout, nil, e.kind, e.reason, "Rollout", "%s", e.message)
			continue
		}
		r.Recorder.Eventf(e.node, scope.Rollout, e.kind, e.reason, "Rollout", "%s", e.message)
	}
}
