package controller

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"pgregory.net/rapid"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/imagemode/imagemode/api/v1alpha1"
)

// snapshot is what the invariants compare before and after a write.
type snapshot struct {
	rollout *v1alpha1.ImageRollout
	nodes   map[string]corev1.Node
}

func (c *cluster) snapshot() snapshot {
	nodes := &corev1.NodeList{}
	if err := c.client.List(context.Background(), nodes); err != nil {
		c.t.Fatalf("%v", err)
	}
	s := snapshot{nodes: map[string]corev1.Node{}, rollout: &v1alpha1.ImageRollout{}}
	for _, node := range nodes.Items {
		s.nodes[node.Name] = node
	}
	if err := c.client.Get(context.Background(), types.NamespacedName{Name: "worker"}, s.rollout); err != nil {
		s.rollout = nil // deleted
	}
	return s
}

// check holds the invariants over one write of the controller.
func (c *cluster) check(before snapshot) {
	c.t.Helper()
	after := c.snapshot()
	if before.rollout == nil || after.rollout == nil {
		return
	}
	allowed := c.allowed(len(after.nodes))
	held := map[string]bool{}
	for _, slot := range before.rollout.Status.Slots {
		held[slot.NodeUID] = true
	}
	if slots := len(after.rollout.Status.Slots); slots > allowed && slots > len(before.rollout.Status.Slots) {
		c.t.Fatalf("%d slots, %d allowed", slots, allowed)
	}
	for _, slot := range after.rollout.Status.Slots {
		if !held[slot.NodeUID] {
			c.checkGrant(slot, after)
		}
	}
	for name, node := range after.nodes {
		c.checkCordon(before.nodes[name], node, held[string(node.UID)])
	}
}

func (c *cluster) allowed(nodes int) int {
	value := c.rollout().Spec.MaxUnavailable
	if value == nil {
		return 1
	}
	number, err := intstr.GetScaledValueFromIntOrPercent(value, nodes, false)
	if err != nil {
		c.t.Fatalf("%v", err)
	}
	return max(number, 1)
}

// checkGrant: a slot is given only to a node that is staged, Ready and well,
// and never while the rollout is paused or the image has failed somewhere.
func (c *cluster) checkGrant(slot v1alpha1.Slot, after snapshot) {
	c.t.Helper()
	m := c.machines[slot.Node]
	switch {
	case after.rollout.Spec.Paused:
		c.t.Fatalf("%s got a slot while paused", slot.Node)
	case m.staged != slot.Image || slot.Image != after.rollout.Spec.Image:
		c.t.Fatalf("%s got a slot for %s with %q staged", slot.Node, slot.Image, m.staged)
	case m.hasFailed(slot.Image, after.rollout.Spec.RetryToken):
		c.t.Fatalf("%s got a slot for an image that failed on it under the same token", slot.Node)
	case m.isDown, m.isIll:
		c.t.Fatalf("%s got a slot though it is not Ready", slot.Node)
	}
	c.checkBudget(slot, after.rollout)
	if len(after.rollout.Spec.Windows) > 0 {
		c.t.Fatalf("%s got a slot outside of the maintenance window", slot.Node)
	}
	for _, other := range after.rollout.Status.Slots {
		node, isThere := after.nodes[other.Node]
		if isThere && string(node.UID) == other.NodeUID && node.Labels[corev1.LabelTopologyZone] != after.nodes[slot.Node].Labels[corev1.LabelTopologyZone] {
			c.t.Fatalf("slots in two zones: %+v", after.rollout.Status.Slots)
		}
	}
	out := 0
	for name, node := range after.nodes {
		inSlot := slices.ContainsFunc(after.rollout.Status.Slots, func(s v1alpha1.Slot) bool { return s.Node == name })
		if inSlot || node.Spec.Unschedulable || c.machines[name].isDown || c.machines[name].isIll {
			out++
		}
	}
	wasOut := after.nodes[slot.Node].Spec.Unschedulable
	if out > c.allowed(len(after.nodes)) && !wasOut {
		c.t.Fatalf("%s got a slot with %d nodes out of service", slot.Node, out)
	}
}

// checkBudget: no slot for an image that was rejected, or that has failed on as
// many nodes as the rollout allows; on one at all, before it has proven itself.
func (c *cluster) checkBudget(slot v1alpha1.Slot, rollout *v1alpha1.ImageRollout) {
	c.t.Helper()
	failed, proven := 0, rollout.Status.Canary != nil && rollout.Status.Canary.Image == slot.Image
	for name, m := range c.machines {
		image := c.image(name)
		if image == nil || image.Status.LastAttempt == nil || m.failed == nil {
			proven = proven || (m.booted == slot.Image && name != slot.Node)
			continue
		}
		if m.failed.Image == slot.Image && m.failed.RetryToken == rollout.Spec.RetryToken && m.booted != slot.Image && image.Spec.Rollout == "worker" {
			failed++
		}
		proven = proven || (m.booted == slot.Image && name != slot.Node)
	}
	budget := 2
	if rollout.Spec.FailureBudget != nil {
		budget = rollout.Spec.FailureBudget.IntValue()
	}
	if failed > 0 && (!proven || failed >= budget) {
		c.t.Fatalf("%s got a slot though the image failed on %d nodes, budget %d, proven %t", slot.Node, failed, budget, proven)
	}
	for _, entry := range rollout.Status.Rejected {
		if entry.Digest == digestOf(slot.Image) && entry.RetryToken == rollout.Spec.RetryToken {
			c.t.Fatalf("%s got a slot for an image that was rejected", slot.Node)
		}
	}
}

// checkCordon: no node is cordoned without a slot that was written before, and
// none is uncordoned that an administrator had cordoned.
func (c *cluster) checkCordon(before, after corev1.Node, hadSlot bool) {
	c.t.Helper()
	switch {
	case before.UID != after.UID:
	case !before.Spec.Unschedulable && after.Spec.Unschedulable && !hadSlot && !c.isRaced: // see Add
		c.t.Fatalf("%s was cordoned without a slot", after.Name)
	case before.Spec.Unschedulable && !after.Spec.Unschedulable && c.machines[after.Name].admin:
		c.t.Fatalf("%s was uncordoned against the administrator", after.Name)
	}
}

// checkReboot: no node reboots unless it has a slot in phase Booting, or
// RollingBack when it goes back.
func (c *cluster) checkReboot(name, image string) {
	c.t.Helper()
	node := c.node(name)
	for _, slot := range c.rollout().Status.Slots {
		isOrdered := slot.Phase == v1alpha1.SlotBooting && slot.Image == image
		isOrdered = isOrdered || slot.Phase == v1alpha1.SlotRollingBack && image == c.machines[name].previous
		if slot.NodeUID == string(node.UID) && isOrdered {
			if !node.Spec.Unschedulable && !c.machines[name].meddled && len(c.machines) > 1 {
				c.t.Fatalf("%s reboots without being cordoned", name)
			}
			pod := client.ObjectKey{Namespace: "default", Name: "pod-" + name}
			if err := c.client.Get(context.Background(), pod, &corev1.Pod{}); err == nil && slot.Phase == v1alpha1.SlotBooting && !c.machines[name].wasAlone && len(c.machines) > 1 {
				c.t.Fatalf("%s reboots with its pod on it", name)
			}
			return
		}
	}
	c.t.Fatalf("%s reboots into %s without a slot: %+v", name, image, c.rollout().Status.Slots)
}

// expectUpdated: everything has arrived and is back in service.
func (c *cluster) expectUpdated(image string) {
	c.t.Helper()
	rollout := c.rollout()
	if len(rollout.Status.Slots) != 0 || len(rollout.Finalizers) != 0 || int(rollout.Status.Nodes.Updated) != len(c.machines) {
		c.t.Fatalf("at the end: %+v, finalizers %v", rollout.Status, rollout.Finalizers)
	}
	for name, m := range c.machines {
		node := c.node(name)
		if m.booted != image || node.Spec.Unschedulable != m.admin {
			c.t.Fatalf("%s runs %s, unschedulable %t (administrator: %t)", name, m.booted, node.Spec.Unschedulable, m.admin)
		}
		if _, isMarked := node.Annotations[annotationCordoned]; isMarked {
			c.t.Fatalf("%s keeps the mark of our cordon", name)
		}
	}
}

// closedWindow opens on New Year's Eve; the model begins in May and does not get
// that far.
var closedWindow = []v1alpha1.MaintenanceWindow{{Cron: "0 0 31 12 *", Duration: metav1.Duration{Duration: time.Minute}}}

// isRare is for what holds rollouts up: were each of many such things true half of
// the time, no image would ever get anywhere.
func isRare(t *rapid.T, what string) bool { return rapid.IntRange(0, 5).Draw(t, what) == 0 }

// TestModel makes random steps of users, machines and time, with the controller
// ended at random writes; the invariants hold after every write, and when the
// trouble ends every node arrives.
func TestModel(t *testing.T) {
	steps := 0
	rapid.Check(t, func(t *rapid.T) {
		c := newCluster(t, rapid.IntRange(1, 4).Draw(t, "nodes"))
		pick := func(t *rapid.T) string {
			return rapid.SampledFrom(slices.Sorted(maps.Keys(c.machines))).Draw(t, "node")
		}
		reconcile := func(t *rapid.T) {
			if c.crashAt = 0; rapid.Bool().Draw(t, "crash") {
				c.crashAt, c.crashLate = c.writes+rapid.IntRange(1, 4).Draw(t, "at"), rapid.Bool().Draw(t, "late")
			}
			if rapid.IntRange(0, 9).Draw(t, "rival") == 0 {
				c.rivalAt = c.writes + rapid.IntRange(1, 3).Draw(t, "rival at")
			}
			c.reconcile()
		}
		// A node is away for several rounds; with one at a time hardly any image would
		// get to the second node before something else happens.
		round := func(t *rapid.T) {
			for range rapid.IntRange(1, 6).Draw(t, "rounds") {
				reconcile(t)
				for _, name := range slices.Sorted(maps.Keys(c.machines)) {
					c.act(name)
				}
				c.now = c.now.Add(10 * time.Second)
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"":          func(*rapid.T) { steps++ },
			"reconcile": reconcile,
			"machine":   func(t *rapid.T) { c.act(pick(t)) },
			// Rounds are frequent, or no rollout would ever get far.
			"round 1": round, "round 2": round, "round 3": round, "round 4": round, "round 5": round,
			"round 6": round, "round 7": round, "round 8": round, "round 9": round,
			"image": func(t *rapid.T) {
				image := rapid.SampledFrom([]string{"", imageA, imageB, imageB, imageC, imageC, imageD, imageD, imageD}).Draw(t, "image")
				c.changeRollout(func(s *v1alpha1.ImageRolloutSpec) { s.Image = image })
			},
			// By chance alone hardly any bad image gets to a node that others could follow.
			"a bad image, undisturbed": func(t *rapid.T) {
				image := rapid.SampledFrom([]string{imageC, imageD}).Draw(t, "image")
				c.heal(func(s *v1alpha1.ImageRolloutSpec) { s.Image = image })
				for range 12 {
					c.reconcile()
					for _, name := range slices.Sorted(maps.Keys(c.machines)) {
						c.act(name)
					}
					c.now = c.now.Add(10 * time.Second)
				}
			},
			"pause": func(t *rapid.T) {
				isPaused := isRare(t, "paused")
				c.changeRollout(func(s *v1alpha1.ImageRolloutSpec) { s.Paused = isPaused })
			},
			"token": func(t *rapid.T) { c.changeRollout(func(s *v1alpha1.ImageRolloutSpec) { s.RetryToken += "x" }) },
			"allowed": func(t *rapid.T) {
				value := intstr.Parse(rapid.SampledFrom([]string{"0", "1", "2", "3", "50%"}).Draw(t, "value"))
				c.changeRollout(func(s *v1alpha1.ImageRolloutSpec) { s.MaxUnavailable = &value })
			},
			"budget": func(t *rapid.T) {
				value := intstr.FromInt(rapid.IntRange(1, 3).Draw(t, "nodes"))
				c.changeRollout(func(s *v1alpha1.ImageRolloutSpec) { s.FailureBudget = &value })
			},
			"canary": func(t *rapid.T) {
				nodes := int32(rapid.IntRange(0, 2).Draw(t, "nodes"))
				c.changeRollout(func(s *v1alpha1.ImageRolloutSpec) {
					if s.Canary = nil; nodes > 0 {
						s.Canary = &v1alpha1.CanarySpec{Nodes: &nodes, Soak: &metav1.Duration{Duration: time.Minute}}
					}
				})
			},
			"window": func(t *rapid.T) {
				c.changeRollout(func(s *v1alpha1.ImageRolloutSpec) {
					if s.Windows = nil; isRare(t, "closed") {
						s.Windows = closedWindow
					}
				})
			},
			"soak": func(t *rapid.T) {
				soak := time.Duration(rapid.IntRange(0, 90).Draw(t, "seconds")) * time.Second
				c.changeRollout(func(s *v1alpha1.ImageRolloutSpec) { s.Soak = &metav1.Duration{Duration: soak} })
			},
			"gate": func(t *rapid.T) {
				c.machines[pick(t)].isUnhealthyOn = imageD
				c.changeRollout(func(s *v1alpha1.ImageRolloutSpec) {
					s.Gates = []v1alpha1.Gate{{Name: "app", NodeCondition: &v1alpha1.NodeConditionGate{Type: "AppHealthy"}}}
				})
			},
			"a budget blocks": func(t *rapid.T) {
				name := "pod-" + pick(t)
				c.blocked[name] = isRare(t, "blocked")
				policy := rapid.SampledFrom([]v1alpha1.DrainTimeoutPolicy{v1alpha1.DrainHalt, v1alpha1.DrainSkip, v1alpha1.DrainForce}).Draw(t, "policy")
				c.changeRollout(func(s *v1alpha1.ImageRolloutSpec) {
					s.Drain = v1alpha1.DrainSpec{OnTimeout: policy, Timeout: &metav1.Duration{Duration: 2 * time.Minute}}
				})
			},
			"a node falls ill, or recovers": func(t *rapid.T) { c.ail(pick(t), isRare(t, "ill")) },
			"power cut":                     func(t *rapid.T) { c.cutPower(pick(t)) },
			"administrator":                 func(t *rapid.T) { c.administer(pick(t), isRare(t, "cordon")) },
			"node is added": func(*rapid.T) {
				if len(c.machines) < 5 {
					c.addNode()
				}
			},
			"node is removed": func(t *rapid.T) {
				if len(c.machines) > 1 {
					c.removeNode(pick(t))
				}
			},
			"time goes on": func(t *rapid.T) {
				// The next leader's clock may be behind.
				c.now = c.now.Add(time.Duration(rapid.IntRange(-300, 3600).Draw(t, "seconds")) * time.Second)
			},
		})
		c.heal(func(s *v1alpha1.ImageRolloutSpec) { s.Image = imageB })
		c.settle()
		// A node that had fallen ill may have been on its way back.
		c.changeRollout(func(s *v1alpha1.ImageRolloutSpec) { s.RetryToken += "end" })
		c.settle()
		c.expectUpdated(imageB)
	})
	t.Logf("%d steps", steps)
}

// heal ends what holds a rollout up, and makes a change to go on with.
func (c *cluster) heal(change func(*v1alpha1.ImageRolloutSpec)) {
	c.t.Helper()
	c.crashAt, c.rivalAt = 0, 0
	for name := range c.machines {
		c.administer(name, false)
		c.ail(name, false)
	}
	clear(c.blocked)
	c.changeRollout(func(s *v1alpha1.ImageRolloutSpec) {
		s.Paused, s.RetryToken, s.Windows = false, s.RetryToken+"x", nil
		change(s)
	})
}

// rollOutWithCrash takes three nodes to an image while the controller is ended
// once, at a write. It returns how many writes there were.
func rollOutWithCrash(c *cluster, crashAt int, late bool) int {
	c.t.Helper()
	c.changeRollout(func(s *v1alpha1.ImageRolloutSpec) { s.Image = imageB })
	c.crashAt, c.crashLate = crashAt, late
	for range 30 {
		c.reconcile()
		for _, name := range slices.Sorted(maps.Keys(c.machines)) {
			c.act(name)
		}
		c.now = c.now.Add(10 * time.Second)
	}
	writes := c.writes
	c.settle()
	c.expectUpdated(imageB)
	return writes
}

// TestCrashSweep ends the controller at every single write of a rollout to
// three nodes, before and after the write had its effect.
func TestCrashSweep(t *testing.T) {
	writes := rollOutWithCrash(newCluster(t, 3), 0, false)
	t.Logf("%d writes for three nodes", writes)
	for at := 1; at <= writes; at++ {
		for _, late := range []bool{false, true} {
			t.Run(fmt.Sprintf("at write %d, late %t", at, late), func(t *testing.T) { rollOutWithCrash(newCluster(t, 3), at, late) })
		}
	}
}
