package controller

import (
	"github.com/imagemode/imagemode/api/v1alpha1"
)

const (
	// defaultConcurrentStaging stands in where the field was never defaulted.
	defaultConcurrentStaging = 10
	// maxAssignments is how many nodes one pass tells to download: orders to boot
	// do not wait for hundreds of them.
	maxAssignments = 50
)

// assignImages says what each node's NodeImage is to be.
func assignImages(scope *Scope) map[string]v1alpha1.NodeImageSpec {
	images := make(map[string]v1alpha1.NodeImageSpec, len(scope.Nodes))
	tokens := stagingTokens(scope)
	asked := schedule(scope).Asked
	for i := range scope.Nodes {
		node := &scope.Nodes[i]
		slot := scope.slot(node.Node)
		if slot == nil && !node.counts() {
			continue
		}
		spec := heldSpec(scope, node)
		if asked[node.Name] && node.Image.Status.ObservedGeneration == node.Image.Generation {
			spec.ReportRequests++
		}
		switch {
		case slot != nil && isOrdered(scope, *slot, node):
			order(scope, &spec, *slot)
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

// isOrdered says whether the slot allows a reboot, or keeps its order for as
// long as the image is not confirmed: the order ends with the slot, and at once
// when the node is back on the image before.
func isOrdered(scope *Scope, slot v1alpha1.Slot, node *Node) bool {
	if isWithdrawn(scope, slot) {
		return false
	}
	switch slot.Phase {
	case v1alpha1.SlotBooting, v1alpha1.SlotRollingBack:
		return true
	case v1alpha1.SlotSoaking:
		isOld := node.isCurrent() && !node.runs(slot.Image)
		return node.Image != nil && node.Image.Spec.Phase == v1alpha1.PhaseBooted && !isOld
	}
	return false
}

// order writes the order of the slot into the spec.
func order(scope *Scope, spec *v1alpha1.NodeImageSpec, slot v1alpha1.Slot) {
	spec.DesiredImage, spec.Phase = slot.Image, v1alpha1.PhaseBooted
	if slot.Phase == v1alpha1.SlotRollingBack {
		spec.Phase = v1alpha1.PhaseRolledBack
		return
	}
	spec.AllowSoftReboot = scope.Rollout.Spec.Reboot.Policy == v1alpha1.RebootSoftIfCapable
	if mayRollBack(scope) {
		// The soak comes on top: the image is confirmed after it.
		spec.RollbackAfterSeconds = int64((rollbackDeadline(scope) + duration(scope.Rollout.Spec.Soak, 0)).Seconds())
	}
}

// heldSpec is the node's present assignment without the right to boot: that
// goes with the phase Booting of a slot, and ends with it.
func heldSpec(scope *Scope, node *Node) v1alpha1.NodeImageSpec {
	spec := v1alpha1.NodeImageSpec{Phase: v1alpha1.PhaseIdle}
	if node.Image != nil && node.Image.Spec.DesiredImage != "" {
		spec.DesiredImage, spec.Phase = node.Image.Spec.DesiredImage, node.Image.Spec.Phase
		if spec.Phase != v1alpha1.PhaseIdle {
			spec.Phase = v1alpha1.PhaseStaged
		}
	}
	if scope.Problem == "" {
		spec.PullSecretHash = scope.PullSecretHash
	} else if node.Image != nil {
		spec.PullSecretHash = node.Image.Spec.PullSecretHash
	}
	if node.Image != nil {
		spec.ReportRequests = node.Image.Spec.ReportRequests
	}
	spec.Rollout = scope.Rollout.Name
	spec.RetryToken = scope.Rollout.Spec.RetryToken
	spec.LiveHash = liveHash(scope, node)
	spec.CorrectDrift = scope.Rollout.Spec.Drift == v1alpha1.DriftCorrect
	return spec
}

// liveHash names the live content that a node is to have: under pause, and while
// it is too large to be sent or makes no sense, what it was told before.
func liveHash(scope *Scope, node *Node) string {
	hash, err := scope.live().told()
	if (err != nil || scope.Rollout.Spec.Paused) && node.Image != nil {
		return node.Image.Spec.LiveHash
	}
	return hash
}

// mayStage says whether nodes may be told to download the image.
func mayStage(scope *Scope) bool {
	isPaused := scope.Rollout.Spec.Paused && scope.Rollout.Spec.Mode != v1alpha1.RolloutModeStageOnly
	return scope.target() != "" && !isPaused && scope.Problem == "" && scope.SelectorProblem == ""
}

// stagingTokens is how many more nodes may start to download. Nodes that are
// down, silent or held up, or on which the image fails, do not hold a token for ever.
func stagingTokens(scope *Scope) int {
	tokens := int(scope.Rollout.Spec.MaxConcurrentStaging)
	if tokens == 0 {
		tokens = defaultConcurrentStaging
	}
	for _, node := range scope.selected() {
		isAssigned := node.Image != nil && node.Image.Spec.DesiredImage == scope.target() && node.Image.Spec.Phase != v1alpha1.PhaseIdle
		if isAssigned && scope.isAboutToStage(node) {
			tokens--
		}
	}
	return min(max(tokens, 0), maxAssignments)
}

// isAboutToStage says whether the node can be expected to hold the image soon.
func (s *Scope) isAboutToStage(node *Node) bool {
	isDone := node.runs(s.target()) || node.hasStaged(s.target()) || node.isStuckStaging(s.target()) ||
		node.failure(s.target(), s.Rollout.Spec.RetryToken) != nil
	return !isDone && node.isReady() && !s.isSilent(node) && !s.isHeldUp(node)
}
