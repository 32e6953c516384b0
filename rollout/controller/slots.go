package controller

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/imagemode/imagemode/api/v1alpha1"
)

const (
	// These stand in where the rollout names none; the API documents them.
	defaultDrainTimeout     = time.Hour
	defaultRebootTimeout    = 15 * time.Minute
	defaultRollbackDeadline = 20 * time.Minute
)

// outcome is what came of carrying out the present phase of a slot.
type outcome struct {
	// isDrained: no pod is left on the node that has to go.
	isDrained bool
	// blocked says which pods or volumes are left and why; with isDrained, that they are
	// not waited for.
	blocked string
	// gate says which gate is not met on a node that has booted the image.
	gate string
	// wasUnschedulable is the slot's mark, corrected by what was seen when the
	// node was cordoned.
	wasUnschedulable bool
}

// advance is the slot after its phase was carried out with that outcome; nil
// when it is free. It is pure.
func advance(scope *Scope, slot v1alpha1.Slot, node *Node, result outcome) *v1alpha1.Slot {
	if node == nil {
		return nil // the node was deleted, perhaps made anew: nobody is away
	}
	slot.WasUnschedulable = result.wasUnschedulable
	switch slot.Phase {
	case v1alpha1.SlotDraining:
		return advanceDraining(scope, slot, node, result)
	case v1alpha1.SlotBooting:
		return advanceBooting(scope, slot, node, result)
	case v1alpha1.SlotRollingBack:
		return advanceRollingBack(scope, slot, node)
	}
	return advanceSoaking(scope, slot, node)
}

// isWithdrawn says whether the image of the slot is not the rollout's any more.
func isWithdrawn(scope *Scope, slot v1alpha1.Slot) bool { return slot.Image != scope.target() }

func enter(scope *Scope, slot v1alpha1.Slot, phase v1alpha1.SlotPhase) *v1alpha1.Slot {
	slot.Phase, slot.Since, slot.Message = phase, metav1.NewTime(scope.Now), ""
	return &slot
}

// enterBoot is enter for a phase that ends with another boot than the present.
func enterBoot(scope *Scope, slot v1alpha1.Slot, node *Node, phase v1alpha1.SlotPhase) *v1alpha1.Slot {
	slot.BootID, slot.SoftReboots = node.Status.NodeInfo.BootID, 0
	if node.Image != nil {
		slot.SoftReboots = node.Image.Status.SoftReboots
	}
	return enter(scope, slot, phase)
}

// advanceDraining takes a node that rebooted into the image on its own as
// arrived. The boot id is taken again: a reboot during the drain is not the one
// that is about to be ordered.
func advanceDraining(scope *Scope, slot v1alpha1.Slot, node *Node, result outcome) *v1alpha1.Slot {
	switch {
	case isWithdrawn(scope, slot), node.isUpdated(slot.Image), isSkipped(scope, slot, result), hasNoWayOn(scope):
		return enter(scope, slot, v1alpha1.SlotSoaking)
	case result.isDrained && !node.isReady():
		// Booted now it could not be told from a node that the image does no good.
		slot.Message = clip("drained; waits for the node to be Ready before it reboots: " + node.readyCondition().Message)
		return &slot
	case result.isDrained:
		return enterBoot(scope, slot, node, v1alpha1.SlotBooting)
	}
	slot.Message = clip(result.blocked)
	return &slot
}

// hasNoWayOn says whether a node that is drained would only be taken for ill after its
// reboot: it goes back into service instead.
func hasNoWayOn(scope *Scope) bool { return scope.gateProblem() != "" }

// isSkipped says whether the drain took so long that the node is given up for now.
func isSkipped(scope *Scope, slot v1alpha1.Slot, result outcome) bool {
	return slot.Phase == v1alpha1.SlotDraining && !result.isDrained && isOverdue(scope, slot) &&
		scope.Rollout.Spec.Drain.OnTimeout == v1alpha1.DrainSkip && !isWithdrawn(scope, slot)
}

// hasArrived waits for the one thing that counts: the kubelet and the agent both
// report another boot than before, on the image, and the node is Ready. The boot
// id is compared first: the old kubelet's Ready stands for a while.
func hasArrived(slot v1alpha1.Slot, node *Node) bool {
	return hasRebooted(slot, node) && node.isUpdated(slot.Image)
}

func hasRebooted(slot v1alpha1.Slot, node *Node) bool {
	return node.Status.NodeInfo.BootID != slot.BootID || (node.Image != nil && node.Image.Status.SoftReboots > slot.SoftReboots)
}

func advanceBooting(scope *Scope, slot v1alpha1.Slot, node *Node, result outcome) *v1alpha1.Slot {
	if hasArrived(slot, node) && areGatesPutRight(scope) {
		slot.Since = metav1.NewTime(scope.Now) // the time before says nothing about the node
	}
	switch {
	case hasArrived(slot, node) && result.gate == "":
		return enter(scope, slot, v1alpha1.SlotSoaking)
	case isWithdrawn(scope, slot) && isRecalled(node):
		return enter(scope, slot, v1alpha1.SlotSoaking)
	case hasFailed(scope, slot, node) && node.isReady() && node.isCurrent():
		return enter(scope, slot, v1alpha1.SlotSoaking) // back on the old image, and well
	case hasMissedGate(scope, slot, node) && mayRollBack(scope) && !isWithdrawn(scope, slot):
		return enterRollback(scope, slot, node, fmt.Sprintf("after %s it still waits for %s", rollbackDeadline(scope), result.gate))
	case hasArrived(slot, node):
		slot.Message = clip("on the image; waits for " + result.gate)
	case isUnconfirmed(scope, slot, node):
		slot.Message = unconfirmed(scope, slot, node)
	case scope.isSilent(node):
		slot.Message = silenceOf(scope, node).what
	case isOverdue(scope, slot) && isUpAfterRecall(scope, slot, node):
		slot.Message = awaitsRecall
	case isOverdue(scope, slot):
		slot.Message = clip(fmt.Sprintf("not Ready on the image after %s: node Ready=%s, agent: %s", rebootTimeout(scope), node.readyCondition().Status, agentState(node)))
	default:
		slot.Message = ""
	}
	return &slot
}

// hasMissedGate says whether a node on the image had its time to meet the gates. One that
// is not valid says nothing about the node: it waits for the gate to be put right.
func hasMissedGate(scope *Scope, slot v1alpha1.Slot, node *Node) bool {
	return hasArrived(slot, node) && isPastRollbackDeadline(scope, slot) && scope.gateProblem() == ""
}

// areGatesPutRight says whether spec.gates have become valid since the status was
// written last.
func areGatesPutRight(scope *Scope) bool { return scope.wasInvalidGate() && scope.gateProblem() == "" }

// goingBack begins the message of a slot in RollingBack.
const goingBack = "going back to the image before: "

// enterRollback has the node go back; the slot says why for as long as it does.
func enterRollback(scope *Scope, slot v1alpha1.Slot, node *Node, why string) *v1alpha1.Slot {
	next := enterBoot(scope, slot, node, v1alpha1.SlotRollingBack)
	next.Message = clip(goingBack + why)
	return next
}

func hasFailed(scope *Scope, slot v1alpha1.Slot, node *Node) bool {
	return node.failure(slot.Image, scope.Rollout.Spec.RetryToken) != nil
}

// advanceRollingBack waits for the node to be Ready on another image. One that
// cannot go back keeps its slot: somebody has to look at it.
func advanceRollingBack(scope *Scope, slot v1alpha1.Slot, node *Node) *v1alpha1.Slot {
	isBack := hasRebooted(slot, node) && node.isCurrent() && node.isReady() && !node.runs(slot.Image)
	if isBack || (isWithdrawn(scope, slot) && isRecalled(node)) {
		return enter(scope, slot, v1alpha1.SlotSoaking)
	}
	switch {
	case isUnconfirmed(scope, slot, node):
		slot.Message = unconfirmed(scope, slot, node)
	case isOverdue(scope, slot) && isUpAfterRecall(scope, slot, node):
		slot.Message = awaitsRecall
	case isOverdue(scope, slot):
		slot.Message = clip(fmt.Sprintf("not back on the image before after %s: node Ready=%s, agent: %s", rebootTimeout(scope), node.readyCondition().Status, agentState(node)))
	}
	return &slot
}

// advanceSoaking frees the slot when the node was Ready without a break for the
// soak time; at once when it stayed on its old image, and never before it is
// Ready. By then it was made schedulable again: the soak shows how pods do. A node
// that does not do well goes back; it is cordoned again by then.
func advanceSoaking(scope *Scope, slot v1alpha1.Slot, node *Node) *v1alpha1.Slot {
	slot.Message = ""
	switch {
	case hasRelapsed(scope, slot, node):
		return enterRollback(scope, slot, node, "the node does not stay Ready in its soak")
	case !node.isReady():
		slot.Message = "waits for the node to be Ready"
	case isWithdrawn(scope, slot):
		return nil
	case scope.isSilent(node):
		slot.Message = silenceOf(scope, node).what
	case !node.isCurrent():
		slot.Message = "waits for the agent's report from this boot"
	case !node.runs(slot.Image), soakLeft(scope, slot, node) <= 0:
		return nil
	}
	return &slot
}

// hasRelapsed says whether a node is to go back although it was put back into
// service: its pods are away already, since it is not Ready.
func hasRelapsed(scope *Scope, slot v1alpha1.Slot, node *Node) bool {
	return isUnwell(scope, slot, node) && node.runs(slot.Image) && mayRollBack(scope) && !isWithdrawn(scope, slot)
}

// isUnwell says whether a node in its soak is not Ready and had its time to be:
// since it went down, or, where it comes and goes, since its soak should be over.
func isUnwell(scope *Scope, slot v1alpha1.Slot, node *Node) bool {
	if slot.Phase != v1alpha1.SlotSoaking || node.isReady() {
		return false
	}
	down := slot.Since.Time
	if changed := node.readyCondition().LastTransitionTime.Time; changed.After(down) {
		down = changed
	}
	deadline := rollbackDeadline(scope)
	return scope.Now.Sub(down) >= deadline || scope.Now.Sub(slot.Since.Time) >= duration(scope.Rollout.Spec.Soak, 0)+deadline
}

func soakLeft(scope *Scope, slot v1alpha1.Slot, node *Node) time.Duration {
	begin := slot.Since.Time
	if ready := node.readyCondition().LastTransitionTime.Time; ready.After(begin) {
		begin = ready
	}
	return begin.Add(duration(scope.Rollout.Spec.Soak, 0)).Sub(scope.Now)
}

// isOverdue says whether a drain or a reboot takes longer than the rollout allows.
func isOverdue(scope *Scope, slot v1alpha1.Slot) bool {
	elapsed := scope.Now.Sub(slot.Since.Time)
	switch slot.Phase {
	case v1alpha1.SlotDraining:
		return elapsed >= drainTimeout(scope)
	case v1alpha1.SlotBooting, v1alpha1.SlotRollingBack:
		return elapsed >= rebootTimeout(scope)
	}
	return false
}

// isPastRollbackDeadline says whether the node had its time to be well on the
// image, since it was told to boot it or was put back into service.
func isPastRollbackDeadline(scope *Scope, slot v1alpha1.Slot) bool {
	return scope.Now.Sub(slot.Since.Time) >= rollbackDeadline(scope)
}

func mayRollBack(scope *Scope) bool {
	enabled := scope.Rollout.Spec.Rollback.Enabled
	return enabled == nil || *enabled
}

func rollbackDeadline(scope *Scope) time.Duration {
	return duration(scope.Rollout.Spec.Rollback.Deadline, defaultRollbackDeadline)
}

func drainTimeout(scope *Scope) time.Duration {
	return duration(scope.Rollout.Spec.Drain.Timeout, defaultDrainTimeout)
}

func rebootTimeout(scope *Scope) time.Duration {
	return duration(scope.Rollout.Spec.Reboot.Timeout, defaultRebootTimeout)
}

func duration(value *metav1.Duration, otherwise time.Duration) time.Duration {
	if value == nil {
		return otherwise
	}
	return value.Duration
}

// agentState is what the agent says about the boot, for a message.
func agentState(node *Node) string {
	if node.Image == nil || !node.isCurrent() {
		return "no report from this boot"
	}
	for _, kind := range []string{v1alpha1.ConditionRollbackReady, v1alpha1.ConditionBooted} {
		if found := meta.FindStatusCondition(node.Image.Status.Conditions, kind); found != nil {
			return found.Reason + " " + found.Message
		}
	}
	return "no report"
}
