package controller

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// maxKubeletBytes is how much of what a kubelet says a message repeats for each node.
const maxKubeletBytes = 120

// stall is what a rollout waits for that does not end by itself, though no rule holds
// it back.
type stall struct {
	reason string
	// nodes are those that somebody has to see to, each with since when and why.
	nodes []string
	// about comes before the nodes, advice after them.
	about, advice string
}

// stalls, the most telling first: the first that names a node is shown.
var stalls = []func(*Scope) stall{
	// All others wait for them.
	func(s *Scope) stall {
		return stall{"CanaryNotReady", namesOf(firstToCome(s), isDown), "the canary nodes come first",
			"bring it back, or change spec.canary"}
	},
	// One at a time, and one is away already.
	func(s *Scope) stall {
		return stall{"ControlPlaneCordoned", cordonedControlPlane(s), "nodes of the control plane go one at a time and wait",
			"uncordon it"}
	},
	// A node that is down may not come back from a reboot.
	func(s *Scope) stall {
		return stall{"NodesNotReady", onlyDown(s), "none that is left to update is Ready",
			"bring it back, or delete the Node if it is gone for good"}
	},
	// What is out of service already is all that may be.
	func(s *Scope) stall {
		return stall{"MaxUnavailableUsedUp", usedUp(s),
			fmt.Sprintf("no further node is taken out of service, for as many as spec.maxUnavailable allows (%d) are already", maxUnavailable(s)),
			"bring it back, uncordon it, or raise spec.maxUnavailable"}
	},
}

// stallOf is nil when the rollout goes on by itself.
func stallOf(s *Scope) *stall {
	for _, find := range stalls {
		if found := find(s); len(found.nodes) > 0 {
			return &found
		}
	}
	return nil
}

// message ends with what can be done.
func (s stall) message(progress string) string {
	return advise(progress+"; "+s.about+": "+list(s.nodes), s.advice)
}

func isDown(node *Node) bool { return !node.isReady() }

// namesOf says of the nodes that are so why they are out of service, and since when.
func namesOf(nodes []*Node, isSo func(*Node) bool) []string {
	var names []string
	for _, node := range nodes {
		if isSo(node) {
			names = append(names, whyOut(node.Node))
		}
	}
	return names
}

// whyOut: since when a node is cordoned is known where the cluster taints it for that.
func whyOut(object *corev1.Node) string {
	node := &Node{Node: object}
	if ready := node.readyCondition(); !node.isReady() {
		why := "not Ready"
		if ready.Message != "" {
			why += " (" + cutTo(oneLine(ready.Message), maxKubeletBytes) + ")"
		}
		return aboutNode(node.Name, ready.LastTransitionTime.Time, why)
	}
	var since time.Time
	for _, taint := range node.Spec.Taints {
		if taint.Key == corev1.TaintNodeUnschedulable && taint.TimeAdded != nil {
			since = taint.TimeAdded.Time
		}
	}
	return aboutNode(node.Name, since, "cordoned")
}

// cordonedControlPlane names the nodes of the control plane that somebody has cordoned
// while another one waits for its turn.
func cordonedControlPlane(s *Scope) []string {
	isWaiting := func(other *corev1.Node) bool {
		return slices.ContainsFunc(s.selected(), func(n *Node) bool {
			return n.UID != other.UID && isControlPlane(n.Node) && !n.runs(s.target())
		})
	}
	var names []string
	for _, node := range s.Cluster.ControlPlane {
		if node.Spec.Unschedulable && !isCordonedByUs(node) && !s.Cluster.InSlots[node.UID] && s.slot(node) == nil && isWaiting(node) {
			names = append(names, whyOut(node))
		}
	}
	return names
}

// onlyDown names the nodes that are left, if none of them is Ready.
func onlyDown(s *Scope) []string {
	left := slices.DeleteFunc(slices.Clone(s.selected()), func(n *Node) bool { return n.runs(s.target()) && n.isReady() })
	if slices.ContainsFunc(left, (*Node).isReady) {
		return nil
	}
	return namesOf(left, isDown)
}

// usedUp names the nodes that are out of service without us, when no further one may be.
func usedUp(s *Scope) []string {
	if len(outOfService(s)) < maxUnavailable(s) || slices.ContainsFunc(s.selected(), func(n *Node) bool { return isCordonedByUs(n.Node) }) {
		return nil
	}
	return namesOf(s.selected(), (*Node).isUnavailable)
}

// isMoving says whether something changes without anybody's doing.
func isMoving(s *Scope) bool { return slices.ContainsFunc(s.selected(), s.isAboutToStage) }
