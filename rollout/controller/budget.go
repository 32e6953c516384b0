package controller

import (
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/imagemode/imagemode/api/v1alpha1"
)

const (
	// defaultBudgetPercent and defaultBudgetNodes are the failure budget where
	// the rollout names none: the larger of the two.
	defaultBudgetPercent = 10
	defaultBudgetNodes   = 2
	// maxDetailBytes is how much of what a slot says is told of each node that failed.
	maxDetailBytes = 200
	// maxRejected is the limit of status.rejected in the API.
	maxRejected = 16
)

// hopeless are the failures that no other node would be spared: the image
// itself is the cause.
var hopeless = []v1alpha1.FailureClass{v1alpha1.FailureSignature, v1alpha1.FailureImageInvalid}

// nodeFailure is one node that the image does not work on.
type nodeFailure struct {
	// detail is what the node's slot says; empty where the agent's report does.
	node, why, detail string
	since             metav1.Time
	// isHopeless: one such node is enough.
	isHopeless bool
}

// failedNodes are the nodes that count against the failure budget: each once,
// whatever it reports. A registry that does not answer is not the image's fault.
func failedNodes(s *Scope) []nodeFailure {
	if s.isIndexed {
		return s.failed
	}
	var failed []nodeFailure
	for _, node := range s.selected() {
		if failure := node.failure(s.target(), s.Rollout.Spec.RetryToken); failure != nil {
			failed = append(failed, nodeFailure{
				node: node.Name, why: string(failure.Class), since: failure.Time, isHopeless: slices.Contains(hopeless, failure.Class),
			})
		} else if why := slotFailure(s, node); why != "" {
			slot := s.slot(node.Node)
			failed = append(failed, nodeFailure{node: node.Name, why: why, detail: strings.TrimPrefix(slot.Message, goingBack), since: slot.Since})
		}
	}
	return failed
}

// slotFailure is what the controller itself sees of a node that does not do well.
func slotFailure(s *Scope, node *Node) string {
	slot := s.slot(node.Node)
	if slot == nil || isWithdrawn(s, *slot) {
		return ""
	}
	switch {
	case slot.Phase == v1alpha1.SlotRollingBack:
		return "RollingBack"
	case slot.Phase == v1alpha1.SlotBooting && isOverdue(s, *slot) && !node.isUpdated(slot.Image) && !isKeptFromReboot(*slot, node):
		return "RebootTimeout"
	case slot.Phase == v1alpha1.SlotBooting && hasMissedGate(s, *slot, node):
		return "GateNotMet"
	case isUnwell(s, *slot, node):
		return "NotReady"
	}
	return ""
}

// isProven says whether the image has shown on a node that it works: from there
// on a failure may be that node's own.
func isProven(s *Scope) bool {
	if s.Rollout.Spec.Canary != nil {
		return isCanaryDone(s)
	}
	return slices.ContainsFunc(s.selected(), func(n *Node) bool {
		return n.isUpdated(s.target()) && s.slot(n.Node) == nil
	})
}

// failureBudget is on how many nodes the image may fail before it is rejected.
func failureBudget(s *Scope) int {
	if !isProven(s) {
		return 1
	}
	nodes := len(s.selected())
	if s.Rollout.Spec.FailureBudget == nil {
		return max(nodes*defaultBudgetPercent/100, defaultBudgetNodes)
	}
	budget, err := intstr.GetScaledValueFromIntOrPercent(s.Rollout.Spec.FailureBudget, nodes, false)
	if err != nil { // refused by the API's validation
		return 1
	}
	return max(budget, 1)
}

// isBudgetSpent says whether the failures are enough to reject the image.
func isBudgetSpent(s *Scope, failed []nodeFailure) bool {
	return len(failed) >= failureBudget(s) || slices.ContainsFunc(failed, func(f nodeFailure) bool { return f.isHopeless })
}

// rejection is the entry of the rollout's image, nil when it is not rejected
// under the present retry token.
func rejection(s *Scope) *v1alpha1.RejectedImage {
	_, digest, _ := strings.Cut(s.target(), "@")
	for i := range s.Rollout.Status.Rejected {
		if entry := &s.Rollout.Status.Rejected[i]; digest != "" && entry.Digest == digest && entry.RetryToken == s.Rollout.Spec.RetryToken {
			return entry
		}
	}
	return nil
}

// rejected is status.rejected, with the image when its budget is spent now. An
// entry stays: a node that is replaced takes its failure along.
func rejected(s *Scope) []v1alpha1.RejectedImage {
	entries := s.Rollout.Status.Rejected
	failed := failedNodes(s)
	if rejection(s) != nil || s.target() == "" || !isBudgetSpent(s, failed) {
		return entries
	}
	_, digest, _ := strings.Cut(s.target(), "@")
	entries = append(slices.Clone(entries), v1alpha1.RejectedImage{
		Digest: digest, RetryToken: s.Rollout.Spec.RetryToken, Nodes: int32(len(failed)),
		Reason: clip("it failed on " + nameFailures(failed)), Time: metav1.NewTime(s.Now),
	})
	return entries[max(len(entries)-maxRejected, 0):]
}

const rejectedAdvice = "no further node gets it: set another image, or another spec.retryToken to try again"

// holdWhenRejected stops at the budget, also before the rejection is written.
func holdWhenRejected(s *Scope) Hold {
	why := whyRejected(s)
	if why == "" {
		return Hold{}
	}
	return Hold{"ImageRejected", advise(why, rejectedAdvice)}
}

func whyRejected(s *Scope) string {
	reason := ""
	if entry := rejection(s); entry != nil {
		reason = entry.Reason
	} else if failed := failedNodes(s); isBudgetSpent(s, failed) {
		reason = "it failed on " + nameFailures(failed)
	}
	if reason == "" {
		return ""
	}
	_, digest, _ := strings.Cut(s.target(), "@")
	return "image " + digest + ": " + reason
}

func nameFailures(failed []nodeFailure) string {
	var names []string
	for _, failure := range failed {
		why := failure.why
		if failure.detail != "" {
			why += ": " + cutTo(failure.detail, maxDetailBytes)
		}
		names = append(names, fmt.Sprintf("%s (%s, since %s)", failure.node, why, failure.since.UTC().Format(time.RFC3339)))
	}
	return list(names)
}
