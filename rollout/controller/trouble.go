package controller

import (
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/imagemode/imagemode/api/v1alpha1"
)

// stubbornFailures is from how many failed tries in a row on a node is shown:
// fewer are a registry that restarts.
const stubbornFailures = 3

// trouble is what somebody has to look at.
type trouble struct {
	reason string
	// what names the objects, each with since when and why; empty: nothing.
	what func(*Scope, []v1alpha1.Slot) string
	// advice is what an administrator can do.
	advice string
}

// troubles, the gravest first: Degraded has the reason of one, and names the others.
var troubles = []trouble{
	// Nodes wait for the gate that is wrong, and are named as overdue for it.
	mistake(reasonInvalidGate),
	{"PullSecretMissing", func(s *Scope, _ []v1alpha1.Slot) string { return s.Problem },
		"no further node downloads the image until it is there"},
	{"WriteRefused", refusedWrites,
		"tried again by itself: see to the rights of the controller, or to the policy, webhook or quota that the message names"},
	{"ImageRejected", func(s *Scope, _ []v1alpha1.Slot) string { return whyRejected(s) }, rejectedAdvice},
	{"RecallUnconfirmed", unconfirmedSlots, adviceRecall},
	{"RebootTimeout", overdue(v1alpha1.SlotBooting),
		"it keeps its slot: look at its console, or delete the Node if it is gone for good"},
	{"RollbackTimeout", overdue(v1alpha1.SlotRollingBack),
		"it keeps its slot: look at its console, boot the image before by hand, or delete the Node if it is gone for good"},
	{"NodeNotReady", downInSoak,
		"it keeps its slot: bring it back, or delete the Node if it is gone for good"},
	// Nothing begins, and no node is away for it.
	mistake("InvalidSelector"),
	mistake("InvalidWindow"),
	mistake("InvalidCanary"),
	mistake("NoCanary"),
	mistake("InvalidDrain"),
	{"NodeFailed", func(s *Scope, _ []v1alpha1.Slot) string { return nameFailures(failedNodes(s)) },
		"see status.failedImages of the NodeImages; another spec.retryToken tries again"},
	{"DrainBlocked", overdue(v1alpha1.SlotDraining),
		"the drain goes on: let the pods and volumes go, or set another spec.drain.onTimeout"},
	{"DrainSkipped", skippedNodes,
		"tried again after the others: see to it that what the messages name may go"},
	{"NodeConflict", conflicts,
		"change spec.nodeSelector of one of the two"},
	{"AgentSilent", silentAgents,
		"nothing is done on the node, and one in a slot stays in it: see whether the pod of DaemonSet imagemode-agent, or the service imagemode-agent, runs on it, or delete the Node if it is gone for good"},
	{"StagingFailing", stagingFailures,
		"tried again by itself, see the NodeImages for when: see to what the messages name"},
	{"NotManageable", reported(v1alpha1.ConditionManageable, metav1.ConditionFalse),
		"the node is left as it is"},
	{"NodeHeldUp", heldUpNodes,
		"it goes on by itself, and the others do not wait for it: see to what the messages name"},
	{"RollbackNotReady", reported(v1alpha1.ConditionRollbackReady, metav1.ConditionFalse),
		"the node stays on the image, also if it does not do well: set another image if it has to leave it"},
	{"LiveTooLarge", func(s *Scope, _ []v1alpha1.Slot) string { return notBrought(s.live().tooLarge) },
		"the nodes keep what they have: make it smaller"},
	{"LiveInvalid", func(s *Scope, _ []v1alpha1.Slot) string { return notBrought(s.live().invalid) },
		"the nodes keep what they have: mend it; that of a pool comes from its MachineConfigs and the site's trust bundle"},
	{"LiveFailed", reported(v1alpha1.ConditionLiveFailed, metav1.ConditionTrue),
		"tried again by itself: mend spec.live or the node"},
	{"NodeDrifted", reported(v1alpha1.ConditionDrifted, metav1.ConditionTrue),
		"put the files right, or set spec.drift to Correct"},
	{"RivalUpdater", reported(v1alpha1.ConditionRivalUpdater, metav1.ConditionTrue),
		"what they do to a node they do without a drain"},
	{"LowDiskSpace", reported(v1alpha1.ConditionLowDiskSpace, metav1.ConditionTrue),
		"make room on the node"},
}

// mistake is what the rollout's spec says that makes no sense; the message names the
// field, which is the advice.
func mistake(reason string) trouble {
	return trouble{reason, func(s *Scope, _ []v1alpha1.Slot) string {
		if s.Rollout.DeletionTimestamp != nil {
			return ""
		}
		for _, held := range mistakesOf(s) {
			if held.Reason == reason {
				return held.Message
			}
		}
		return ""
	}, "nothing begins until it is put right"}
}

// degradedCondition has the gravest trouble, and the reasons of the others.
func degradedCondition(scope *Scope, slots []v1alpha1.Slot) metav1.Condition {
	kind := v1alpha1.ConditionDegraded
	var gravest *trouble
	var message string
	var also []string
	for i := range troubles {
		found := troubles[i].what(scope, slots)
		switch {
		case found == "":
		case gravest == nil:
			gravest, message = &troubles[i], found
		default:
			also = append(also, troubles[i].reason)
		}
	}
	if gravest == nil {
		return condition(kind, false, "AsExpected", "")
	}
	advice := gravest.advice
	if len(also) > 0 {
		advice += "; also: " + strings.Join(also, ", ")
	}
	return condition(kind, true, gravest.reason, advise(message, advice))
}

// overdue names the nodes that are in a phase for too long.
func overdue(phase v1alpha1.SlotPhase) func(*Scope, []v1alpha1.Slot) string {
	return func(scope *Scope, slots []v1alpha1.Slot) string {
		var names []string
		for _, slot := range slots {
			node := scope.node(slot)
			isToldElsewhere := node != nil && (scope.isSilent(node) || isUpAfterRecall(scope, slot, node))
			if slot.Phase == phase && isOverdue(scope, slot) && !isToldElsewhere {
				names = append(names, aboutNode(slot.Node, slot.Since.Time, slot.Message))
			}
		}
		return list(names)
	}
}

// downInSoak names the nodes that went down after they were put back into service, and
// hold their slot although nobody asks any more how they do: others are told as failed.
func downInSoak(scope *Scope, slots []v1alpha1.Slot) string {
	var names []string
	for _, slot := range slots {
		if node := scope.node(slot); node != nil && isWithdrawn(scope, slot) && isUnwell(scope, slot, node) {
			ready := node.readyCondition()
			names = append(names, aboutNode(slot.Node, ready.LastTransitionTime.Time, "not Ready: "+ready.Message))
		}
	}
	return list(names)
}

// conflicts leaves out nodes that another rollout only brings to an end.
func conflicts(scope *Scope, _ []v1alpha1.Slot) string {
	var names []string
	for _, node := range scope.Nodes {
		if node.IsSelected && node.Claimant != "" && !node.isEnding {
			names = append(names, fmt.Sprintf("%s belongs to ImageRollout %s", node.Name, node.Claimant))
		}
	}
	return list(names)
}

func stagingFailures(scope *Scope, _ []v1alpha1.Slot) string {
	var names []string
	for _, node := range scope.selected() {
		if !node.isStuckStaging(scope.target()) {
			continue
		}
		last := node.Image.Status.LastAttempt
		names = append(names, aboutNode(node.Name, failingSince(node), fmt.Sprintf("%s, %s", last.Class, last.Message)))
	}
	return list(names)
}

// failingSince is when the node stopped to have what it is to stage. That may have been
// with an image before: then it is when the node was told of this one, or of something
// else since.
func failingSince(node *Node) time.Time {
	last := node.Image.Status.LastAttempt.Time.Time
	staged := meta.FindStatusCondition(node.Image.Status.Conditions, v1alpha1.ConditionStaged)
	if staged == nil {
		return last
	}
	since := staged.LastTransitionTime.Time
	if told := writtenBy(node.Image, string(fieldOwner)); told.After(since) {
		since = told
	}
	if last.Before(since) {
		return last
	}
	return since
}

// notBrought says why nothing of spec.live is brought to the nodes.
func notBrought(problem error) string {
	if problem == nil {
		return ""
	}
	return "spec.live is not brought to the nodes: " + problem.Error()
}

// reported names the nodes whose agent reports a condition of that status, each
// with the agent's words.
func reported(kind string, status metav1.ConditionStatus) func(*Scope, []v1alpha1.Slot) string {
	return func(scope *Scope, _ []v1alpha1.Slot) string {
		var names []string
		for _, node := range scope.selected() {
			if node.Image == nil {
				continue
			}
			if found := meta.FindStatusCondition(node.Image.Status.Conditions, kind); found != nil && found.Status == status {
				names = append(names, aboutNode(node.Name, found.LastTransitionTime.Time, found.Message))
			}
		}
		return list(names)
	}
}
