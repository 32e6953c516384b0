package controller

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/imagemode/imagemode/api/v1alpha1"
)

// stillSkipped are the entries of status.skipped that still mean something: the
// node is there, and does not run the image that it was to boot.
func stillSkipped(s *Scope) []v1alpha1.SkippedNode {
	return slices.DeleteFunc(slices.Clone(s.Rollout.Status.Skipped), func(skipped v1alpha1.SkippedNode) bool {
		node := s.node(v1alpha1.Slot{Node: skipped.Node, NodeUID: skipped.NodeUID})
		return node == nil || !node.IsSelected || skipped.Image != s.target() || node.runs(skipped.Image)
	})
}

// withSkipped adds the node of a slot, or renews its entry.
func withSkipped(entries []v1alpha1.SkippedNode, s *Scope, slot v1alpha1.Slot, result outcome) []v1alpha1.SkippedNode {
	entries = slices.DeleteFunc(entries, func(skipped v1alpha1.SkippedNode) bool { return skipped.Node == slot.Node })
	return append(entries, v1alpha1.SkippedNode{
		Node: slot.Node, NodeUID: slot.NodeUID, Image: slot.Image, Message: clip(result.blocked), Time: metav1.NewTime(s.Now),
	})
}

// skippedNodes names them for a condition.
func skippedNodes(s *Scope, _ []v1alpha1.Slot) string {
	var names []string
	for _, skipped := range s.Rollout.Status.Skipped {
		names = append(names, aboutNode(skipped.Node, skipped.Time.Time, skipped.Message))
	}
	return list(names)
}
