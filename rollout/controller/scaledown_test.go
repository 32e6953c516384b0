package controller

import (
	"maps"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/imagemode/imagemode/api/v1alpha1"
)

func TestWhatKeepsANodeFromScaleDown(t *testing.T) {
	const autoscaler, karpenter = "cluster-autoscaler.kubernetes.io/scale-down-disabled", "karpenter.sh/do-not-disrupt"
	for name, test := range map[string]struct {
		before, kept map[string]string
		isExcluded   bool
	}{
		"nothing is set": {
			map[string]string{},
			map[string]string{autoscaler: "true", karpenter: "true", annotationKept: autoscaler + "," + karpenter + "," + labelExcluded},
			false,
		},
		"an administrator keeps it, too": {
			map[string]string{autoscaler: "true"},
			map[string]string{autoscaler: "true", karpenter: "true", annotationKept: karpenter + "," + labelExcluded},
			false,
		},
		"an administrator has said both": {
			map[string]string{autoscaler: "false", karpenter: "true"},
			map[string]string{autoscaler: "false", karpenter: "true", annotationKept: labelExcluded},
			false,
		},
		"an administrator has said all": {
			map[string]string{autoscaler: "false", karpenter: "true"},
			map[string]string{autoscaler: "false", karpenter: "true"},
			true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Annotations: maps.Clone(test.before)}}
			if test.isExcluded {
				node.Labels = map[string]string{labelExcluded: "x"}
			}
			labels := maps.Clone(node.Labels)
			for range 2 { // cordoned again after somebody uncordoned it
				keepFromScaleDown(node)
				if diff := cmp.Diff(test.kept, node.Annotations); diff != "" {
					t.Errorf("while it is away (-want +got):\n%s", diff)
				}
				if _, isExcluded := node.Labels[labelExcluded]; !isExcluded {
					t.Error("load balancers still send to it")
				}
			}
			letScaleDown(node)
			if diff := cmp.Diff(test.before, node.Annotations); diff != "" {
				t.Errorf("afterwards (-want +got):\n%s", diff)
			}
			if !maps.Equal(labels, node.Labels) {
				t.Errorf("afterwards it has the labels %v", node.Labels)
			}
		})
	}
}

// TestANodeInASlotIsKeptFromScaleDown: from the cordon's write to the uncordon's,
// and no longer.
func TestANodeInASlotIsKeptFromScaleDown(t *testing.T) {
	c := newCluster(t, 2)
	c.to(imageB)
	away := 0
	for range 60 {
		c.rounds(1)
		for name := range c.machines {
			node := c.node(name)
			isKept := node.Annotations[scaleDownKeys[0]] == "true" && node.Annotations[scaleDownKeys[1]] == "true"
			if _, isExcluded := node.Labels[labelExcluded]; isExcluded != isKept {
				t.Fatalf("%s: kept %t, labels %v", name, isKept, node.Labels)
			}
			if isKept != node.Spec.Unschedulable {
				t.Fatalf("%s: cordoned %t, kept %v", name, node.Spec.Unschedulable, node.Annotations)
			}
			if isKept {
				away++
			}
		}
	}
	c.expectUpdated(imageB)
	if away == 0 {
		t.Error("no node was away")
	}
	if slots := c.rollout().Status.Slots; len(slots) != 0 {
		t.Errorf("slots %v", slots)
	}
}

// A node that an administrator has cordoned is drained for its update like any other, and
// looks as idle: it is kept as long, in as many writes. The cordon stays.
func TestACordonedNodeInASlotIsKeptFromScaleDown(t *testing.T) {
	writes := func(isCordoned bool) int {
		c := newCluster(t, 2)
		c.changeRollout(func(s *v1alpha1.ImageRolloutSpec) { s.MaxUnavailable = new(intstr.FromInt32(2)) })
		c.settle()
		if isCordoned {
			c.administer("worker-1", true)
		}
		before, wasKept := c.writes, false
		c.to(imageB)
		for range 60 {
			c.rounds(1)
			node := c.node("worker-1")
			_, isMarked := node.Annotations[annotationCordoned]
			if isCordoned && (!node.Spec.Unschedulable || isMarked) {
				t.Fatalf("the administrator's cordon is gone or ours: %v", node.Annotations)
			}
			isInSlot := false
			for _, slot := range c.rollout().Status.Slots {
				isInSlot = isInSlot || slot.Node == "worker-1" && slot.Phase == v1alpha1.SlotBooting
			}
			if isInSlot && !isKept(node) {
				t.Fatalf("in its slot it has %v", node.Annotations)
			}
			wasKept = wasKept || isInSlot
		}
		c.expectUpdated(imageB)
		if node := c.node("worker-1"); len(node.Annotations) > 0 || !wasKept {
			t.Errorf("kept %t, afterwards %v", wasKept, node.Annotations)
		}
		return c.writes - before
	}
	usual, cordoned := writes(false), writes(true)
	t.Logf("%d writes for two nodes, %d with one that is cordoned", usual, cordoned)
	if cordoned > usual {
		t.Errorf("%d writes for a cordoned node and another, %d for two", cordoned, usual)
	}
}

// TestNodesThatComeLaterAreNotUpdated: an autoscaler makes nodes of the image that
// its machines are made from.
func TestNodesThatComeLaterAreNotUpdated(t *testing.T) {
	c := newCluster(t, 2)
	c.to(imageB)
	c.settle()
	c.expectUpdated(imageB)
	c.addNode()
	c.rounds(1)
	if counts := c.rollout().Status.Nodes; counts.Total != 3 || counts.Updated != 2 {
		t.Errorf("with a new node %+v", counts)
	}
	c.settle()
	c.expectUpdated(imageB)
	if counts := c.rollout().Status.Nodes; counts.Total != 3 || counts.Updated != 3 {
		t.Errorf("in the end %+v", counts)
	}
}
