package controller

import (
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/imagemode/imagemode/api/v1alpha1"
)

// Schedule is the answer to a scope.
type Schedule struct {
	// Images is the spec that each node's NodeImage is to have. A node that is
	// not in it is left alone.
	Images map[string]v1alpha1.NodeImageSpec
	// Released are nodes whose NodeImage is to be removed: the rollout has
	// nothing to do with them any more.
	Released []string
	// Grants are the slots to give now.
	Grants []v1alpha1.Slot
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

// holds back the granting of slots, in order; the first that answers is shown.
// Canary, windows, gates and zones will be further lines.
var holdRules = []hold{
	// Without an image there is nothing to do, and a deleted rollout only ends.
	{"no image", func(s *Scope) Hold {
		if s.target() == "" {
			return Hold{"NoImage", "there is no image yet"}
		}
		return Hold{}
	}},
	// Pause gates new slots only: a node on its way finishes.
	{"paused", func(s *Scope) Hold {
		if s.Rollout.Spec.Paused {
			return Hold{"Paused", "spec.paused holds the rollout back"}
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
	// One node that the image does not work on is enough to stop: the next
	// would most likely fail the same way.
	{"failure budget", holdAfterFailure},
}

func holdAfterFailure(s *Scope) Hold {
	var names []string
	for _, node := range s.selected() {
		if failure := node.failure(s.target(), s.Rollout.Spec.RetryToken); failure != nil {
			names = append(names, fmt.Sprintf("%s (%s)", node.Name, failure.Class))
		}
	}
	if len(names) == 0 {
		return Hold{}
	}
	return Hold{"NodeFailed", "stopped because the image failed on " + list(names) + "; set another image, or another spec.retryToken to try again"}
}

// candidateRule is a condition that a node must meet to be given a slot.
type candidateRule struct {
	name string
	met  func(*Scope, *Node) bool
}

// candidateRules: a node gets a slot only if it meets all of them.
var candidateRules = []candidateRule{
	// One slot per node, and none for a node that has arrived.
	{"has no slot", func(s *Scope, n *Node) bool { return s.slot(n.Node) == nil }},
	{"is not updated", func(s *Scope, n *Node) bool { return !n.runs(s.target()) }},
	// The agent was told to stage this image, under this retry token.
	{"is assigned", func(s *Scope, n *Node) bool {
		return n.Image != nil && n.Image.Spec.Rollout == s.Rollout.Name && n.Image.Spec.DesiredImage == s.target() && n.Image.Spec.RetryToken == s.Rollout.Spec.RetryToken
	}},
	// A report from before the last reboot says nothing about this boot.
	{"reports this boot", func(_ *Scope, n *Node) bool { return n.isCurrent() }},
	// What it runs now becomes the image to go back to; without it there is none.
	{"can go back", func(_ *Scope, n *Node) bool {
		return n.Image.Status.Booted != nil && n.Image.Status.Booted.Digest != ""
	}},
	// The pull happened before, so that the node is away for the reboot only.
	{"is staged", func(s *Scope, n *Node) bool { return n.hasStaged(s.target()) }},
	{"did not fail", func(s *Scope, n *Node) bool { return n.failure(s.target(), s.Rollout.Spec.RetryToken) == nil }},
	// A node that is down may not come back from a reboot.
	{"is Ready", func(_ *Scope, n *Node) bool { return n.isReady() }},
}

// schedule decides what every node is to do and who gets a slot. It is pure.
func schedule(scope *Scope) Schedule {
	answer := Schedule{Images: assignImages(scope)}
	for i := range scope.Nodes {
		if node := &scope.Nodes[i]; !node.IsSelected && scope.slot(node.Node) == nil && node.Image != nil && node.Image.Spec.Rollout == scope.Rollout.Name {
			answer.Released = append(answer.Released, node.Name)
		}
	}
	for _, rule := range holdRules {
		if answer.Held = rule.reason(scope); answer.Held.Reason != "" {
			return answer
		}
	}
	answer.Grants = grantSlots(scope)
	return answer
}

// grantSlots gives slots to candidates, as many as may be out of service. Nodes
// that are out of service already come first: they cost nothing more.
func grantSlots(scope *Scope) []v1alpha1.Slot {
	allowed := maxUnavailable(scope)
	out := outOfService(scope)
	held := len(scope.Rollout.Status.Slots)
	var grants []v1alpha1.Slot
	for _, node := range candidates(scope, out) {
		isOut := out[node.Name]
		if held >= allowed || (!isOut && len(out) >= allowed) {
			break
		}
		held++
		out[node.Name] = true
		grants = append(grants, newSlot(scope, node))
	}
	return grants
}

func newSlot(scope *Scope, node *Node) v1alpha1.Slot {
	return v1alpha1.Slot{
		Node: node.Name, NodeUID: string(node.UID), Image: scope.target(), BootID: node.Status.NodeInfo.BootID,
		WasUnschedulable: node.Spec.Unschedulable && !isCordonedByUs(node.Node),
		Phase:            v1alpha1.SlotCordoning, Since: metav1.NewTime(scope.Now),
	}
}

func candidates(scope *Scope, out map[string]bool) []*Node {
	var first, rest []*Node
	for _, node := range scope.selected() {
		isBarred := slices.ContainsFunc(candidateRules, func(rule candidateRule) bool { return !rule.met(scope, node) })
		switch {
		case isBarred:
		case out[node.Name]:
			first = append(first, node)
		default:
			rest = append(rest, node)
		}
	}
	return append(first, rest...)
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

// defaultConcurrentStaging stands in where the field was never defaulted.
const defaultConcurrentStaging = 10

// assignImages says what each node's NodeImage is to be.
func assignImages(scope *Scope) map[string]v1alpha1.NodeImageSpec {
	images := map[string]v1alpha1.NodeImageSpec{}
	tokens := stagingTokens(scope)
	for i := range scope.Nodes {
		node := &scope.Nodes[i]
		slot := scope.slot(node.Node)
		if slot == nil && (!node.IsSelected || node.Claimant != "") {
			continue
		}
		spec := heldSpec(scope, node)
		switch {
		case slot != nil && slot.Phase == v1alpha1.SlotBooting && slot.Image == scope.target():
			spec.DesiredImage, spec.Phase = slot.Image, v1alpha1.PhaseBooted
		case !mayStage(scope):
		case spec.DesiredImage == scope.target() && spec.Phase == v1alpha1.PhaseStaged:
		case node.runs(scope.target()):
			spec.DesiredImage, spec.Phase = scope.target(), v1alpha1.PhaseStaged
		case tokens > 0:
			tokens--
			spec.DesiredImage, spec.Phase = scope.target(), v1alpha1.PhaseStaged
		}
		images[node.Name] = spec
	}
	return images
}

// heldSpec is the node's present assignment without the right to boot: that
// goes with the phase Booting of a slot, and ends with it.
func heldSpec(scope *Scope, node *Node) v1alpha1.NodeImageSpec {
	spec := v1alpha1.NodeImageSpec{Phase: v1alpha1.PhaseIdle}
	if node.Image != nil && node.Image.Spec.DesiredImage != "" {
		spec.DesiredImage, spec.Phase = node.Image.Spec.DesiredImage, node.Image.Spec.Phase
		if spec.Phase == v1alpha1.PhaseBooted {
			spec.Phase = v1alpha1.PhaseStaged
		}
	}
	if scope.Problem == "" {
		spec.PullSecretHash = scope.PullSecretHash
	} else if node.Image != nil {
		spec.PullSecretHash = node.Image.Spec.PullSecretHash
	}
	spec.Rollout = scope.Rollout.Name
	spec.RetryToken = scope.Rollout.Spec.RetryToken
	return spec
}

// mayStage says whether nodes may be told to download the image.
func mayStage(scope *Scope) bool {
	isPaused := scope.Rollout.Spec.Paused && scope.Rollout.Spec.Mode != v1alpha1.RolloutModeStageOnly
	return scope.target() != "" && !isPaused && scope.Problem == ""
}

// stagingTokens is how many more nodes may start to download. Nodes that are
// down, or on which the image failed, do not hold a token for ever.
func stagingTokens(scope *Scope) int {
	tokens := int(scope.Rollout.Spec.MaxConcurrentStaging)
	if tokens == 0 {
		tokens = defaultConcurrentStaging
	}
	for _, node := range scope.selected() {
		isAssigned := node.Image != nil && node.Image.Spec.DesiredImage == scope.target() && node.Image.Spec.Phase != v1alpha1.PhaseIdle
		isDone := node.runs(scope.target()) || node.hasStaged(scope.target()) || node.failure(scope.target(), scope.Rollout.Spec.RetryToken) != nil
		if isAssigned && !isDone && node.isReady() {
			tokens--
		}
	}
	return max(tokens, 0)
}
