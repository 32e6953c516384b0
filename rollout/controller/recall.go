package controller

import (
	"fmt"
	"time"

	"github.com/imagemode/imagemode/api/v1alpha1"
)

// isRecalled says whether the agent has seen that it may not boot any more: an
// agent that has asked for the reboot reports nothing until after it.
func isRecalled(node *Node) bool {
	return node.Image != nil && node.Image.Spec.Phase != v1alpha1.PhaseBooted && node.Image.Spec.Phase != v1alpha1.PhaseRolledBack &&
		node.Image.Status.ObservedGeneration == node.Image.Generation && node.isCurrent() && node.isReady()
}

// recalledAt is when the order of a slot that is withdrawn was taken back.
func recalledAt(scope *Scope, slot v1alpha1.Slot, node *Node) time.Time {
	if deleted := scope.Rollout.DeletionTimestamp; deleted != nil {
		return deleted.Time
	}
	if node.Image != nil {
		if written := writtenBy(node.Image, string(fieldOwner)); written.After(slot.Since.Time) {
			return written
		}
	}
	return slot.Since.Time
}

// isUnconfirmed says whether a slot cannot end because its agent does not confirm, though
// it had its time to, that the order was taken back.
func isUnconfirmed(scope *Scope, slot v1alpha1.Slot, node *Node) bool {
	isOrdered := slot.Phase == v1alpha1.SlotBooting || slot.Phase == v1alpha1.SlotRollingBack
	return isOrdered && isWithdrawn(scope, slot) && !isRecalled(node) && scope.Now.Sub(recalledAt(scope, slot, node)) >= answerAfter
}

// isUpAfterRecall says whether the node of a withdrawn slot is still up in the boot from
// which it was to reboot: how long it is out is no news, and what is waited for is the
// agent's confirmation.
func isUpAfterRecall(scope *Scope, slot v1alpha1.Slot, node *Node) bool {
	return isWithdrawn(scope, slot) && !hasRebooted(slot, node) && node.isReady()
}

const awaitsRecall = "waits for its agent to confirm that the order is taken back"

// adviceRecall is the way out.
const adviceRecall = "it keeps its slot until then: bring the node and its agent back, or delete the Node if it is gone for good"

// unconfirmed is the message of such a slot.
func unconfirmed(scope *Scope, slot v1alpha1.Slot, node *Node) string {
	since := recalledAt(scope, slot, node).UTC().Format(time.RFC3339)
	return advise("since "+since+": "+awaitedOf(scope, slot, node), adviceRecall)
}

// awaitedOf is what is waited for, and why.
func awaitedOf(scope *Scope, slot v1alpha1.Slot, node *Node) string {
	why := "the image is not the rollout's any more"
	if scope.Rollout.DeletionTimestamp != nil {
		why = "the rollout is being deleted"
	}
	return fmt.Sprintf("%s, and the agent of %s has to confirm that it will not reboot for %s; node Ready=%s, agent: %s",
		why, slot.Node, slot.Image, node.readyCondition().Status, agentState(node))
}

// unconfirmedSlots names them for a condition.
func unconfirmedSlots(scope *Scope, slots []v1alpha1.Slot) string {
	var names []string
	for _, slot := range slots {
		if node := scope.node(slot); node != nil && isUnconfirmed(scope, slot, node) {
			names = append(names, aboutNode(slot.Node, recalledAt(scope, slot, node), awaitedOf(scope, slot, node)))
		}
	}
	return list(names)
}
