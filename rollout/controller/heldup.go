package controller

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/imagemode/imagemode/api/v1alpha1"
)

// heldUpAfter is how long an agent may wait for something on its node before nobody
// waits for that node any more: a pull secret takes a minute or two to arrive.
const heldUpAfter = 5 * time.Minute

// reasonBusy is the agent's word for a bootc that does not answer.
const reasonBusy = "HostBusy"

// waits are the agent's words for a wait that may last for ever without being a failure.
var waits = []string{reasonBusy, "WaitingForSecret"}

// isUnmanageable says whether the agent has found that bootc cannot update the host.
func (n *Node) isUnmanageable() bool {
	return n.Image != nil && meta.IsStatusConditionFalse(n.Image.Status.Conditions, v1alpha1.ConditionManageable)
}

// isBusy says whether bootc did not answer the agent when it last looked.
func (n *Node) isBusy() bool {
	return n.Image != nil && n.reason(v1alpha1.ConditionBooted) == reasonBusy
}

// waiting is what the agent of a node without a slot waits for, and since when; nil:
// nothing. An agent that waits reports no more, so that its last report is the time.
func waiting(scope *Scope, node *Node) *metav1.Condition {
	if scope.isIndexed && node.isKnown() {
		return node.known.waits
	}
	if node.Image == nil || !node.isCurrent() || !node.isReady() || scope.slot(node.Node) != nil {
		return nil
	}
	found := meta.FindStatusCondition(node.Image.Status.Conditions, v1alpha1.ConditionBooted)
	if found == nil || found.Status == metav1.ConditionTrue || !slices.Contains(waits, found.Reason) {
		return nil
	}
	answer := *found
	if last := writtenBy(node.Image, agentManager); last.After(answer.LastTransitionTime.Time) {
		answer.LastTransitionTime = metav1.NewTime(last)
	}
	return &answer
}

// heldUpDue is when nobody will wait for the node any more; zero: its agent waits for
// nothing.
func heldUpDue(scope *Scope, node *Node) time.Time {
	if found := waiting(scope, node); found != nil {
		return found.LastTransitionTime.Add(heldUpAfter)
	}
	return time.Time{}
}

// isHeldUp says whether nothing is to be expected of the node until somebody sees to
// it: it holds neither a token to download nor its zone back.
func (s *Scope) isHeldUp(node *Node) bool {
	due := heldUpDue(s, node)
	return node.isUnmanageable() || (!due.IsZero() && !s.Now.Before(due))
}

// heldUpNodes names those that wait; those that are not manageable are named by that.
func heldUpNodes(scope *Scope, _ []v1alpha1.Slot) string {
	var names []string
	for _, node := range scope.selected() {
		if node.isUnmanageable() || !scope.isHeldUp(node) {
			continue
		}
		found := waiting(scope, node)
		names = append(names, aboutNode(node.Name, found.LastTransitionTime.Time, found.Reason+", "+found.Message))
	}
	return list(names)
}

// isKeptFromReboot says whether the node is Ready in the boot that it had when it was told
// to boot the image: what holds it back, or that its agent is gone, is not the image's
// fault, which nobody has tried.
func isKeptFromReboot(slot v1alpha1.Slot, node *Node) bool {
	return !hasRebooted(slot, node) && node.isReady()
}
