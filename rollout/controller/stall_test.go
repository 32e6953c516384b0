package controller

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/imagemode/imagemode/api/v1alpha1"
)

// cordonedAt is cordoned where the cluster taints nodes for it.
func cordonedAt(at time.Time) func(*Node) {
	return func(n *Node) {
		cordoned(n)
		time := metav1.NewTime(at)
		n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule, TimeAdded: &time})
	}
}

func progressOf(scope *Scope) metav1.Condition {
	answer := schedule(scope)
	return progressingCondition(scope, countNodes(scope), append(scope.Rollout.Status.Slots, answer.Grants...), answer.Held)
}

// TestWhatARolloutWaitsForForEver is told at once with since when and what can be done,
// and does not pass for progress unless other nodes still download.
func TestWhatARolloutWaitsForForEver(t *testing.T) {
	const sinceReady, sinceCordon = "worker-1 since 2026-05-01T11:00:00Z: not Ready", "worker-1 since 2026-05-01T11:30:00Z: cordoned"
	byTaint := cordonedAt(start.Add(-30 * time.Minute))
	saysWhy := func(n *Node) { n.Status.Conditions[0].Message = "Kubelet stopped posting\nnode status." }
	for name, test := range map[string]struct {
		scope  *Scope
		status string
		reason string
		names  []string
	}{
		"a canary node that is not Ready": {newScope([]Node{newNode(1, notReady, saysWhy), newNode(2)}, canaryNodes(1, 0)),
			"False", "CanaryNotReady", []string{"the canary nodes come first: " + sinceReady + " (Kubelet stopped posting node status.)", "; bring it back, or change spec.canary"}},
		"the same while another downloads": {newScope([]Node{newNode(1, notReady), newNode(2), newNode(3, notStaged)}, canaryNodes(1, 0)),
			"True", "CanaryNotReady", []string{sinceReady}},
		"the same before any has it": {newScope([]Node{newNode(1, notReady, notStaged), newNode(2, notStaged)}, canaryNodes(1, 0)),
			"True", "Staging", []string{sinceReady, "change spec.canary"}},
		"a cordoned canary node takes its turn": {newScope([]Node{newNode(1, byTaint), newNode(2)}, canaryNodes(1, 0)),
			"True", "Updating", []string{"worker-1 Draining"}},
		"a cordon that uses up maxUnavailable": {newScope([]Node{newNode(1, updated, byTaint), newNode(2)}),
			"False", "MaxUnavailableUsedUp", []string{sinceCordon, "spec.maxUnavailable allows (1)", "; bring it back, uncordon it, or raise spec.maxUnavailable"}},
		"one of which nobody knows since when": {newScope([]Node{newNode(1, updated, cordoned), newNode(2)}),
			"False", "MaxUnavailableUsedUp", []string{"already: worker-1: cordoned; "}},
		"one that is within what is allowed": {newScope([]Node{newNode(1, updated, cordoned), newNode(2)}, allowing("2")),
			"True", "Updating", []string{"worker-2 Draining"}},
		"our own cordon, which is about to go": {newScope([]Node{newNode(1, updated, cordoned, func(n *Node) { n.Annotations = map[string]string{annotationCordoned: "worker"} }), newNode(2)}),
			"True", "Updating", nil},
		"nodes that are not Ready are all that is left": {newScope([]Node{newNode(1, notReady), newNode(2, updated), newNode(3, updated)}, allowing("3")),
			"False", "NodesNotReady", []string{sinceReady, "; bring it back, or delete the Node"}},
		"the only node is not Ready and never had it": {newScope([]Node{newNode(1, notReady, notStaged)}, allowing("3")),
			"False", "NodesNotReady", []string{sinceReady}},
		"another node of the control plane is cordoned": {newScope([]Node{newNode(2, controlPlane)}, allowing("3"), ofControlPlane(newNode(1, controlPlane, byTaint))),
			"False", "ControlPlaneCordoned", []string{"go one at a time and wait: " + sinceCordon, "; uncordon it"}},
		"another of it has a slot of another rollout": {newScope([]Node{newNode(2, controlPlane)}, allowing("3"), ofControlPlane(newNode(1, controlPlane, cordoned)), func(s *Scope) { s.Cluster.InSlots = map[types.UID]bool{"worker-1-uid": true} }),
			"True", "Updating", []string{"wait for worker-1, in a slot of another ImageRollout"}},
		"it is cordoned itself, and may go": {newScope([]Node{newNode(1, controlPlane, cordoned)}, allowing("3"), ofControlPlane(newNode(1, controlPlane, cordoned))),
			"True", "Updating", []string{"worker-1 Draining"}},
		"none of it has anything to come": {newScope([]Node{newNode(2, controlPlane, updated), newNode(3)}, allowing("3"), ofControlPlane(newNode(1, controlPlane, cordoned))),
			"True", "Updating", []string{"worker-3 Draining"}},
		"all of it is in service": {newScope([]Node{newNode(2, controlPlane)}, allowing("3"), ofControlPlane(newNode(1, controlPlane))),
			"True", "Updating", []string{"worker-2 Draining"}},
		"another node of the control plane is not Ready": {newScope([]Node{newNode(2, controlPlane)}, allowing("3"), ofControlPlane(newNode(1, controlPlane, notReady))),
			"False", "ControlPlaneNotReady", []string{sinceReady, "; bring it back"}},
	} {
		t.Run(name, func(t *testing.T) {
			got := progressOf(test.scope)
			if string(got.Status) != test.status || got.Reason != test.reason {
				t.Errorf("Progressing is %s, %s: %s", got.Status, got.Reason, got.Message)
			}
			for _, want := range test.names {
				if !strings.Contains(got.Message, want) {
					t.Errorf("%q does not say %q", got.Message, want)
				}
			}
		})
	}
}

// TestManyNodesThatAreOutLeaveRoomForTheAdvice, in a message that the API takes.
func TestManyNodesThatAreOutLeaveRoomForTheAdvice(t *testing.T) {
	var nodes []Node
	for i := range 20 {
		nodes = append(nodes, newNode(i, notReady, func(n *Node) { n.Status.Conditions[0].Message = strings.Repeat("x", 500) }))
	}
	got := progressOf(newScope(nodes))
	if len(got.Message) > maxMessageBytes || !strings.HasSuffix(got.Message, "if it is gone for good") {
		t.Errorf("%d bytes: %s", len(got.Message), got.Message)
	}
}

// TestAStallEndsByItself: on a cluster, from a canary node that goes down to the end.
func TestAStallEndsByItself(t *testing.T) {
	c := newCluster(t, 3)
	c.to(imageA)
	c.settle()
	c.ail("worker-1", true)
	c.changeRollout(func(s *v1alpha1.ImageRolloutSpec) {
		s.Canary, s.Image = &v1alpha1.CanarySpec{Nodes: new(int32(1))}, imageB
	})
	c.rounds(5)
	want := func(what string) {
		t.Helper()
		for _, found := range c.rollout().Status.Conditions {
			if got := fmt.Sprintf("%s %s", found.Status, found.Reason); found.Type == v1alpha1.ConditionProgressing && got != what {
				t.Errorf("Progressing is %s, want %s: %s", got, what, found.Message)
			}
		}
	}
	want("False CanaryNotReady")
	c.ail("worker-1", false)
	c.settle()
	want("False Updated")
}
