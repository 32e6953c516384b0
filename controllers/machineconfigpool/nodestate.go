package machineconfigpool

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/imagemode/imagemode/api/v1alpha1"
)

// nodeState is what the pool's status says about one node.
type nodeState struct {
	name string
	// isUpdated: booted into the image that carries the current rendered config.
	isUpdated bool
	// isReady: updated, Ready and schedulable.
	isReady bool
	// isUnavailable: not Ready, not schedulable, or in a slot of the rollout.
	isUnavailable bool
	// leftover is the rendered config in the image that the node still runs while
	// its pool has none for it; empty: none is known.
	leftover string
	// failure is why the node does not get its image; empty: nothing is wrong.
	failure string
}

// minFailures is how often in a row an image must fail on a node, for a reason
// that may pass, before the pool calls the node degraded: one registry
// hiccup must not make a condition flap.
const minFailures = 3

// stateOf judges one node. image is its NodeImage and may be nil, rollout is the
// pool's and may be nil.
func stateOf(node *corev1.Node, image *v1alpha1.NodeImage, rollout *v1alpha1.ImageRollout, target target) nodeState {
	state := nodeState{name: node.Name}
	isServing := isNodeReady(node) && !node.Spec.Unschedulable
	state.isUnavailable = !isServing || hasSlot(rollout, node.Name)
	if image == nil {
		return state
	}
	if image.Status.Booted != nil {
		state.isUpdated = target.carries(image.Status.Booted.Digest)
	}
	state.isReady = state.isUpdated && isServing
	state.failure = failureOf(image, rollout)
	return state
}

func isNodeReady(node *corev1.Node) bool {
	return slices.ContainsFunc(node.Status.Conditions, func(condition corev1.NodeCondition) bool {
		return condition.Type == corev1.NodeReady && condition.Status == corev1.ConditionTrue
	})
}

func hasSlot(rollout *v1alpha1.ImageRollout, node string) bool {
	return rollout != nil && slices.ContainsFunc(rollout.Status.Slots, func(slot v1alpha1.Slot) bool { return slot.Node == node })
}

// failureOf says why a node cannot get the image of its rollout. Without a
// rollout nothing is asked of the node, so nothing is wrong with it.
func failureOf(image *v1alpha1.NodeImage, rollout *v1alpha1.ImageRollout) string {
	if rollout == nil || rollout.Spec.Image == "" {
		return ""
	}
	if condition := meta.FindStatusCondition(image.Status.Conditions, v1alpha1.ConditionManageable); condition != nil && condition.Status == "False" {
		return condition.Message
	}
	for _, kind := range []string{v1alpha1.ConditionDrifted, v1alpha1.ConditionLiveFailed} {
		if condition := meta.FindStatusCondition(image.Status.Conditions, kind); condition != nil && condition.Status == "True" {
			return condition.Message
		}
	}
	attempt := image.Status.LastAttempt
	if attempt == nil || attempt.Class == "" || attempt.Image != rollout.Spec.Image {
		return ""
	}
	if !attempt.Permanent && attempt.Failures < minFailures {
		return ""
	}
	return strings.TrimSuffix(string(attempt.Class)+": "+attempt.Message, ": ")
}

// counts are the numbers of a pool's status.
type counts struct {
	total, updated, ready, unavailable, degraded int32
}

func countNodes(states []nodeState) counts {
	c := counts{total: int32(len(states))}
	for _, state := range states {
		c.updated += one(state.isUpdated)
		c.ready += one(state.isReady)
		c.unavailable += one(state.isUnavailable)
		c.degraded += one(state.failure != "")
	}
	return c
}

func one(fact bool) int32 {
	if fact {
		return 1
	}
	return 0
}

// isDone: every node runs the image and serves.
func (c counts) isDone() bool {
	return c.updated == c.total && c.ready == c.total && c.unavailable == 0
}

// isStuck: every node that is not done is degraded, so nothing moves.
func (c counts) isStuck() bool {
	return c.degraded > 0 && c.updated+c.degraded >= c.total
}
