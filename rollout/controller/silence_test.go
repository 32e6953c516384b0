package controller

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/imagemode/imagemode/api/v1alpha1"
)

// neverReported is a node whose NodeImage was made at start.
func neverReported(n *Node) {
	n.Image.CreationTimestamp, n.Image.Status = metav1.NewTime(start), v1alpha1.NodeImageStatus{}
}

// writtenAt is when controller and agent wrote the NodeImage last, after start.
func writtenAt(ordered, reported time.Duration) func(*Node) {
	return func(n *Node) {
		for manager, after := range map[string]time.Duration{string(fieldOwner): ordered, agentManager: reported} {
			at := metav1.NewTime(start.Add(after))
			n.Image.ManagedFields = append(n.Image.ManagedFields, metav1.ManagedFieldsEntry{Manager: manager, Time: &at})
		}
	}
}

// readySince is a node that has come up then, after start.
func readySince(after time.Duration) func(*Node) {
	return func(n *Node) { n.Status.Conditions[0].LastTransitionTime = metav1.NewTime(start.Add(after)) }
}

// toldMore is a node whose agent has not seen yet what it was told last.
func toldMore(n *Node) { n.Image.Generation++ }

// downloads is a node whose agent reports that a download runs.
func downloads(n *Node) {
	notStaged(n)
	n.Image.Status.Conditions = append(n.Image.Status.Conditions, metav1.Condition{Type: v1alpha1.ConditionStaged, Status: metav1.ConditionFalse, Reason: reasonStaging})
}

func TestWhenAnAgentIsSilent(t *testing.T) {
	otherLive := func(n *Node) { n.Image.Spec.LiveHash = "new" }
	failedLive := reports(v1alpha1.ConditionLiveFailed, metav1.ConditionTrue, "user a does not exist")
	idle := func(n *Node) { n.Image.Spec.Phase = v1alpha1.PhaseIdle }
	tests := map[string]struct {
		node Node
		// since and due are after start; due 0: no report is missed.
		since, due time.Duration
		change     func(*Scope)
	}{
		"it has never reported":             {node: newNode(1, neverReported), due: silentAfter},
		"it has no NodeImage":               {node: newNode(1, noImage)},
		"the node is down":                  {node: newNode(1, neverReported, notReady)},
		"it has seen the order":             {node: newNode(1, notStaged, writtenAt(time.Hour, 0))},
		"it has not seen the order":         {node: newNode(1, notStaged, toldMore, writtenAt(time.Hour, 0)), since: time.Hour, due: time.Hour + answerAfter},
		"who wrote when is not known":       {node: newNode(1, notStaged, toldMore)},
		"the node runs the image already":   {node: newNode(1, updated, toldMore, writtenAt(time.Hour, 0))},
		"it has not seen new live content":  {node: newNode(1, updated, toldMore, otherLive, writtenAt(time.Hour, 0)), since: time.Hour, due: time.Hour + answerAfter},
		"it has failed with live content":   {node: newNode(1, updated, toldMore, otherLive, failedLive, writtenAt(time.Hour, 0))},
		"it has nothing to do":              {node: newNode(1, idle, toldMore, writtenAt(time.Hour, 0))},
		"it has not come up with the node":  {node: newNode(1, notStaged, rebooted, readySince(time.Hour), writtenAt(0, 0)), since: time.Hour, due: time.Hour + answerAfter},
		"it downloads":                      {node: newNode(1, downloads, writtenAt(0, time.Hour)), since: time.Hour, due: time.Hour + downloadedAfter},
		"it is told of another image since": {node: newNode(1, downloads, toldMore, writtenAt(2*time.Hour, time.Hour)), since: 2 * time.Hour, due: 2*time.Hour + answerAfter},
		"the node holds a slot":             {node: newNode(1, toldMore, writtenAt(0, 0)), change: holding(1, v1alpha1.SlotBooting)},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			scope := newScope([]Node{test.node})
			if test.change != nil {
				test.change(scope)
			}
			node := &scope.Nodes[0]
			got := silenceOf(scope, node)
			if test.due == 0 {
				if got != (silence{}) || scope.isSilent(node) {
					t.Fatalf("%+v is missed", got)
				}
				return
			}
			if diff := cmp.Diff([]time.Duration{test.since, test.due}, []time.Duration{got.since.Sub(start), got.due.Sub(start)}); diff != "" || got.what == "" {
				t.Errorf("%q since, due (-want +got):\n%s", got.what, diff)
			}
			for at, want := range map[time.Time]bool{got.due.Add(-time.Second): false, got.due: true} {
				if scope.Now = at; scope.isSilent(node) != want {
					t.Errorf("at %s silent is %t", at, !want)
				}
			}
		})
	}
}

// TestNobodyWaitsForASilentAgent: it holds no token to download, does not hold its zone
// back, and is given no slot.
func TestNobodyWaitsForASilentAgent(t *testing.T) {
	silent := func(n *Node) { toldMore(n); writtenAt(-time.Hour, -time.Hour)(n) }
	scope := newScope([]Node{newNode(1, notStaged, silent), newNode(2, noImage)}, func(s *Scope) { s.Rollout.Spec.MaxConcurrentStaging = 1 })
	if phase := assign(scope).Images["worker-2"].Phase; phase != v1alpha1.PhaseStaged {
		t.Errorf("worker-2 is told %q while the agent of worker-1 is silent", phase)
	}
	otherLive := func(n *Node) { n.Image.Spec.LiveHash = "new" }
	scope = newScope([]Node{newNode(1, inZone("a"), notStaged, silent), newNode(2, inZone("a"), otherLive, silent), newNode(3, inZone("b"))}, allowing("3"))
	grants := schedule(scope).Grants
	if len(grants) != 1 || grants[0].Node != "worker-3" {
		t.Errorf("slots for %+v, want one for worker-3", grants)
	}
}

func TestKeepWriteTimes(t *testing.T) {
	at := metav1.NewTime(start)
	image := &v1alpha1.NodeImage{}
	image.ManagedFields = []metav1.ManagedFieldsEntry{
		{Manager: agentManager, Operation: metav1.ManagedFieldsOperationApply, Subresource: "status", Time: &at, FieldsV1: &metav1.FieldsV1{Raw: []byte("{}")}},
	}
	got, err := KeepWriteTimes(image)
	want := []metav1.ManagedFieldsEntry{{Manager: agentManager, Time: &at}}
	if diff := cmp.Diff(want, got.(*v1alpha1.NodeImage).ManagedFields); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	if got, err := KeepWriteTimes("no object"); got != "no object" || err != nil {
		t.Errorf("%v, %v", got, err)
	}
}
