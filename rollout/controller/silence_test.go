package controller

import (
	"strings"
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
		"it has never reported":                   {node: newNode(1, neverReported), due: silentAfter},
		"it has no NodeImage":                     {node: newNode(1, noImage)},
		"the node is down":                        {node: newNode(1, neverReported, notReady)},
		"it has seen the order":                   {node: newNode(1, notStaged, writtenAt(time.Hour, 0))},
		"it has not seen the order":               {node: newNode(1, notStaged, toldMore, writtenAt(time.Hour, 0)), since: time.Hour, due: time.Hour + answerAfter},
		"who wrote when is not known":             {node: newNode(1, notStaged, toldMore)},
		"the node runs the image already":         {node: newNode(1, updated, toldMore, writtenAt(time.Hour, 0))},
		"it has not seen new live content":        {node: newNode(1, updated, toldMore, otherLive, writtenAt(time.Hour, 0)), since: time.Hour, due: time.Hour + answerAfter},
		"it has failed with live content":         {node: newNode(1, updated, toldMore, otherLive, failedLive, writtenAt(time.Hour, 0))},
		"it has nothing to do":                    {node: newNode(1, idle, toldMore, writtenAt(time.Hour, 0))},
		"it has not come up with the node":        {node: newNode(1, notStaged, rebooted, readySince(time.Hour), writtenAt(0, 0)), since: time.Hour, due: time.Hour + answerAfter},
		"it downloads":                            {node: newNode(1, downloads, writtenAt(0, time.Hour)), since: time.Hour, due: time.Hour + downloadedAfter},
		"it is told of another image since":       {node: newNode(1, downloads, toldMore, writtenAt(2*time.Hour, time.Hour)), since: 2 * time.Hour, due: 2*time.Hour + answerAfter},
		"it does not answer to the order to boot": {node: newNode(1, toldMore, writtenAt(0, 0)), due: bootedAfter, change: holding(1, v1alpha1.SlotBooting)},
		"it had seen the order to boot":           {node: newNode(1, writtenAt(0, 0)), change: holding(1, v1alpha1.SlotBooting)},
		"the node has rebooted":                   {node: newNode(1, toldMore, rebooted, writtenAt(0, 0)), change: holding(1, v1alpha1.SlotBooting)},
		"it has not come up in the soak":          {node: newNode(1, rebooted, readySince(time.Hour)), since: time.Hour, due: time.Hour + answerAfter, change: holding(1, v1alpha1.SlotSoaking)},
		"nor for an image that is replaced":       {node: newNode(1, rebooted, readySince(time.Hour)), change: func(s *Scope) { holding(1, v1alpha1.SlotSoaking)(s); withImage(imageC)(s) }},
		"the node is drained":                     {node: newNode(1, toldMore, writtenAt(0, 0)), change: holding(1, v1alpha1.SlotDraining)},
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

// TestASilentAgentInASlotIsNamedOnAnyNode, also on one that is not selected any more.
func TestASilentAgentInASlotIsNamedOnAnyNode(t *testing.T) {
	silent := func(n *Node) { toldMore(n); writtenAt(-time.Hour, -time.Hour)(n) }
	scope := newScope([]Node{newNode(1, unselected, silent), newNode(2, unselected, silent)}, holding(1, v1alpha1.SlotBooting))
	if got := silentAgents(scope, scope.Rollout.Status.Slots); !strings.HasPrefix(got, "worker-1 since") || strings.Contains(got, "worker-2") {
		t.Errorf("got %q", got)
	}
}

// TestAnAgentIsAskedBeforeItsNodeIsTakenOut: one that has ended since it staged the image
// would leave its node drained.
func TestAnAgentIsAskedBeforeItsNodeIsTakenOut(t *testing.T) {
	heardAgo := func(ago time.Duration) func(*Node) { return writtenAt(-24*time.Hour, -ago) }
	tests := map[string]struct {
		nodes  []Node
		change func(*Scope)
		// slot and asked are the nodes that get a slot, and that are asked, without "worker-".
		slot, asked string
	}{
		"it has just reported":                        {nodes: []Node{newNode(1, heardAgo(heardFor-time.Second))}, slot: "1"},
		"nothing was heard of it":                     {nodes: []Node{newNode(1, heardAgo(heardFor))}, asked: "1"},
		"it was asked, and may still answer":          {nodes: []Node{newNode(1, toldMore, writtenAt(-time.Minute, -heardFor)), newNode(2, heardAgo(0))}},
		"it was asked, and does not answer":           {nodes: []Node{newNode(1, toldMore, writtenAt(-answerAfter, -heardFor)), newNode(2, heardAgo(0))}, slot: "2"},
		"as many as there are places":                 {nodes: []Node{newNode(1, heardAgo(heardFor)), newNode(2, heardAgo(heardFor))}, asked: "1"},
		"one that is asked keeps its place":           {nodes: []Node{newNode(1, heardAgo(heardFor)), newNode(2, heardAgo(0)), newNode(3, heardAgo(0))}, change: allowing("2"), slot: "2", asked: "1"},
		"nobody while nobody gets a slot":             {nodes: []Node{newNode(1, heardAgo(heardFor))}, change: paused},
		"the one that comes next, ahead of its turn":  {nodes: []Node{newNode(1, heardAgo(heardFor)), newNode(2, heardAgo(heardFor)), newNode(3)}, change: holding(3, v1alpha1.SlotBooting), asked: "1"},
		"nobody while the places are taken for long":  {nodes: []Node{newNode(1, heardAgo(heardFor)), newNode(2)}, change: stuckFor(2, heardFor)},
		"nobody while somebody else has a node down":  {nodes: []Node{newNode(1, heardAgo(heardFor)), newNode(2, cordoned, notStaged)}},
		"not one that would not be given a slot then": {nodes: []Node{newNode(1, heardAgo(heardFor), notStaged)}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			scope := newScope(test.nodes)
			if test.change != nil {
				test.change(scope)
			}
			var slots, asked []string
			for _, slot := range schedule(scope).Grants {
				slots = append(slots, strings.TrimPrefix(slot.Node, "worker-"))
			}
			images := assign(scope).Images
			for _, node := range scope.Nodes {
				if images[node.Name].ReportRequests != node.Image.Spec.ReportRequests {
					asked = append(asked, strings.TrimPrefix(node.Name, "worker-"))
				}
			}
			want := []string{test.slot, test.asked}
			if diff := cmp.Diff(want, []string{strings.Join(slots, " "), strings.Join(asked, " ")}); diff != "" {
				t.Errorf("slots, asked (-want +got):\n%s", diff)
			}
		})
	}
}

// stuckFor is a slot in which nothing has happened for that long.
func stuckFor(index int, ago time.Duration) func(*Scope) {
	return func(s *Scope) {
		holding(index, v1alpha1.SlotBooting)(s)
		s.Rollout.Status.Slots[0].Since = metav1.NewTime(start.Add(-ago))
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
