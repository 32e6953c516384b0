package controller

import (
	"errors"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/imagemode/imagemode/api/v1alpha1"
)

// Assignment is what every node is to do.
type Assignment struct {
	// Images is the spec that each node's NodeImage is to have. A node that is
	// not in it is left alone.
	Images map[string]v1alpha1.NodeImageSpec
	// Released are nodes whose NodeImage is to be removed: the rollout has
	// nothing to do with them any more.
	Released []string
}

// Schedule is who gets a slot.
type Schedule struct {
	// Grants are the slots to give now.
	Grants []v1alpha1.Slot
	// Asked are the nodes, by name, that will get one when their agents have answered,
	// now or soon: nothing was heard of them lately.
	Asked map[string]bool
	// Held is why no slot is given to anyone (reason, message), or empty.
	Held Hold
}

// Hold is a reason that holds the whole rollout back.
type Hold struct {
	Reason, Message string
}

// hold is one line of the specification: a non-empty reason holds.
type hold struct {
	name   string
	reason func(*Scope) Hold
}

// holdRules hold back the granting of slots, in order; the first that answers
// is shown.
var holdRules = []hold{
	// Nobody knows which nodes are meant.
	{"selector", func(s *Scope) Hold {
		if s.SelectorProblem != "" && s.Rollout.DeletionTimestamp == nil {
			return Hold{"InvalidSelector", s.SelectorProblem}
		}
		return Hold{}
	}},
	// Without an image there is nothing to do, and a deleted rollout only ends.
	{"no image", func(s *Scope) Hold {
		if s.target() == "" {
			return Hold{"NoImage", "there is no image yet: spec.image is empty"}
		}
		return Hold{}
	}},
	// Mistakes are told at once, and not when a pause or a window ends.
	{"mistakes", holdForMistakes},
	// Pause gates new slots only: a node on its way finishes.
	{"paused", func(s *Scope) Hold {
		if s.Rollout.Spec.Paused {
			return Hold{"Paused", "spec.paused holds the rollout back: set it to false to go on; that of a pool's rollout follows the MachineConfigPool's"}
		}
		return Hold{}
	}},
	// Somebody else drains and reboots.
	{"stage only", func(s *Scope) Hold {
		if s.Rollout.Spec.Mode == v1alpha1.RolloutModeStageOnly {
			return Hold{"StageOnly", "spec.mode is StageOnly: cordon, drain and reboot are left to others"}
		}
		return Hold{}
	}},
	// The failure budget is spent: the next node would most likely fail, too.
	{"rejected", holdWhenRejected},
	// Outside of maintenance windows nothing begins.
	{"window", holdOutsideWindows},
	// Only the canary nodes, then nobody until they have soaked.
	{"canary", holdForCanary},
	// etcd keeps its quorum.
	{"control plane", holdForControlPlane},
}

// holdForMistakes names the first field that makes no sense, though the API takes it.
func holdForMistakes(s *Scope) Hold {
	for _, check := range mistakeRules {
		if held := check(s); held.Reason != "" {
			return held
		}
	}
	return Hold{}
}

// mistakeRules: one for each field.
var mistakeRules = []func(*Scope) Hold{
	// Nobody could tell whether a node does well on the image.
	func(s *Scope) Hold { return heldBy(reasonInvalidGate, s.gateProblem()) },
	func(s *Scope) Hold {
		windows, err := lookAtWindows(s.Rollout.Spec.Windows, s.Now)
		if err == nil && !windows.isOpen && windows.next.IsZero() {
			err = errors.New("none of spec.windows ever opens")
		}
		return heldByError("InvalidWindow", err)
	},
	func(s *Scope) Hold {
		_, err := canaries(s)
		return heldByError("InvalidCanary", err)
	},
	func(s *Scope) Hold {
		_, err := skipSelector(s.Rollout.Spec.Drain)
		return heldByError("InvalidDrain", err)
	},
}

func heldBy(reason, problem string) Hold {
	if problem == "" {
		return Hold{}
	}
	return Hold{reason, problem}
}

func heldByError(reason string, err error) Hold {
	if err == nil {
		return Hold{}
	}
	return Hold{reason, err.Error()}
}

// mistakesOf are all reasons to hold that somebody has to mend in the spec, also those
// that another hides, or that matter only when there is an image.
func mistakesOf(s *Scope) []Hold {
	found := []Hold{heldBy("InvalidSelector", s.SelectorProblem)}
	for _, check := range mistakeRules {
		found = append(found, check(s))
	}
	held := holdForCanary(s)
	if _, err := canaries(s); err == nil && held.Reason == "NoCanary" {
		found = append(found, held)
	}
	return found
}

// candidateRule is a condition that a node must meet to be given a slot.
type candidateRule struct {
	name string
	met  func(*turn, *Node) bool
}

// candidateRules: a node gets a slot only if it meets all of them.
var candidateRules = []candidateRule{
	// One slot per node, and none for a node that has arrived.
	{"has no slot", func(s *turn, n *Node) bool { return s.slot(n.Node) == nil }},
	{"is not updated", func(s *turn, n *Node) bool { return !n.runs(s.target()) }},
	// The agent was told to stage this image, under this retry token.
	{"is assigned", func(s *turn, n *Node) bool {
		return n.belongsTo(s.Rollout.Name) && n.Image.Spec.DesiredImage == s.target() && n.Image.Spec.RetryToken == s.Rollout.Spec.RetryToken
	}},
	// A report from before the last reboot says nothing about this boot.
	{"reports this boot", func(_ *turn, n *Node) bool { return n.isCurrent() }},
	// What it runs now becomes the image to go back to; without it there is none.
	{"can go back", func(_ *turn, n *Node) bool {
		return n.Image.Status.Booted != nil && n.Image.Status.Booted.Digest != ""
	}},
	// The pull happened before, so that the node is away for the reboot only.
	{"is staged", func(s *turn, n *Node) bool { return n.hasStaged(s.target()) }},
	{"did not fail", func(s *turn, n *Node) bool { return n.failure(s.target(), s.Rollout.Spec.RetryToken) == nil }},
	// A node that is down may not come back from a reboot.
	{"is Ready", func(_ *turn, n *Node) bool { return n.isReady() }},
	// Its drain would be in vain: bootc refuses to boot anything else, or hangs.
	{"can be updated", func(_ *turn, n *Node) bool { return !n.isUnmanageable() && !n.isBusy() }},
	// Its drain would be in vain: nobody is there to boot it.
	{"its agent answers", func(s *turn, n *Node) bool { return !s.isSilent(n) }},
	// Its drain took too long a short while ago: others go first.
	{"was not skipped", func(s *turn, n *Node) bool { return !s.wasSkipped(n) }},
	// Canary nodes first, zone after zone, one of the control plane at a time.
	{"is its turn", func(s *turn, n *Node) bool { return s.isUp(n) }},
}

// assign decides what every node is to do. It is pure.
func assign(scope *Scope) Assignment {
	answer := Assignment{Images: restored(scope, assignImages(scope))}
	for i := range scope.Nodes {
		if node := &scope.Nodes[i]; !node.IsSelected && scope.slot(node.Node) == nil && node.belongsTo(scope.Rollout.Name) {
			answer.Released = append(answer.Released, node.Name)
		}
	}
	return answer
}

// schedule decides who gets a slot. It is pure.
func schedule(scope *Scope) Schedule {
	for _, rule := range holdRules {
		if held := rule.reason(scope); held.Reason != "" {
			return Schedule{Held: held}
		}
	}
	return grantSlots(scope)
}

// grantSlots gives slots to candidates, as many as may be out of service. Nodes
// that are out of service already come first: they cost nothing more. A node that is
// asked keeps its place meanwhile.
func grantSlots(scope *Scope) Schedule {
	allowed, held := maxUnavailable(scope), len(scope.Rollout.Status.Slots)
	out := outOfService(scope)
	turn := newTurn(scope)
	answer := Schedule{Asked: map[string]bool{}}
	toCome := candidates(turn, out)
	for i, node := range toCome {
		isOut := out[node.Name]
		if held >= allowed || (!isOut && len(out) >= allowed) || len(answer.Grants)+len(answer.Asked) >= maxGrants {
			askAhead(scope, toCome[i:], &answer)
			break
		}
		if !turn.isUp(node) {
			continue // the grants before have changed that
		}
		held++
		out[node.Name] = true
		turn.take(node)
		if !scope.isHeardOf(node) {
			answer.Asked[node.Name] = true
			continue
		}
		answer.Grants = append(answer.Grants, newSlot(scope, node))
	}
	return answer
}

// maxAhead is how many nodes are asked before there is a place for them, so that it does
// not wait for their answers: about what one second frees where thousands of nodes are
// updated.
const maxAhead = 2 * maxGrants

// askAhead asks those that come next, unless nothing has moved for so long that they
// would be asked again before their turn: no more than one change of all slots takes.
func askAhead(scope *Scope, next []*Node, answer *Schedule) {
	hasMoved := slices.ContainsFunc(scope.Rollout.Status.Slots, func(slot v1alpha1.Slot) bool { return scope.Now.Sub(slot.Since.Time) < heardFor })
	if !hasMoved {
		return
	}
	for _, node := range next[:min(len(next), maxAhead, maxUnavailable(scope))] {
		if !scope.isHeardOf(node) {
			answer.Asked[node.Name] = true
		}
	}
}

func newSlot(scope *Scope, node *Node) v1alpha1.Slot {
	return v1alpha1.Slot{
		Node: node.Name, NodeUID: string(node.UID), Image: scope.target(),
		BootID: node.Status.NodeInfo.BootID, SoftReboots: node.Image.Status.SoftReboots,
		WasUnschedulable: node.Spec.Unschedulable && !isCordonedByUs(node.Node),
		Phase:            v1alpha1.SlotDraining, Since: metav1.NewTime(scope.Now),
	}
}

// candidates are in the order in which they get slots: those that are out of
// service already, the others by age, and those that were skipped before.
func candidates(turn *turn, out map[string]bool) []*Node {
	var first, rest, last []*Node
	for _, node := range turn.selected() {
		isBarred := slices.ContainsFunc(candidateRules, func(rule candidateRule) bool { return !rule.met(turn, node) })
		switch {
		case isBarred:
		case slices.ContainsFunc(turn.Rollout.Status.Skipped, func(s v1alpha1.SkippedNode) bool { return s.NodeUID == string(node.UID) }):
			last = append(last, node)
		case out[node.Name]:
			first = append(first, node)
		default:
			rest = append(rest, node)
		}
	}
	return slices.Concat(first, rest, last)
}

// outOfService are the nodes that the workload has to do without: down,
// cordoned by anyone, or in a slot.
func outOfService(scope *Scope) map[string]bool {
	out := map[string]bool{}
	for _, node := range scope.selected() {
		if node.isUnavailable() {
			out[node.Name] = true
		}
	}
	for _, slot := range scope.Rollout.Status.Slots {
		out[slot.Node] = true
	}
	return out
}

// maxUnavailable is spec.maxUnavailable as a number of nodes: a percentage is
// rounded down, and the answer is at least 1, or a rollout of two nodes at 10 %
// would never move.
func maxUnavailable(scope *Scope) int {
	value := scope.Rollout.Spec.MaxUnavailable
	if value == nil {
		return 1
	}
	number, err := intstr.GetScaledValueFromIntOrPercent(value, len(scope.selected()), false)
	if err != nil { // refused by the API's validation
		return 1
	}
	return max(number, 1)
}
