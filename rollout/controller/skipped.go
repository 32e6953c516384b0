package controller

import (
	"slices"
	"strings"
	"time"

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

// skippedNodes names them for a condition, without those that are tried again by now.
func skippedNodes(s *Scope, slots []v1alpha1.Slot) string {
	var names []string
	for _, skipped := range s.Rollout.Status.Skipped {
		if slices.ContainsFunc(slots, func(slot v1alpha1.Slot) bool { return slot.NodeUID == skipped.NodeUID }) {
			continue
		}
		why := skipped.Message
		if until := leftAloneUntil(s, skipped); s.Now.Before(until) {
			why = strings.TrimPrefix(why+", ", ", ") + "is left alone until " + until.UTC().Format(time.RFC3339)
		}
		names = append(names, aboutNode(skipped.Node, skipped.Time.Time, why))
	}
	return list(names)
}

// leftAloneUntil is when the node may be tried again: in a maintenance window, where
// there are any.
func leftAloneUntil(s *Scope, skipped v1alpha1.SkippedNode) time.Time {
	until := skipped.Time.Add(drainTimeout(s))
	from := s.Now
	if until.After(from) {
		from = until
	}
	if windows, err := lookAtWindows(s.Rollout.Spec.Windows, from); err == nil && !windows.isOpen && !windows.next.IsZero() {
		return windows.next
	}
	return until
}
