package controller

import (
	"context"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/imagemode/imagemode/api/v1alpha1"
)

// rounds lets controller and machines go on.
func (c *cluster) rounds(count int) {
	for range count {
		c.reconcile()
		for name := range c.machines {
			c.act(name)
		}
		c.now = c.now.Add(10 * time.Second)
	}
}

func (c *cluster) to(image string) {
	c.changeRollout(func(s *v1alpha1.ImageRolloutSpec) { s.Image = image })
}

func TestInstallingTouchesNoNode(t *testing.T) {
	c := newCluster(t, 2)
	c.rounds(5)
	for name := range c.machines {
		if image := c.image(name); image == nil || image.Spec.Phase != v1alpha1.PhaseIdle {
			t.Errorf("NodeImage %s: %+v, want Idle", name, image)
		}
		if c.node(name).Spec.Unschedulable || c.machines[name].boots != 1 {
			t.Errorf("%s was touched", name)
		}
	}
}

func TestAPausedRolloutIsReleased(t *testing.T) {
	c := newCluster(t, 2)
	c.changeRollout(func(s *v1alpha1.ImageRolloutSpec) { s.Image, s.Paused = imageB, true })
	c.rounds(10)
	for name, m := range c.machines {
		if m.boots != 1 || m.staged != "" {
			t.Errorf("%s: %d boots, %q staged while paused", name, m.boots, m.staged)
		}
	}
	c.changeRollout(func(s *v1alpha1.ImageRolloutSpec) { s.Paused = false })
	c.settle()
	c.expectUpdated(imageB)
}

// TestARolloutKeepsItsNodesUnderASelectorThatIsNotValid: nothing happens to them, no
// other rollout gets them, and it is said.
func TestARolloutKeepsItsNodesUnderASelectorThatIsNotValid(t *testing.T) {
	c := newCluster(t, 2)
	c.to(imageA)
	c.settle()
	right := c.rollout().Spec.NodeSelector
	c.changeRollout(func(s *v1alpha1.ImageRolloutSpec) {
		s.NodeSelector, s.Image = &metav1.LabelSelector{MatchLabels: map[string]string{"a b": "c"}}, imageB
	})
	c.create(&v1alpha1.ImageRollout{ObjectMeta: metav1.ObjectMeta{Name: "other", UID: "other-uid", Generation: 1}, Spec: v1alpha1.ImageRolloutSpec{
		NodeSelector: right, MaxConcurrentStaging: 10, Image: imageC,
	}})
	c.settle()
	if _, err := c.controller.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKey{Name: "other"}}); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"worker-1", "worker-2"} {
		if image := c.image(name); image == nil || image.Spec.Rollout != "worker" || image.Spec.DesiredImage != imageA {
			t.Errorf("%s: %+v", name, image)
		}
	}
	status := c.rollout().Status
	degraded := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionDegraded)
	if degraded == nil || degraded.Reason != "InvalidSelector" || !strings.Contains(degraded.Message, "spec.nodeSelector") || status.Nodes.Total != 2 {
		t.Errorf("status %+v", status)
	}
	if err := c.client.Delete(t.Context(), &v1alpha1.ImageRollout{ObjectMeta: metav1.ObjectMeta{Name: "other"}}); err != nil {
		t.Fatal(err)
	}
	c.changeRollout(func(s *v1alpha1.ImageRolloutSpec) { s.NodeSelector = right })
	c.settle()
	c.expectUpdated(imageB)
}

func TestAFailedImageStopsAtTheFirstNode(t *testing.T) {
	c := newCluster(t, 3)
	c.to(imageC)
	c.settle()
	rebooted := 0
	for name, m := range c.machines {
		rebooted += m.boots - 1
		if c.node(name).Spec.Unschedulable {
			t.Errorf("%s is left cordoned", name)
		}
	}
	if rebooted != 1 || c.rollout().Status.Nodes.Failed != 1 {
		t.Errorf("%d nodes were rebooted, status %+v", rebooted, c.rollout().Status.Nodes)
	}
}

func TestABudgetBlocksTheDrainAndIsNamed(t *testing.T) {
	c := newCluster(t, 2)
	recorder := events.NewFakeRecorder(1000)
	c.controller.Recorder = recorder
	c.blocked["pod-worker-1"] = true
	c.to(imageB)
	c.rounds(10)
	const why = "default/pod-worker-1 (no more disruptions allowed: The disruption budget web needs 1 healthy pods and has 1 currently"
	slots := c.rollout().Status.Slots
	if len(slots) != 1 || slots[0].Phase != v1alpha1.SlotDraining || !strings.Contains(slots[0].Message, why) {
		t.Fatalf("slots %+v", slots)
	}
	isTold := false
	for len(recorder.Events) > 0 {
		event := <-recorder.Events
		isTold = isTold || strings.HasPrefix(event, "Warning DrainBlocked ") && strings.Contains(event, why)
	}
	if !isTold {
		t.Error("no event names what blocks")
	}
	c.now = c.now.Add(2 * time.Hour)
	c.rounds(2)
	isBlocked := false
	for _, condition := range c.rollout().Status.Conditions {
		isBlocked = isBlocked || condition.Reason == "DrainBlocked" && strings.Contains(condition.Message, why)
	}
	if !isBlocked {
		t.Errorf("conditions %+v", c.rollout().Status.Conditions)
	}
	delete(c.blocked, "pod-worker-1")
	c.settle()
	c.expectUpdated(imageB)
}

func TestADeletedRolloutGivesItsNodesBack(t *testing.T) {
	c := newCluster(t, 2)
	c.blocked["pod-worker-1"] = true
	c.to(imageB)
	c.rounds(10)
	if !c.node("worker-1").Spec.Unschedulable {
		t.Fatal("worker-1 is not cordoned: the test does not test anything")
	}
	if err := c.client.Delete(context.Background(), c.rollout()); err != nil {
		t.Fatal(err)
	}
	c.rounds(10)
	if c.node("worker-1").Spec.Unschedulable {
		t.Error("worker-1 is left cordoned")
	}
	if c.image("worker-1") != nil || c.image("worker-2") != nil {
		t.Error("NodeImages are left")
	}
}

func TestAnAdministratorsCordonStays(t *testing.T) {
	c := newCluster(t, 2) // the only node of a cluster is never cordoned
	c.administer("worker-1", true)
	c.changeRollout(func(s *v1alpha1.ImageRolloutSpec) { s.Image, s.MaxUnavailable = imageB, new(intstr.FromInt32(2)) })
	c.settle()
	c.expectUpdated(imageB) // compares with what the administrator wants
}

func TestANodeThatSomebodyUncordonsOnItsWayIsCordonedAgain(t *testing.T) {
	c := newCluster(t, 2)
	c.blocked["pod-worker-1"] = true
	c.to(imageB)
	c.rounds(3)
	c.administer("worker-1", false)
	if node := c.node("worker-1"); node.Spec.Unschedulable {
		t.Fatal("it was not uncordoned")
	}
	c.reconcile()
	if node := c.node("worker-1"); !node.Spec.Unschedulable {
		t.Error("it stays uncordoned, though its drain goes on")
	}
	clear(c.blocked)
	c.settle()
	c.expectUpdated(imageB)
}

// TestAStrayCordonIsTakenAway: a node with our mark and without a slot would stay
// cordoned for ever, if nothing is left to do for it.
func TestAStrayCordonIsTakenAway(t *testing.T) {
	c := newCluster(t, 2)
	c.to(imageB)
	c.settle()
	node := c.node("worker-1")
	node.Spec.Unschedulable = true
	metav1.SetMetaDataAnnotation(&node.ObjectMeta, annotationCordoned, "worker")
	other := c.node("worker-2")
	other.Spec.Unschedulable = true
	metav1.SetMetaDataAnnotation(&other.ObjectMeta, annotationCordoned, "another-rollout")
	for _, changed := range []*corev1.Node{node, other} {
		if err := c.client.Update(context.Background(), changed); err != nil {
			t.Fatal(err)
		}
	}
	c.reconcile()
	if c.node("worker-1").Spec.Unschedulable || !c.node("worker-2").Spec.Unschedulable {
		t.Errorf("worker-1 is cordoned: %t; worker-2, by another rollout: %t", c.node("worker-1").Spec.Unschedulable, c.node("worker-2").Spec.Unschedulable)
	}
}

// TestTheWorkloadGoesBeforeTheSystem, which it may need to end well.
func TestTheWorkloadGoesBeforeTheSystem(t *testing.T) {
	pod := func(name string, priority *int32) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PodSpec{Priority: priority}}
	}
	high, system := int32(1_000_000), systemPriority+1000
	tests := map[string]struct {
		going []*corev1.Pod
		first string
	}{
		"as long as there is any": {[]*corev1.Pod{pod("dns", &system), pod("web", nil), pod("db", &high)}, "web db"},
		"and then the system":     {[]*corev1.Pod{pod("dns", &system), pod("ingress", &system)}, "dns ingress"},
		"nothing is left":         {nil, ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, pod := range firstToGo(test.going) {
				got = append(got, pod.Name)
			}
			if strings.Join(got, " ") != test.first {
				t.Errorf("first go %v, want %s", got, test.first)
			}
		})
	}
}

func TestDrainLeavesWhatItMust(t *testing.T) {
	isController := true
	owned := func(kind string) []metav1.OwnerReference {
		return []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: kind, Name: "x", UID: "x", Controller: &isController}}
	}
	no := false
	tests := map[string]struct {
		pod      corev1.Pod
		settings v1alpha1.DrainSpec
		stays    bool
		refusal  string
	}{
		"a replica goes":               {corev1.Pod{ObjectMeta: metav1.ObjectMeta{OwnerReferences: owned("ReplicaSet")}}, v1alpha1.DrainSpec{}, false, ""},
		"a DaemonSet's pod stays":      {corev1.Pod{ObjectMeta: metav1.ObjectMeta{OwnerReferences: owned("DaemonSet")}}, v1alpha1.DrainSpec{}, true, ""},
		"a static pod stays":           {corev1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{corev1.MirrorPodAnnotationKey: "x"}}}, v1alpha1.DrainSpec{}, true, ""},
		"a finished pod stays":         {corev1.Pod{Status: corev1.PodStatus{Phase: corev1.PodSucceeded}}, v1alpha1.DrainSpec{}, true, ""},
		"a bare pod blocks":            {corev1.Pod{}, v1alpha1.DrainSpec{}, false, "no controller would replace it"},
		"a bare pod goes with force":   {corev1.Pod{}, v1alpha1.DrainSpec{Force: true}, false, ""},
		"an emptyDir goes":             {corev1.Pod{ObjectMeta: metav1.ObjectMeta{OwnerReferences: owned("ReplicaSet")}, Spec: withEmptyDir()}, v1alpha1.DrainSpec{}, false, ""},
		"an emptyDir blocks when told": {corev1.Pod{ObjectMeta: metav1.ObjectMeta{OwnerReferences: owned("ReplicaSet")}, Spec: withEmptyDir()}, v1alpha1.DrainSpec{DeleteEmptyDir: &no}, false, "volume scratch is an emptyDir"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := staysOnNode(&test.pod); got != test.stays {
				t.Errorf("stays = %t, want %t", got, test.stays)
			}
			if got := refusal(&test.pod, test.settings); !strings.HasPrefix(got, test.refusal) || (test.refusal == "") != (got == "") && !test.stays {
				t.Errorf("refusal %q, want %q", got, test.refusal)
			}
		})
	}
}

func withEmptyDir() corev1.PodSpec {
	return corev1.PodSpec{Volumes: []corev1.Volume{{Name: "scratch", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}}
}

func TestPullSecretReachesTheAgents(t *testing.T) {
	c := newCluster(t, 1)
	content := []byte(`{"auths":{}}`)
	c.changeRollout(func(s *v1alpha1.ImageRolloutSpec) {
		s.Image, s.PullSecretRef = imageB, &v1alpha1.SecretReference{Name: "pull", Namespace: testNamespace}
	})
	c.rounds(2)
	if image := c.image("worker-1"); image.Spec.Phase != v1alpha1.PhaseIdle {
		t.Errorf("staging began without the pull secret: %+v", image.Spec)
	}
	c.create(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "pull", Namespace: testNamespace}, Data: map[string][]byte{corev1.DockerConfigJsonKey: content}})
	c.settle()
	carried := &corev1.Secret{}
	if err := c.client.Get(context.Background(), client.ObjectKey{Namespace: testNamespace, Name: nodePullSecret}, carried); err != nil {
		t.Fatal(err)
	}
	if string(carried.Data["worker"]) != string(content) || len(c.image("worker-1").Spec.PullSecretHash) != 64 {
		t.Errorf("carried %q, hash %q", carried.Data, c.image("worker-1").Spec.PullSecretHash)
	}
	c.changeRollout(func(s *v1alpha1.ImageRolloutSpec) { s.PullSecretRef = nil })
	c.settle()
	if err := c.client.Get(context.Background(), client.ObjectKeyFromObject(carried), carried); client.IgnoreNotFound(err) != nil || err == nil {
		t.Errorf("Secret %s is left: %v", nodePullSecret, err)
	}
}

// TestAnOrderIsTakenBackOnlyWhenTheAgentHasSeenIt: an agent that has asked for
// its reboot does not look any more, and the node must keep its slot.
func TestAnOrderIsTakenBackOnlyWhenTheAgentHasSeenIt(t *testing.T) {
	c := newCluster(t, 2)
	c.to(imageB)
	for range 20 {
		if c.machines["worker-1"].leaving == "" {
			c.rounds(1)
		}
	}
	c.to(imageA)
	for range 5 {
		c.reconcile()
	}
	slots := c.rollout().Status.Slots
	if len(slots) != 1 || slots[0].Phase != v1alpha1.SlotBooting || !c.node("worker-1").Spec.Unschedulable {
		t.Fatalf("slots %+v, want worker-1 in Booting and cordoned", slots)
	}
	if image := c.image("worker-1"); image.Spec.Phase != v1alpha1.PhaseStaged || image.Spec.DesiredImage != imageA {
		t.Errorf("NodeImage %+v, want the order taken back", image.Spec)
	}
	c.settle() // checks that the reboot comes within the slot
	c.expectUpdated(imageA)
}

// TestAnOrderToBootIsGivenOnTheLatestReport: between the look at a report and the order
// the agent may have reported that the image is gone from where it was staged.
func TestAnOrderToBootIsGivenOnTheLatestReport(t *testing.T) {
	c := newCluster(t, 1)
	c.to(imageB)
	c.rounds(2)
	seen := &Node{Node: c.node("worker-1"), Image: c.image("worker-1")}
	c.machines["worker-1"].staged = ""
	c.report("worker-1")
	for phase, isRefused := range map[v1alpha1.NodeImagePhase]bool{v1alpha1.PhaseBooted: true, v1alpha1.PhaseRolledBack: true, v1alpha1.PhaseStaged: false} {
		spec := seen.Image.Spec
		spec.Phase = phase
		if err := c.controller.applyImage(t.Context(), seen, spec); apierrors.IsConflict(err) != isRefused {
			t.Errorf("%s on an old report: %v", phase, err)
		}
	}
}

// TestWritesPerNode counts what a rollout costs the API server: every write of
// the controller to Nodes, NodeImages and the ImageRollout. The agent's own are
// counted in its package, three per node; together they must not exceed 12.
func TestWritesPerNode(t *testing.T) {
	const nodes, agent, limit = 10, 3, 12
	c := newCluster(t, nodes)
	c.changeRollout(func(s *v1alpha1.ImageRolloutSpec) { s.Soak = &metav1.Duration{Duration: time.Minute} })
	c.settle()
	before := c.writes
	c.to(imageB)
	c.settle()
	c.expectUpdated(imageB)
	perNode := float64(c.writes-c.evictions-before)/nodes + agent
	t.Logf("%d writes of the controller for %d nodes, with the agent's %.1f per node", c.writes-c.evictions-before, nodes, perNode)
	if perNode > limit {
		t.Errorf("%.1f writes per node, want %d at most", perNode, limit)
	}
	before = c.writes
	c.rounds(5)
	if c.writes != before {
		t.Errorf("%d writes though nothing changed", c.writes-before)
	}
}

func TestASingleNodeIsNotDrained(t *testing.T) {
	c := newCluster(t, 1)
	c.blocked["pod-worker-1"] = true
	c.to(imageB)
	c.settle()
	c.expectUpdated(imageB)
}

func TestADrainThatTakesTooLong(t *testing.T) {
	tests := map[string]struct {
		policy v1alpha1.DrainTimeoutPolicy
		want   string
	}{
		"is halted":                              {v1alpha1.DrainHalt, "worker-1"},
		"lets the next node go first under Skip": {v1alpha1.DrainSkip, "worker-2"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t, 2)
			c.blocked["pod-worker-1"] = true
			c.changeRollout(func(s *v1alpha1.ImageRolloutSpec) {
				s.Image, s.Drain = imageB, v1alpha1.DrainSpec{OnTimeout: test.policy, Timeout: &metav1.Duration{Duration: 5 * time.Minute}}
			})
			for range 60 {
				if slots := c.rollout().Status.Slots; len(slots) == 1 && slots[0].Phase == v1alpha1.SlotBooting {
					break
				}
				c.rounds(1)
			}
			skipped := c.rollout().Status.Skipped
			if isSkipped := len(skipped) == 1 && strings.Contains(skipped[0].Message, "default/pod-worker-1"); isSkipped != (test.policy == v1alpha1.DrainSkip) {
				t.Errorf("skipped %+v", skipped)
			}
			if slots := c.rollout().Status.Slots; len(slots) != 1 || slots[0].Node != test.want {
				t.Errorf("slots %+v, want one of %s", slots, test.want)
			}
			delete(c.blocked, "pod-worker-1")
			c.settle()
			c.expectUpdated(imageB)
		})
	}
	t.Run("deletes what may not be evicted under Force", func(t *testing.T) {
		c := newCluster(t, 2)
		c.blocked["pod-worker-1"] = true
		c.changeRollout(func(s *v1alpha1.ImageRolloutSpec) {
			s.Image, s.Drain = imageB, v1alpha1.DrainSpec{OnTimeout: v1alpha1.DrainForce, Timeout: &metav1.Duration{Duration: 5 * time.Minute}}
		})
		c.settle()
		c.expectUpdated(imageB)
	})
}

func TestAGateThatIsNotMetSendsTheNodeBack(t *testing.T) {
	c := newCluster(t, 2)
	c.machines["worker-1"].isUnhealthyOn = imageD
	c.changeRollout(func(s *v1alpha1.ImageRolloutSpec) {
		s.Image, s.Gates = imageD, []v1alpha1.Gate{{Name: "app", NodeCondition: &v1alpha1.NodeConditionGate{Type: "AppHealthy"}}}
	})
	c.settle()
	status := c.rollout().Status
	if m := c.machines["worker-1"]; m.booted != imageA || m.boots != 3 || c.machines["worker-2"].boots != 1 {
		t.Errorf("worker-1 runs %s after %d boots, worker-2 has %d", m.booted, m.boots, c.machines["worker-2"].boots)
	}
	if len(status.Rejected) != 1 || status.Rejected[0].Digest != digestOf(imageD) || len(status.Slots) != 0 || c.node("worker-1").Spec.Unschedulable {
		t.Errorf("status %+v, want the image rejected and the node back in service", status)
	}
}

func TestHangingPodsAreExplained(t *testing.T) {
	told := func(changes ...func(*corev1.Pod)) *corev1.Pod {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: &metav1.Time{Time: start.Add(-time.Minute)}}}
		for _, change := range changes {
			change(pod)
		}
		return pod
	}
	well, dead := newNode(1), newNode(1, notReady)
	tests := map[string]struct {
		pod  *corev1.Pod
		node *Node
		want string
	}{
		"within its grace period":      {told(func(p *corev1.Pod) { p.DeletionTimestamp.Time = start.Add(time.Minute) }), &dead, ""},
		"held by a finalizer":          {told(func(p *corev1.Pod) { p.Finalizers = []string{"example.com/x"} }), &dead, "should have ended by 2026-05-01T11:59:00Z, finalizers hold it: example.com/x"},
		"on a node that is down":       {told(), &dead, "should have ended by 2026-05-01T11:59:00Z, but the node is not Ready and its kubelet does not end it: bring the node back, or taint it node.kubernetes.io/out-of-service if it is off for good"},
		"for no reason that one knows": {told(), &well, "should have ended by 2026-05-01T11:59:00Z, but the kubelet has not ended it"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := hanging(start, test.pod, test.node); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

// TestANodeThatFallsIllInItsSoakGoesBack: it is cordoned again before it is told.
func TestANodeThatFallsIllInItsSoakGoesBack(t *testing.T) {
	c := newCluster(t, 2)
	c.changeRollout(func(s *v1alpha1.ImageRolloutSpec) {
		s.Image, s.Soak = imageB, &metav1.Duration{Duration: time.Hour}
	})
	for range 60 {
		if slots := c.rollout().Status.Slots; len(slots) == 1 && slots[0].Phase == v1alpha1.SlotSoaking {
			break
		}
		c.rounds(1)
	}
	if c.node("worker-1").Spec.Unschedulable {
		t.Fatal("worker-1 is not back in service in its soak")
	}
	c.ail("worker-1", true)
	c.settle()
	status := c.rollout().Status
	if m := c.machines["worker-1"]; m.booted != imageA || m.boots != 3 || c.machines["worker-2"].boots != 1 {
		t.Errorf("worker-1 runs %s after %d boots, worker-2 has %d", m.booted, m.boots, c.machines["worker-2"].boots)
	}
	if len(status.Rejected) != 1 || len(status.Slots) != 0 || c.node("worker-1").Spec.Unschedulable {
		t.Errorf("status %+v, want the image rejected and the node back in service", status)
	}
}

// TestAnOldCacheGivesNoSlot: what the cache does not show yet keeps a node from
// being taken out of service all the same.
func TestAnOldCacheGivesNoSlot(t *testing.T) {
	tests := map[string]func(*cluster){
		"another node was cordoned, and one may be out of service": func(c *cluster) { c.administer("worker-2", true) },
		"the node whose turn it is has gone down": func(c *cluster) {
			node := c.node("worker-1")
			node.Status.Conditions[0].Status = corev1.ConditionUnknown
			if err := c.client.Status().Update(context.Background(), node); err != nil {
				t.Fatal(err)
			}
			c.machines["worker-1"].isDown = true
		},
	}
	for name, change := range tests {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t, 2)
			c.changeRollout(func(s *v1alpha1.ImageRolloutSpec) {
				s.Image, s.Paused, s.Mode = imageB, true, v1alpha1.RolloutModeStageOnly
			})
			c.rounds(5)
			c.ageNodes(func() { change(c) })
			c.changeRollout(func(s *v1alpha1.ImageRolloutSpec) { s.Paused, s.Mode = false, v1alpha1.RolloutModeFull })
			c.reconcile()
			if slots := c.rollout().Status.Slots; len(slots) > 0 {
				t.Errorf("slots %+v, want none", slots)
			}
		})
	}
}

// ageNodes lets something happen that the cache of nodes does not show from then on.
func (c *cluster) ageNodes(happen func()) {
	c.t.Helper()
	old := &corev1.NodeList{}
	if err := c.client.List(context.Background(), old); err != nil {
		c.t.Fatalf("%v", err)
	}
	happen()
	c.controller.Client = interceptor.NewClient(c.client, interceptor.Funcs{List: func(ctx context.Context, w client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
		if nodes, isNodes := list.(*corev1.NodeList); isNodes {
			old.DeepCopyInto(nodes)
			return nil
		}
		return w.List(ctx, list, options...)
	}})
}

// TestAnOldCacheChangesNoCordon: an administrator's cordon that the cache does not
// show is neither taken over nor taken away.
func TestAnOldCacheChangesNoCordon(t *testing.T) {
	c := newCluster(t, 2)
	c.to(imageB)
	for range 60 {
		if len(c.rollout().Status.Slots) == 1 {
			break
		}
		c.rounds(1)
	}
	const name = "worker-1"
	c.ageNodes(func() { c.administer(name, true) })
	c.reconcile()
	slots := c.rollout().Status.Slots
	if len(slots) != 1 || !slots[0].WasUnschedulable {
		t.Fatalf("slots %+v", slots)
	}
	c.controller.Client = c.client
	c.rounds(60)
	node := c.node(name)
	if _, isOurs := node.Annotations[annotationCordoned]; isOurs || !node.Spec.Unschedulable || len(c.rollout().Status.Slots) > 0 {
		t.Errorf("cordoned %t with annotations %v; slots %+v", node.Spec.Unschedulable, node.Annotations, c.rollout().Status.Slots)
	}
}

// TestANodeThatChangesItsPoolInASlotFinishes: another rollout selects the node
// meanwhile, and gets it afterwards.
func TestANodeThatChangesItsPoolInASlotFinishes(t *testing.T) {
	c := newCluster(t, 2)
	c.create(&v1alpha1.ImageRollout{ObjectMeta: metav1.ObjectMeta{Name: "other", UID: "other-uid", Generation: 1}, Spec: v1alpha1.ImageRolloutSpec{
		Image: imageC, NodeSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"pool": "other"}},
	}})
	c.to(imageB)
	for range 60 {
		if slots := c.rollout().Status.Slots; len(slots) == 1 && slots[0].Phase == v1alpha1.SlotBooting {
			break
		}
		c.rounds(1)
	}
	node := c.node("worker-1")
	node.Labels["pool"] = "other"
	if err := c.client.Update(t.Context(), node); err != nil {
		t.Fatal(err)
	}
	other := ctrl.Request{NamespacedName: client.ObjectKey{Name: "other"}}
	if _, err := c.controller.Reconcile(t.Context(), other); err != nil {
		t.Fatal(err)
	}
	if got := c.image("worker-1").Spec; got.Rollout != "worker" || got.DesiredImage != imageB {
		t.Fatalf("the other rollout has taken the node in its slot: %+v", got)
	}
	c.settle()
	if m := c.machines["worker-1"]; m.booted != imageB || c.node("worker-1").Spec.Unschedulable {
		t.Errorf("worker-1 runs %s, unschedulable %t", m.booted, c.node("worker-1").Spec.Unschedulable)
	}
	if _, err := c.controller.Reconcile(t.Context(), other); err != nil {
		t.Fatal(err)
	}
	if got := c.image("worker-1"); got == nil || got.Spec.Rollout != "other" {
		t.Errorf("afterwards the node is not the other rollout's: %+v", got)
	}
}

// TestWhenACacheOfNodesIsNew: it shows the last cordon, written a moment ago.
func TestWhenACacheOfNodesIsNew(t *testing.T) {
	node := newNode(1)
	node.ResourceVersion = "7"
	older := newNode(1)
	older.ResourceVersion = "6"
	var last lastCordon
	last.wrote(node.Node, start)
	for name, test := range map[string]struct {
		nodes []Node
		after time.Duration
		want  bool
	}{
		"the last write, at once":   {[]Node{newNode(2), node}, freshFor / 2, true},
		"the last write, later":     {[]Node{newNode(2), node}, freshFor, false},
		"the node as it was before": {[]Node{newNode(2), older}, freshFor / 2, false},
		"without the node":          {[]Node{newNode(2)}, freshFor / 2, false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := last.isShown(test.nodes, start.Add(test.after)); got != test.want {
				t.Errorf("new: %t, want %t", got, test.want)
			}
		})
	}
	if (&lastCordon{}).isShown([]Node{node}, start) {
		t.Error("new before anything was written")
	}
}
