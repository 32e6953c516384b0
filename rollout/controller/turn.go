package controller

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/imagemode/imagemode/api/v1alpha1"
)

// turn says whose turn it is to be given a slot, beside what makes a node a
// candidate by itself: computed once for all nodes of a schedule.
type turn struct {
	*Scope
	// canaries are the only ones that may go; nil when all may.
	canaries map[string]bool
	// zone is the only one that nodes may go in, if isZoneBound.
	zone        string
	isZoneBound bool
	// hasControlPlaneSlot: a control-plane node is out of service.
	hasControlPlaneSlot bool
	// isLast: nobody but the controller's own node is left.
	isLast bool
}

func newTurn(s *Scope) *turn {
	t := &turn{Scope: s}
	if s.Rollout.Spec.Canary != nil && !isCanaryDone(s) {
		t.canaries = map[string]bool{}
		first, _ := canaries(s) // an invalid selector holds the whole rollout
		for _, node := range first {
			t.canaries[node.Name] = true
		}
	}
	toCome := t.toCome()
	t.isLast = len(toCome) == 0 || (len(toCome) == 1 && toCome[0].Name == s.Cluster.ControllerNode)
	t.setZone(toCome)
	for _, slot := range s.Rollout.Status.Slots {
		if node := s.node(slot); node != nil {
			t.take(node)
		}
	}
	return t
}

// toCome are the nodes that still have to be updated and can be. A node that is
// down, silent or held up, or that cannot download the image, does not hold its zone back.
func (t *turn) toCome() []*Node {
	return slices.DeleteFunc(slices.Clone(t.selected()), func(n *Node) bool {
		isStuck := !n.isReady() || !n.isCurrent() || n.isStuckStaging(t.target()) || t.isSilent(n) || t.isHeldUp(n) || t.wasSkipped(n) ||
			n.failure(t.target(), t.Rollout.Spec.RetryToken) != nil
		return n.runs(t.target()) || isStuck
	})
}

// setZone takes the first zone in which there is something to do. Canary nodes
// are gone to wherever they are. The controller's own node comes last of all.
func (t *turn) setZone(toCome []*Node) {
	if topologyKey(t.Scope) == "" || t.canaries != nil {
		return
	}
	for _, node := range toCome {
		if node.Name == t.Cluster.ControllerNode && !t.isLast {
			continue
		}
		if zone := zoneOf(t.Scope, node.Node); !t.isZoneBound || compareZones(zone, t.zone) < 0 {
			t.zone, t.isZoneBound = zone, true
		}
	}
}

// take notes that the node is out of service: others of its zone only may join it.
func (t *turn) take(n *Node) {
	if topologyKey(t.Scope) != "" {
		t.zone, t.isZoneBound = zoneOf(t.Scope, n.Node), true
	}
	t.hasControlPlaneSlot = t.hasControlPlaneSlot || isControlPlane(n.Node)
}

// isUp says whether it is the node's turn.
func (t *turn) isUp(n *Node) bool {
	switch {
	case t.canaries != nil && !t.canaries[n.Name]:
		return false
	case t.isZoneBound && zoneOf(t.Scope, n.Node) != t.zone:
		return false
	case n.Name == t.Cluster.ControllerNode && !t.isLast && t.canaries == nil:
		return false
	}
	return t.isWithoutOthers(n)
}

// wasSkipped says whether the node's drain took too long a short while ago.
func (s *Scope) wasSkipped(n *Node) bool {
	return slices.ContainsFunc(s.Rollout.Status.Skipped, func(skipped v1alpha1.SkippedNode) bool {
		return skipped.NodeUID == string(n.UID) && skipped.Image == s.target() && s.Now.Before(skipped.Time.Add(drainTimeout(s)))
	})
}

// topologyKey is the label that tells zones apart; empty when they do not matter.
func topologyKey(s *Scope) string {
	if s.Rollout.Spec.TopologyKey == nil {
		return corev1.LabelTopologyZone
	}
	return *s.Rollout.Spec.TopologyKey
}

func zoneOf(s *Scope, node *corev1.Node) string { return node.Labels[topologyKey(s)] }

// waitsForZone says why nodes do not get the slots that are left, while nothing else holds
// them: all slots are in one zone.
func waitsForZone(s *Scope, slots []v1alpha1.Slot, held Hold) string {
	if topologyKey(s) == "" || held.Reason != "" || len(slots) == 0 || len(slots) >= maxUnavailable(s) {
		return ""
	}
	t, holder := newTurn(s), s.node(slots[len(slots)-1])
	if t.canaries != nil || holder == nil {
		return ""
	}
	zone := zoneOf(s, holder.Node)
	others := slices.DeleteFunc(t.toCome(), func(n *Node) bool { return zoneOf(s, n.Node) == zone })
	if len(others) == 0 {
		return ""
	}
	return fmt.Sprintf("; nodes of other zones, %d, wait until none of zone %q is out of service", len(others), zone)
}

// compareZones orders by name, nodes without a zone last.
func compareZones(a, b string) int {
	if (a == "") != (b == "") {
		return strings.Compare(b, a) // the empty one comes last
	}
	return strings.Compare(a, b)
}
