package controller

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/imagemode/imagemode/api/v1alpha1"
)

// bigScope is a rollout of five thousand nodes in three zones, a tenth of them
// out of service, in the middle of its way.
func bigScope() *Scope {
	const count = 5000
	nodes := make([]Node, 0, count)
	for i := 1; i <= count; i++ {
		node := newNode(i, inZone([]string{"a", "b", "c"}[i%3]))
		if i <= count/2 {
			updated(&node)
		}
		own(&node)
		nodes = append(nodes, node)
	}
	scope := newScope(nodes, allowing("10%"), func(s *Scope) { s.Now = start })
	for i := count / 2; i < count/2+count/10; i++ {
		holding(i, v1alpha1.SlotBooting)(scope)
	}
	return scope
}

// own gives a node texts of its own in memory, like one that came from the API server.
func own(n *Node) {
	for _, text := range []*string{&n.Name, &n.Status.NodeInfo.BootID, &n.Image.Status.BootID, &n.Image.Spec.DesiredImage} {
		*text = strings.Clone(*text)
	}
	for _, image := range []*v1alpha1.HostImage{n.Image.Status.Booted, n.Image.Status.Staged} {
		if image != nil {
			image.Image, image.Digest = strings.Clone(image.Image), strings.Clone(image.Digest)
		}
	}
}

// decide makes the decisions of one pass; reading and writing come on top.
func decide(scope *Scope) v1alpha1.ImageRolloutStatus {
	scope.index()
	assign(scope)
	next := scope.after(scope.Rollout.Status.Slots, nil)
	answer := schedule(next)
	status := statusOf(next, next.Rollout.Status.Slots, answer.Held)
	observe(next, status)
	nextLook(next, status.Slots)
	return status
}

func BenchmarkPass(b *testing.B) {
	scope := bigScope()
	for b.Loop() {
		decide(scope)
	}
}

// TestWhatIsKnownOfNodesIsTrue: a scope with an index decides like one without.
func TestWhatIsKnownOfNodesIsTrue(t *testing.T) {
	for name, test := range stuck() {
		t.Run(name, func(t *testing.T) {
			decided := func() []any {
				answer := schedule(test.scope)
				slots := test.scope.Rollout.Status.Slots
				return []any{answer, assign(test.scope), statusOf(test.scope, slots, answer.Held), nextLook(test.scope, slots)}
			}
			without := decided()
			test.scope.index()
			if diff := cmp.Diff(without, decided()); diff != "" {
				t.Errorf("without an index, with one (-want +got):\n%s", diff)
			}
		})
	}
}

// TestASilentAgentInASoakBringsNoPassEachSecond, though its soak is over.
func TestASilentAgentInASoakBringsNoPassEachSecond(t *testing.T) {
	scope := newScope([]Node{newNode(1, rebooted)}, holding(1, v1alpha1.SlotSoaking))
	if look := nextLook(scope, scope.Rollout.Status.Slots); look < deadlineInterval {
		t.Errorf("looked at again after %s", look)
	}
}

// TestAPassOverManyNodesIsShort: with five thousand nodes every change of one of
// them is a pass, and none may wait a second for it.
func TestAPassOverManyNodesIsShort(t *testing.T) {
	scope := bigScope()
	best := time.Hour // the machine may be busy with something else
	for range 5 {
		begin := time.Now()
		status := decide(scope)
		best = min(best, time.Since(begin))
		if status.Nodes.Total != 5000 || len(status.Slots) != 500 {
			t.Fatalf("status %+v", status.Nodes)
		}
	}
	t.Logf("%s at best", best)
	if best > 500*time.Millisecond {
		t.Errorf("a pass takes %s", best)
	}
}
