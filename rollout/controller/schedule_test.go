package controller

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/imagemode/imagemode/api/v1alpha1"
)

var (
	start  = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	imageA = "registry.example:5000/os@sha256:" + strings.Repeat("a", 64)
	imageB = "registry.example:5000/os@sha256:" + strings.Repeat("b", 64)
	imageC = "registry.example:5000/os@sha256:" + strings.Repeat("c", 64)
	imageD = "registry.example:5000/os@sha256:" + strings.Repeat("d", 64)
)

func digestOf(image string) string { return image[strings.Index(image, "@")+1:] }

func hostImage(image string, locked bool) *v1alpha1.HostImage {
	return &v1alpha1.HostImage{Image: image, Digest: digestOf(image), DownloadOnly: locked}
}

// newNode is a Ready node that runs A and has B staged and locked, changed by
// the functions.
func newNode(index int, changes ...func(*Node)) Node {
	name := fmt.Sprintf("worker-%d", index)
	node := Node{IsSelected: true, Node: &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, UID: types.UID(name + "-uid"), Labels: map[string]string{"pool": "worker"},
			CreationTimestamp: metav1.NewTime(start.Add(time.Duration(index-1000) * time.Hour)),
		},
		Status: corev1.NodeStatus{
			NodeInfo:   corev1.NodeSystemInfo{BootID: "boot-1"},
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(start.Add(-time.Hour))}},
		},
	}, Image: &v1alpha1.NodeImage{
		ObjectMeta: metav1.ObjectMeta{Name: name, Generation: 1},
		Spec:       v1alpha1.NodeImageSpec{Rollout: "worker", DesiredImage: imageB, Phase: v1alpha1.PhaseStaged},
		Status:     v1alpha1.NodeImageStatus{ObservedGeneration: 1, BootID: "boot-1", Booted: hostImage(imageA, false), Staged: hostImage(imageB, true)},
	}}
	for _, change := range changes {
		change(&node)
	}
	return node
}

func notReady(n *Node)  { n.Status.Conditions[0].Status = corev1.ConditionUnknown }
func cordoned(n *Node)  { n.Spec.Unschedulable = true }
func notStaged(n *Node) { n.Image.Status.Staged = nil }
func unlocked(n *Node)  { n.Image.Status.Staged.DownloadOnly = false }
func noAgent(n *Node)   { n.Image.Status = v1alpha1.NodeImageStatus{} }
func noImage(n *Node)   { n.Image = nil }
func runsOther(n *Node) { n.Image.Status.Booted = nil }
func rebooted(n *Node)  { n.Status.NodeInfo.BootID = "boot-2" }
func installedWith(image string) func(*Node) {
	return func(n *Node) { n.Image.Status.Booted.Image = image }
}
func unmanageable(n *Node) {
	reports(v1alpha1.ConditionManageable, metav1.ConditionFalse, "packages were layered")(n)
}

// heldUpBy is a node whose agent reports since the start that it waits.
func heldUpBy(reason, message string) func(*Node) {
	return func(n *Node) {
		reports(v1alpha1.ConditionBooted, metav1.ConditionFalse, message)(n)
		n.Image.Status.Conditions[len(n.Image.Status.Conditions)-1].Reason = reason
	}
}
func unselected(n *Node) { n.IsSelected = false }
func claimed(n *Node)    { n.Claimant = "other" }
func updated(n *Node) {
	n.Status.NodeInfo.BootID, n.Image.Status.BootID = "boot-2", "boot-2"
	n.Image.Status.Booted, n.Image.Status.Staged = hostImage(imageB, false), nil
}
func failedOnB(n *Node) {
	n.Image.Status.LastAttempt = &v1alpha1.Attempt{Image: imageB, Class: v1alpha1.FailureImageInvalid, Permanent: true}
}

func newScope(nodes []Node, changes ...func(*Scope)) *Scope {
	scope := &Scope{Now: start, Nodes: nodes, Rollout: &v1alpha1.ImageRollout{
		ObjectMeta: metav1.ObjectMeta{Name: "worker", UID: "rollout-uid", Generation: 1},
		Spec: v1alpha1.ImageRolloutSpec{
			Image: imageB, NodeSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"pool": "worker"}}, MaxConcurrentStaging: 10,
		},
	}}
	for _, change := range changes {
		change(scope)
	}
	return scope
}

func allowing(value string) func(*Scope) {
	return func(s *Scope) {
		parsed := intstr.Parse(value)
		s.Rollout.Spec.MaxUnavailable = &parsed
	}
}

// withImage is another target than that of the slots.
func withImage(image string) func(*Scope) { return func(s *Scope) { s.Rollout.Spec.Image = image } }

func paused(s *Scope)    { s.Rollout.Spec.Paused = true }
func stageOnly(s *Scope) { s.Rollout.Spec.Mode = v1alpha1.RolloutModeStageOnly }

func holding(index int, phase v1alpha1.SlotPhase) func(*Scope) {
	return func(s *Scope) {
		name := fmt.Sprintf("worker-%d", index)
		s.Rollout.Status.Slots = append(s.Rollout.Status.Slots, v1alpha1.Slot{
			Node: name, NodeUID: name + "-uid", Image: imageB, BootID: "boot-1", Phase: phase, Since: metav1.NewTime(start.Add(-time.Minute)),
		})
	}
}

func TestWhoGetsASlot(t *testing.T) {
	tests := map[string]struct {
		scope *Scope
		want  string // names without "worker-"
		held  string
	}{
		"one of two, the oldest":                  {newScope([]Node{newNode(1), newNode(2)}), "1", ""},
		"two of three under 67 %, rounded down":   {newScope([]Node{newNode(1), newNode(2), newNode(3)}, allowing("67%")), "1 2", ""},
		"at least one under a small percentage":   {newScope([]Node{newNode(1), newNode(2)}, allowing("10%")), "1", ""},
		"0 is read as 1":                          {newScope([]Node{newNode(1), newNode(2)}, allowing("0")), "1", ""},
		"nobody without an image":                 {newScope([]Node{newNode(1)}, func(s *Scope) { s.Rollout.Spec.Image = "" }), "", "NoImage"},
		"nobody while paused":                     {newScope([]Node{newNode(1)}, paused), "", "Paused"},
		"nobody when only staging":                {newScope([]Node{newNode(1)}, stageOnly), "", "StageOnly"},
		"nobody after a node failed on the image": {newScope([]Node{newNode(1), newNode(2, failedOnB)}), "", "ImageRejected"},
		"not a node on which it failed, though another does well": {newScope([]Node{newNode(1, func(n *Node) {
			n.Image.Status.LastAttempt = &v1alpha1.Attempt{Image: imageB, Class: v1alpha1.FailureFinalizeFailed, Permanent: true}
		}), newNode(2, updated), newNode(3)}), "3", ""},
		"a failure under another token does not count":   {newScope([]Node{newNode(1, func(n *Node) { n.Image.Spec.RetryToken = "2" }), newNode(2, failedOnB)}, func(s *Scope) { s.Rollout.Spec.RetryToken = "2" }), "1", ""},
		"nobody when a rollout is deleted":               {newScope([]Node{newNode(1)}, func(s *Scope) { s.Rollout.DeletionTimestamp = &metav1.Time{Time: start} }), "", "NoImage"},
		"not a node that is not Ready; it uses capacity": {newScope([]Node{newNode(1, notReady), newNode(2)}), "", ""},
		"not a node that has not staged":                 {newScope([]Node{newNode(1, notStaged), newNode(2)}), "2", ""},
		"not a node whose stage is not locked":           {newScope([]Node{newNode(1, unlocked), newNode(2)}), "2", ""},
		"a node whose bootc cannot lock": {newScope([]Node{newNode(1, unlocked, func(n *Node) {
			n.Image.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionStaged, Reason: "StagedUnlocked"}}
		})}), "1", ""},
		"not a node without a report":                     {newScope([]Node{newNode(1, noAgent), newNode(2)}), "2", ""},
		"not a node without a NodeImage":                  {newScope([]Node{newNode(1, noImage), newNode(2)}), "2", ""},
		"not a node whose report is from before a reboot": {newScope([]Node{newNode(1, rebooted), newNode(2)}), "2", ""},
		"not a node that could not go back":               {newScope([]Node{newNode(1, runsOther), newNode(2)}), "2", ""},
		"not a node that bootc cannot update":             {newScope([]Node{newNode(1, unmanageable), newNode(2)}), "2", ""},
		"not a node whose bootc does not answer":          {newScope([]Node{newNode(1, heldUpBy(reasonBusy, "")), newNode(2)}), "2", ""},
		"not a node that runs the image":                  {newScope([]Node{newNode(1, updated), newNode(2)}), "2", ""},
		"not a node of another rollout":                   {newScope([]Node{newNode(1, claimed), newNode(2)}), "2", ""},
		"not a node that is no longer selected":           {newScope([]Node{newNode(1, unselected), newNode(2)}), "2", ""},
		"not a second while one is away":                  {newScope([]Node{newNode(1), newNode(2)}, holding(1, v1alpha1.SlotBooting)), "", ""},
		"not a second while one soaks":                    {newScope([]Node{newNode(1, updated), newNode(2)}, holding(1, v1alpha1.SlotSoaking)), "", ""},
		"a second where two may be away":                  {newScope([]Node{newNode(1), newNode(2)}, allowing("2"), holding(1, v1alpha1.SlotBooting)), "2", ""},
		"nobody while another is cordoned by an admin":    {newScope([]Node{newNode(1), newNode(2, cordoned, notStaged)}), "", ""},
		"a node that is cordoned already, as it is away":  {newScope([]Node{newNode(1), newNode(2, cordoned)}), "2", ""},
		"never more slots than allowed, cordoned or not":  {newScope([]Node{newNode(1, cordoned), newNode(2, cordoned)}), "1", ""},
		"a slot of a node that was made anew is not its":  {newScope([]Node{newNode(1, func(n *Node) { n.UID = "new" })}, allowing("2"), holding(1, v1alpha1.SlotBooting)), "1", ""},
		"not a node told to stage an earlier image":       {newScope([]Node{newNode(1, func(n *Node) { n.Image.Spec.DesiredImage = imageC }), newNode(2)}), "2", ""},
		"not a node that stages under an earlier token":   {newScope([]Node{newNode(1)}, func(s *Scope) { s.Rollout.Spec.RetryToken = "2" }), "", ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			answer := schedule(test.scope)
			var got []string
			for _, slot := range answer.Grants {
				got = append(got, strings.TrimPrefix(slot.Node, "worker-"))
				if slot.Phase != v1alpha1.SlotDraining || slot.Image != imageB || slot.BootID == "" {
					t.Errorf("slot %+v", slot)
				}
			}
			if diff := cmp.Diff(test.want, strings.Join(got, " ")); diff != "" {
				t.Errorf("slots (-want +got):\n%s", diff)
			}
			if answer.Held.Reason != test.held {
				t.Errorf("held by %q, want %q", answer.Held.Reason, test.held)
			}
		})
	}
}

func TestWhatNodesAreTold(t *testing.T) {
	told := func(n Node, changes ...func(*Scope)) *Scope { return newScope([]Node{n}, changes...) }
	on := func(image string, phase v1alpha1.NodeImagePhase) func(*Node) {
		return func(n *Node) { n.Image.Spec.DesiredImage, n.Image.Spec.Phase = image, phase }
	}
	tests := map[string]struct {
		scope *Scope
		image string
		phase v1alpha1.NodeImagePhase
	}{
		"a new node stages at once":                                       {told(newNode(1, noImage)), imageB, v1alpha1.PhaseStaged},
		"a new node of a paused rollout is idle":                          {told(newNode(1, noImage), paused), "", v1alpha1.PhaseIdle},
		"a paused rollout stages when it only stages":                     {told(newNode(1, noImage), paused, stageOnly), imageB, v1alpha1.PhaseStaged},
		"a new node without an image is idle":                             {told(newNode(1, noImage), func(s *Scope) { s.Rollout.Spec.Image = "" }), "", v1alpha1.PhaseIdle},
		"a new node without its pull secret is idle":                      {told(newNode(1, noImage), func(s *Scope) { s.Problem = "missing" }), "", v1alpha1.PhaseIdle},
		"a new image is staged":                                           {told(newNode(1, on(imageA, v1alpha1.PhaseStaged))), imageB, v1alpha1.PhaseStaged},
		"a new image is not staged while paused":                          {told(newNode(1, on(imageA, v1alpha1.PhaseStaged)), paused), imageA, v1alpha1.PhaseStaged},
		"a slot before Booting may not boot":                              {told(newNode(1), holding(1, v1alpha1.SlotDraining)), imageB, v1alpha1.PhaseStaged},
		"a slot in Booting may boot":                                      {told(newNode(1), holding(1, v1alpha1.SlotBooting)), imageB, v1alpha1.PhaseBooted},
		"a slot in Booting may boot under pause":                          {told(newNode(1), holding(1, v1alpha1.SlotBooting), paused), imageB, v1alpha1.PhaseBooted},
		"a slot in Booting keeps its node, selected or not":               {told(newNode(1, unselected), holding(1, v1alpha1.SlotBooting)), imageB, v1alpha1.PhaseBooted},
		"an image is not confirmed while its node soaks":                  {told(newNode(1, updated, on(imageB, v1alpha1.PhaseBooted)), holding(1, v1alpha1.SlotSoaking)), imageB, v1alpha1.PhaseBooted},
		"nor while a node that reboots in its soak is away":               {told(newNode(1, updated, rebooted, on(imageB, v1alpha1.PhaseBooted), func(n *Node) { n.Status.NodeInfo.BootID = "boot-3" }), holding(1, v1alpha1.SlotSoaking)), imageB, v1alpha1.PhaseBooted},
		"a node back on the old image may not boot again":                 {told(newNode(1, rebooted, on(imageB, v1alpha1.PhaseBooted), func(n *Node) { n.Image.Status.BootID = "boot-2" }), holding(1, v1alpha1.SlotSoaking)), imageB, v1alpha1.PhaseStaged},
		"the end of the slot confirms the image":                          {told(newNode(1, updated, on(imageB, v1alpha1.PhaseBooted))), imageB, v1alpha1.PhaseStaged},
		"a slot in RollingBack goes back":                                 {told(newNode(1, updated, on(imageB, v1alpha1.PhaseBooted)), holding(1, v1alpha1.SlotRollingBack)), imageB, v1alpha1.PhaseRolledBack},
		"the right to boot ends with the slot":                            {told(newNode(1, on(imageA, v1alpha1.PhaseBooted)), paused), imageA, v1alpha1.PhaseStaged},
		"a NodeImage that was made anew under pause has what is staged":   {told(newNode(1, on("", v1alpha1.PhaseIdle)), paused), imageB, v1alpha1.PhaseStaged},
		"or what the node runs":                                           {told(newNode(1, updated, on("", v1alpha1.PhaseIdle)), paused), imageB, v1alpha1.PhaseStaged},
		"also of an earlier image":                                        {told(newNode(1, notStaged, on("", v1alpha1.PhaseIdle)), paused), imageA, v1alpha1.PhaseStaged},
		"not while nothing but the pull secret is missing":                {told(newNode(1, on("", v1alpha1.PhaseIdle)), func(s *Scope) { s.Problem = "missing" }), "", v1alpha1.PhaseIdle},
		"never what the node was installed with":                          {told(newNode(1, notStaged, on("", v1alpha1.PhaseIdle), installedWith("quay.example/base@"+digestOf(imageA))), paused), "", v1alpha1.PhaseIdle},
		"nor what somebody switched it to by tag":                         {told(newNode(1, notStaged, on("", v1alpha1.PhaseIdle), installedWith("registry.example:5000/os:latest")), paused), "", v1alpha1.PhaseIdle},
		"nor by a report from before the last boot":                       {told(newNode(1, rebooted, on("", v1alpha1.PhaseIdle)), paused), "", v1alpha1.PhaseIdle},
		"nor without a report":                                            {told(newNode(1, noAgent, on("", v1alpha1.PhaseIdle)), paused), "", v1alpha1.PhaseIdle},
		"nor for a rollout that is deleted":                               {told(newNode(1, on("", v1alpha1.PhaseIdle)), func(s *Scope) { s.Rollout.DeletionTimestamp = &metav1.Time{Time: start} }), "", v1alpha1.PhaseIdle},
		"a node that may stage is told the rollout's image, and no other": {told(newNode(1, notStaged, on("", v1alpha1.PhaseIdle))), imageB, v1alpha1.PhaseStaged},
		"another image takes the right to boot away": {
			told(newNode(1, on(imageB, v1alpha1.PhaseBooted)), holding(1, v1alpha1.SlotBooting), func(s *Scope) { s.Rollout.Spec.Image = imageC }), imageC, v1alpha1.PhaseStaged,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got := assign(test.scope).Images["worker-1"]
			if got.DesiredImage != test.image || got.Phase != test.phase || got.Rollout != "worker" {
				t.Errorf("got %+v, want %s %s", got, test.phase, test.image)
			}
		})
	}
}

func TestStagingIsBounded(t *testing.T) {
	nodes := []Node{newNode(1, noImage), newNode(2, noImage), newNode(3, notStaged), newNode(4), newNode(5, notStaged, notReady), newNode(6, notStaged, failedOnB), newNode(7, notStaged, unmanageable)}
	scope := newScope(nodes, func(s *Scope) { s.Rollout.Spec.MaxConcurrentStaging = 2 })
	images := assign(scope).Images
	staging := 0
	for _, name := range []string{"worker-1", "worker-2"} {
		if images[name].Phase == v1alpha1.PhaseStaged {
			staging++
		}
	}
	if staging != 1 {
		t.Errorf("%d nodes were told to stage, want 1: worker-3 is at it, 4 is done, 5 is down, 6 has failed, 7 cannot be updated", staging)
	}
}

// TestNodesInASlotDoNotWaitForOthers: one pass writes few NodeImages of others, and
// those that are to download first.
func TestNodesInASlotDoNotWaitForOthers(t *testing.T) {
	var nodes []Node
	for i := range 3 * maxOthers {
		nodes = append(nodes, newNode(i+1))
	}
	last := len(nodes)
	scope := newScope(nodes, holding(last, v1alpha1.SlotBooting))
	images := map[string]v1alpha1.NodeImageSpec{}
	var changed []*Node
	for i := range scope.Nodes {
		node := &scope.Nodes[i]
		changed = append(changed, node)
		images[node.Name] = v1alpha1.NodeImageSpec{Phase: v1alpha1.PhaseIdle}
		if i == last-2 {
			images[node.Name] = v1alpha1.NodeImageSpec{Phase: v1alpha1.PhaseStaged}
		}
	}
	got, atLeast := inTurn(scope, changed, images)
	if len(got) != maxOthersBeside+1 || atLeast != minOthersBeside+1 || got[0].Name != nodes[last-1].Name || got[1].Name != nodes[last-2].Name {
		t.Errorf("%d nodes, %d at least, first %s and %s", len(got), atLeast, got[0].Name, got[1].Name)
	}
}

func TestNodesThatAreLeftAlone(t *testing.T) {
	answer := assign(newScope([]Node{newNode(1, claimed), newNode(2, unselected), newNode(3, unselected, noImage)}))
	if len(answer.Images) != 0 {
		t.Errorf("told %v, want nothing", answer.Images)
	}
	if diff := cmp.Diff([]string{"worker-2"}, answer.Released); diff != "" {
		t.Errorf("released (-want +got):\n%s", diff)
	}
}

func TestAdvance(t *testing.T) {
	drained := outcome{isDrained: true}
	later := func(d time.Duration) func(*Scope) { return func(s *Scope) { s.Now = start.Add(d) } }
	soak := func(d time.Duration) func(*Scope) {
		return func(s *Scope) { s.Rollout.Spec.Soak = &metav1.Duration{Duration: d} }
	}
	recalled := func(n *Node) { n.Image.Spec.Phase, n.Image.Spec.DesiredImage = v1alpha1.PhaseStaged, imageC }
	unseen := func(n *Node) { n.Image.Generation = 2 }
	toldAt := func(after time.Duration) func(*Node) {
		return func(n *Node) {
			n.Image.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: string(fieldOwner), Time: &metav1.Time{Time: start.Add(after)}}}
		}
	}
	ordered := func(n *Node) { n.Image.Spec.Phase = v1alpha1.PhaseBooted }
	softly := func(n *Node) {
		n.Status.NodeInfo.BootID, n.Image.Status.BootID, n.Image.Status.SoftReboots = "boot-1", "boot-1", 1
	}
	skipping := func(s *Scope) { s.Rollout.Spec.Drain.OnTimeout = v1alpha1.DrainSkip }
	changedAt := func(d time.Duration) func(*Node) {
		return func(n *Node) { n.Status.Conditions[0].LastTransitionTime = metav1.NewTime(start.Add(d)) }
	}
	noRollback := func(s *Scope) { off := false; s.Rollout.Spec.Rollback.Enabled = &off }
	const freed = v1alpha1.SlotPhase("")
	tests := map[string]struct {
		phase   v1alpha1.SlotPhase
		node    Node
		result  outcome
		changes []func(*Scope)
		want    v1alpha1.SlotPhase
		message string
	}{
		"pods are left: wait and say which":                 {v1alpha1.SlotDraining, newNode(1), outcome{blocked: "waits for a/b"}, nil, v1alpha1.SlotDraining, "waits for a/b"},
		"the drain goes on after its deadline":              {v1alpha1.SlotDraining, newNode(1), outcome{blocked: "x"}, []func(*Scope){later(2 * time.Hour)}, v1alpha1.SlotDraining, "x"},
		"drained: boot":                                     {v1alpha1.SlotDraining, newNode(1), drained, nil, v1alpha1.SlotBooting, ""},
		"drained, but not Ready any more: no order to boot": {v1alpha1.SlotDraining, newNode(1, notReady), drained, nil, v1alpha1.SlotDraining, "drained; waits for the node to be Ready before it reboots: "},
		"drained under pause: boot":                         {v1alpha1.SlotDraining, newNode(1), drained, []func(*Scope){paused}, v1alpha1.SlotBooting, ""},
		"drained, another image: back":                      {v1alpha1.SlotDraining, newNode(1), drained, []func(*Scope){withImage(imageC)}, v1alpha1.SlotSoaking, ""},
		"drain too long under Skip: back":                   {v1alpha1.SlotDraining, newNode(1), outcome{blocked: "x"}, []func(*Scope){later(2 * time.Hour), skipping}, v1alpha1.SlotSoaking, ""},
		"drained too late under Skip: boot all the same":    {v1alpha1.SlotDraining, newNode(1), drained, []func(*Scope){later(2 * time.Hour), skipping}, v1alpha1.SlotBooting, ""},
		"a gate is not met: wait and say which":             {v1alpha1.SlotBooting, newNode(1, updated), outcome{gate: "gate app: x"}, nil, v1alpha1.SlotBooting, "on the image; waits for gate app: x"},
		"a gate is not met for too long: go back":           {v1alpha1.SlotBooting, newNode(1, updated), outcome{gate: "gate app: x"}, []func(*Scope){later(20 * time.Minute)}, v1alpha1.SlotRollingBack, "going back to the image before: after 20m0s it still waits for gate app: x"},
		"a gate is not met and rollback is off: keep":       {v1alpha1.SlotBooting, newNode(1, updated), outcome{gate: "gate app: x"}, []func(*Scope){later(20 * time.Minute), noRollback}, v1alpha1.SlotBooting, "on the image; waits for gate app: x"},
		"a soft reboot into the image: soak":                {v1alpha1.SlotBooting, newNode(1, updated, softly), outcome{}, nil, v1alpha1.SlotSoaking, ""},
		"going back: wait":                                  {v1alpha1.SlotRollingBack, newNode(1, updated, func(n *Node) { n.Status.NodeInfo.BootID = "boot-1" }), outcome{}, nil, v1alpha1.SlotRollingBack, ""},
		"back on the image before: return":                  {v1alpha1.SlotRollingBack, newNode(1, rebooted, func(n *Node) { n.Image.Status.BootID = "boot-2" }), outcome{}, nil, v1alpha1.SlotSoaking, ""},
		"going back takes too long: keep and say so":        {v1alpha1.SlotRollingBack, newNode(1, notReady), outcome{}, []func(*Scope){later(15 * time.Minute)}, v1alpha1.SlotRollingBack, "not back on the image before after 15m0s: node Ready=Unknown, agent: no report"},
		"draining, rollout deleted: back":                   {v1alpha1.SlotDraining, newNode(1), outcome{}, []func(*Scope){withImage("")}, v1alpha1.SlotSoaking, ""},
		"rebooted into the image during the drain: arrived": {v1alpha1.SlotDraining, newNode(1, updated), outcome{}, nil, v1alpha1.SlotSoaking, ""},
		"booting: wait":                                     {v1alpha1.SlotBooting, newNode(1, ordered), outcome{}, nil, v1alpha1.SlotBooting, ""},
		"Ready on the image after a reboot: soak":           {v1alpha1.SlotBooting, newNode(1, updated), outcome{}, nil, v1alpha1.SlotSoaking, ""},
		"on the image but not Ready: wait":                  {v1alpha1.SlotBooting, newNode(1, updated, notReady), outcome{}, nil, v1alpha1.SlotBooting, ""},
		"the agent claims the image without a reboot: wait": {v1alpha1.SlotBooting, newNode(1, func(n *Node) { n.Image.Status.Booted = hostImage(imageB, false) }), outcome{}, nil, v1alpha1.SlotBooting, ""},
		"the agent is back before the kubelet: wait":        {v1alpha1.SlotBooting, newNode(1, updated, func(n *Node) { n.Status.NodeInfo.BootID = "boot-1" }), outcome{}, nil, v1alpha1.SlotBooting, ""},
		"the kubelet is back before the agent: wait":        {v1alpha1.SlotBooting, newNode(1, rebooted), outcome{}, nil, v1alpha1.SlotBooting, ""},
		"back on the old image, failed for good: return":    {v1alpha1.SlotBooting, newNode(1, failedOnB), outcome{}, nil, v1alpha1.SlotSoaking, ""},
		"failed for good and not Ready: keep the slot":      {v1alpha1.SlotBooting, newNode(1, failedOnB, notReady), outcome{}, nil, v1alpha1.SlotBooting, ""},
		"too long: keep the slot and say so":                {v1alpha1.SlotBooting, newNode(1, notReady), outcome{}, []func(*Scope){later(15 * time.Minute)}, v1alpha1.SlotBooting, "not Ready on the image after 15m0s: node Ready=Unknown, agent: no report"},
		"another image, the agent has seen it: return":      {v1alpha1.SlotBooting, newNode(1, recalled), outcome{}, []func(*Scope){withImage(imageC)}, v1alpha1.SlotSoaking, ""},
		"another image, the agent has not seen it: wait":    {v1alpha1.SlotBooting, newNode(1, recalled, unseen), outcome{}, []func(*Scope){withImage(imageC)}, v1alpha1.SlotBooting, ""},
		"another image, the order still stands: wait":       {v1alpha1.SlotBooting, newNode(1, ordered), outcome{}, []func(*Scope){withImage(imageC)}, v1alpha1.SlotBooting, ""},
		"another image, the agent does not answer: say so":  {v1alpha1.SlotBooting, newNode(1, recalled, unseen, toldAt(time.Minute)), outcome{}, []func(*Scope){withImage(imageC), later(3 * time.Minute)}, v1alpha1.SlotBooting, "since 2026-05-01T12:01:00Z: the image is not the rollout's any more, and the agent of worker-1 has to confirm that it will not reboot for " + imageB + "; node Ready=True, agent: no report; " + adviceRecall},
		"another image, it was told just now: wait":         {v1alpha1.SlotBooting, newNode(1, recalled, unseen, toldAt(2*time.Minute)), outcome{}, []func(*Scope){withImage(imageC), later(3 * time.Minute)}, v1alpha1.SlotBooting, ""},
		"another image after long, it was told just now":    {v1alpha1.SlotBooting, newNode(1, recalled, unseen, toldAt(time.Hour)), outcome{}, []func(*Scope){withImage(imageC), later(time.Hour)}, v1alpha1.SlotBooting, awaitsRecall},
		"another image, the node is down on its way back":   {v1alpha1.SlotRollingBack, newNode(1, updated, notReady, toldAt(time.Minute)), outcome{}, []func(*Scope){withImage(imageC), later(time.Hour)}, v1alpha1.SlotRollingBack, "since 2026-05-01T12:01:00Z: the image is not the rollout's any more, and the agent of worker-1 has to confirm that it will not reboot for " + imageB + "; node Ready=Unknown, agent: no report; " + adviceRecall},
		"no soak: free": {v1alpha1.SlotSoaking, newNode(1, updated), outcome{}, nil, freed, ""},
		"soaking: wait": {v1alpha1.SlotSoaking, newNode(1, updated), outcome{}, []func(*Scope){soak(5 * time.Minute)}, v1alpha1.SlotSoaking, ""},
		"soaked: free":  {v1alpha1.SlotSoaking, newNode(1, updated), outcome{}, []func(*Scope){soak(5 * time.Minute), later(4 * time.Minute)}, freed, ""},
		"Ready again in the soak: from the start":          {v1alpha1.SlotSoaking, newNode(1, updated, func(n *Node) { n.Status.Conditions[0].LastTransitionTime = metav1.NewTime(start) }), outcome{}, []func(*Scope){soak(5 * time.Minute), later(4 * time.Minute)}, v1alpha1.SlotSoaking, ""},
		"not Ready in the soak: wait":                      {v1alpha1.SlotSoaking, newNode(1, updated, notReady), outcome{}, []func(*Scope){later(10 * time.Minute)}, v1alpha1.SlotSoaking, "waits for the node to be Ready"},
		"not Ready in the soak for too long: go back":      {v1alpha1.SlotSoaking, newNode(1, updated, notReady), outcome{}, []func(*Scope){later(20 * time.Minute)}, v1alpha1.SlotRollingBack, "going back to the image before: the node does not stay Ready in its soak"},
		"not Ready late in the soak: wait":                 {v1alpha1.SlotSoaking, newNode(1, updated, notReady, changedAt(50*time.Minute)), outcome{}, []func(*Scope){soak(time.Hour), later(time.Hour)}, v1alpha1.SlotSoaking, "waits for the node to be Ready"},
		"now Ready, now not, past soak and deadline: back": {v1alpha1.SlotSoaking, newNode(1, updated, notReady, changedAt(79*time.Minute)), outcome{}, []func(*Scope){soak(time.Hour), later(80 * time.Minute)}, v1alpha1.SlotRollingBack, "going back to the image before: the node does not stay Ready in its soak"},
		"not Ready for too long, rollback is off: keep":    {v1alpha1.SlotSoaking, newNode(1, updated, notReady), outcome{}, []func(*Scope){later(time.Hour), noRollback}, v1alpha1.SlotSoaking, "waits for the node to be Ready"},
		"rebooted in the soak, no report yet: wait":        {v1alpha1.SlotSoaking, newNode(1, rebooted, readySince(0)), outcome{}, nil, v1alpha1.SlotSoaking, "waits for the agent's report from this boot"},
		"rebooted in the soak, no report for long: wait":   {v1alpha1.SlotSoaking, newNode(1, rebooted), outcome{}, nil, v1alpha1.SlotSoaking, missedReport},
		"returned on the old image: free without a soak":   {v1alpha1.SlotSoaking, newNode(1), outcome{}, []func(*Scope){soak(time.Hour)}, freed, ""},
		"withdrawn: free as soon as Ready, report or not":  {v1alpha1.SlotSoaking, newNode(1, rebooted), outcome{}, []func(*Scope){withImage(imageC)}, freed, ""},
		"withdrawn and not Ready: wait":                    {v1alpha1.SlotSoaking, newNode(1, notReady), outcome{}, []func(*Scope){withImage(imageC)}, v1alpha1.SlotSoaking, "waits for the node to be Ready"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			scope := newScope([]Node{test.node}, append(test.changes, holding(1, test.phase))...)
			next := advance(scope, scope.Rollout.Status.Slots[0], &scope.Nodes[0], test.result)
			var phase v1alpha1.SlotPhase
			var message string
			if next != nil {
				phase, message = next.Phase, next.Message
			}
			if phase != test.want || message != test.message {
				t.Errorf("got phase %q, message %q; want %q, %q", phase, message, test.want, test.message)
			}
		})
	}
	t.Run("the node is gone: free", func(t *testing.T) {
		scope := newScope(nil, holding(1, v1alpha1.SlotBooting))
		if next := advance(scope, scope.Rollout.Status.Slots[0], nil, outcome{}); next != nil {
			t.Errorf("slot %+v is left", next)
		}
	})
}

func TestConditions(t *testing.T) {
	tests := map[string]struct {
		scope *Scope
		want  map[string]string
	}{
		"nothing to do":      {newScope([]Node{newNode(1, updated)}), map[string]string{"Available": "True AllAvailable", "Progressing": "False Updated", "Degraded": "False AsExpected", "Paused": "False NotPaused"}},
		"staging":            {newScope([]Node{newNode(1, notStaged)}), map[string]string{"Available": "True AllAvailable", "Progressing": "True Staging", "Degraded": "False AsExpected", "Paused": "False NotPaused"}},
		"held by pause":      {newScope([]Node{newNode(1)}, paused), map[string]string{"Available": "True AllAvailable", "Progressing": "False Paused", "Degraded": "False AsExpected", "Paused": "True Paused"}},
		"one away":           {newScope([]Node{newNode(1, notReady), newNode(2)}, holding(1, v1alpha1.SlotBooting)), map[string]string{"Available": "True WithinMaxUnavailable", "Progressing": "True Updating", "Degraded": "False AsExpected", "Paused": "False NotPaused"}},
		"too many away":      {newScope([]Node{newNode(1, notReady), newNode(2, cordoned)}), map[string]string{"Available": "False TooManyUnavailable", "Progressing": "False MaxUnavailableUsedUp", "Degraded": "False AsExpected", "Paused": "False NotPaused"}},
		"a node failed":      {newScope([]Node{newNode(1, failedOnB), newNode(2)}), map[string]string{"Available": "True AllAvailable", "Progressing": "False ImageRejected", "Degraded": "True ImageRejected", "Paused": "False NotPaused"}},
		"a drain is blocked": {newScope([]Node{newNode(1, cordoned), newNode(2)}, holding(1, v1alpha1.SlotDraining), func(s *Scope) { s.Now = start.Add(2 * time.Hour) }), map[string]string{"Available": "True WithinMaxUnavailable", "Progressing": "True Updating", "Degraded": "True DrainBlocked", "Paused": "False NotPaused"}},
		"a node stays away":  {newScope([]Node{newNode(1, notReady), newNode(2)}, holding(1, v1alpha1.SlotBooting), func(s *Scope) { s.Now = start.Add(2 * time.Hour) }), map[string]string{"Available": "True WithinMaxUnavailable", "Progressing": "True Updating", "Degraded": "True ImageRejected", "Paused": "False NotPaused"}},
		"no pull secret":     {newScope([]Node{newNode(1, notStaged)}, func(s *Scope) { s.Problem = "Secret a/b does not exist" }), map[string]string{"Available": "True AllAvailable", "Progressing": "False PullSecretMissing", "Degraded": "True PullSecretMissing", "Paused": "False NotPaused"}},
		"a node of two":      {newScope([]Node{newNode(1, claimed), newNode(2, updated)}), map[string]string{"Available": "True AllAvailable", "Progressing": "False Updated", "Degraded": "True NodeConflict", "Paused": "False NotPaused"}},
		"no image, no nodes": {newScope(nil, func(s *Scope) { s.Rollout.Spec.Image = "" }), map[string]string{"Available": "True AllAvailable", "Progressing": "False NoImage", "Degraded": "False AsExpected", "Paused": "False NotPaused"}},
		"no nodes":           {newScope(nil), map[string]string{"Available": "True AllAvailable", "Progressing": "False NoNodes", "Degraded": "False AsExpected", "Paused": "False NotPaused"}},
		"only another's":     {newScope([]Node{newNode(1, claimed)}), map[string]string{"Available": "True AllAvailable", "Progressing": "False NoNodes", "Degraded": "True NodeConflict", "Paused": "False NotPaused"}},
		"no nodes by a selector that is not valid": {newScope(nil, func(s *Scope) { s.SelectorProblem = "spec.nodeSelector is not valid" }), map[string]string{"Available": "True AllAvailable", "Progressing": "False InvalidSelector", "Degraded": "True InvalidSelector", "Paused": "False NotPaused"}},
		"a gate that is not valid":                 {newScope([]Node{newNode(1)}, gated(podsGate("a b"))), map[string]string{"Available": "True AllAvailable", "Progressing": "False InvalidGate", "Degraded": "True InvalidGate", "Paused": "False NotPaused"}},
		"a registry is away": {newScope([]Node{newNode(1, notStaged, func(n *Node) {
			n.Image.Status.LastAttempt = &v1alpha1.Attempt{Image: imageB, Class: "Registry", Failures: 3}
		})}), map[string]string{"Available": "True AllAvailable", "Progressing": "True Staging", "Degraded": "True StagingFailing", "Paused": "False NotPaused"}},
		"everything is staged": {newScope([]Node{newNode(1)}, stageOnly), map[string]string{"Available": "True AllAvailable", "Progressing": "False StageOnly", "Degraded": "False AsExpected", "Paused": "False NotPaused"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got := map[string]string{}
			for _, condition := range statusOf(test.scope, test.scope.Rollout.Status.Slots, schedule(test.scope).Held).Conditions {
				got[condition.Type] = string(condition.Status) + " " + condition.Reason
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("conditions (-want +got):\n%s", diff)
			}
		})
	}
}

// A rollout without nodes names the selector that has none, and says whether others do.
func TestARolloutWithoutNodesNamesItsSelector(t *testing.T) {
	for name, test := range map[string]struct {
		scope *Scope
		want  string
	}{
		"nothing matches":        {newScope(nil), "spec.nodeSelector (pool=worker) selects no node"},
		"one that it gave away":  {newScope([]Node{newNode(1, unselected)}), "spec.nodeSelector (pool=worker) selects no node"},
		"they are another's":     {newScope([]Node{newNode(1, claimed), newNode(2, claimed)}), "spec.nodeSelector (pool=worker) selects only nodes that belong to other ImageRollouts: 2"},
		"there is no selector":   {newScope(nil, func(s *Scope) { s.Rollout.Spec.NodeSelector = nil }), "spec.nodeSelector is not set"},
		"it is paused meanwhile": {newScope(nil, paused), "spec.nodeSelector (pool=worker) selects no node"},
	} {
		t.Run(name, func(t *testing.T) {
			held := schedule(test.scope).Held
			got := progressingCondition(test.scope, countNodes(test.scope), nil, held)
			if got.Reason != "NoNodes" || got.Status != metav1.ConditionFalse || !strings.HasPrefix(got.Message, test.want) {
				t.Errorf("%s %s: %q, want %q", got.Status, got.Reason, got.Message, test.want)
			}
		})
	}
}
