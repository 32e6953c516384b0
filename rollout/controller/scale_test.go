package controller

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

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
		nodes = append(nodes, node)
	}
	scope := newScope(nodes, allowing("10%"), func(s *Scope) { s.Now = start })
	for i := count / 2; i < count/2+count/10; i++ {
		holding(i, v1alpha1.SlotBooting)(scope)
	}
	return scope
}

// BenchmarkPass measures the decisions of one pass; reading and writing come on top.
func BenchmarkPass(b *testing.B) {
	scope := bigScope()
	for b.Loop() {
		answer := schedule(scope)
		statusOf(scope, scope.Rollout.Status.Slots, answer.Held)
	}
}

// TestAPassOverManyNodesIsShort: with five thousand nodes every change of one of
// them is a pass, and none may wait a second for it.
func TestAPassOverManyNodesIsShort(t *testing.T) {
	scope := bigScope()
	begin := time.Now()
	answer := schedule(scope)
	status := statusOf(scope, scope.Rollout.Status.Slots, answer.Held)
	took := time.Since(begin)
	t.Logf("%s for %d nodes, %d slots", took, len(scope.Nodes), len(status.Slots))
	if took > 500*time.Millisecond {
		t.Errorf("a pass takes %s", took)
	}
	if zone := scope.Nodes[0].Labels[corev1.LabelTopologyZone]; zone == "" {
		t.Fatal(fmt.Sprint("the nodes have no zones: ", scope.Nodes[0].Labels))
	}
}
