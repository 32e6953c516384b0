package controller

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/imagemode/imagemode/api/v1alpha1"
)

// TestNobodyWaitsForANodeThatIsHeldUp: it holds a zone and a token to download for as
// long as what it waits for may still come, and not for ever.
func TestNobodyWaitsForANodeThatIsHeldUp(t *testing.T) {
	tests := map[string]struct {
		change func(*Node)
		after  time.Duration
		isFree bool
		next   time.Duration
	}{
		"bootc hangs for a moment":            {heldUpBy(reasonBusy, "x"), heldUpAfter - time.Second, false, time.Second},
		"bootc hangs":                         {heldUpBy(reasonBusy, "x"), heldUpAfter, true, 0},
		"the pull secret is on its way":       {heldUpBy("WaitingForSecret", "x"), time.Minute, false, 4 * time.Minute},
		"the pull secret does not come":       {heldUpBy("WaitingForSecret", "x"), heldUpAfter, true, 0},
		"the agent has said so only just now": {saidAt(start.Add(4 * time.Minute)), heldUpAfter, false, 4 * time.Minute},
		"the host is no bootc host":           {unmanageable, 0, true, 0},
		"it downloads":                        {heldUpBy(reasonStaging, "x"), 10 * time.Minute, false, 0},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			zone := func(name string) func(*Node) { return func(n *Node) { n.Labels["topology.kubernetes.io/zone"] = name } }
			scope := newScope([]Node{newNode(1, zone("a"), notStaged, test.change), newNode(2, zone("b")), newNode(3, zone("b"), noImage)}, func(s *Scope) {
				s.Now, s.Rollout.Spec.MaxConcurrentStaging = start.Add(test.after), 1
			})
			if isFree := len(schedule(scope).Grants) == 1; isFree != test.isFree {
				t.Errorf("the next zone is free: %t, want %t", isFree, test.isFree)
			}
			if isFree := assign(scope).Images["worker-3"].Phase == v1alpha1.PhaseStaged; isFree != test.isFree {
				t.Errorf("the token is free: %t, want %t", isFree, test.isFree)
			}
			if next := nextLook(scope, nil); next != test.next {
				t.Errorf("the next look is in %s, want %s", next, test.next)
			}
		})
	}
}

// saidAt is a node whose agent has reported then that bootc does not answer.
func saidAt(at time.Time) func(*Node) {
	return func(n *Node) {
		heldUpBy(reasonBusy, "x")(n)
		when := metav1.NewTime(at)
		n.Image.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: agentManager, Time: &when}}
	}
}
