package controller

import (
	"context"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/imagemode/imagemode/api/v1alpha1"
)

const testVolume = "kubernetes.io/csi/disks.example.com^vol-1"

func attached(names ...string) func(*Node) {
	return func(n *Node) {
		for _, name := range names {
			n.Status.VolumesAttached = append(n.Status.VolumesAttached, corev1.AttachedVolume{Name: corev1.UniqueVolumeName(name)})
		}
	}
}

// claiming is a pod of a DaemonSet with a volume of its own.
func claiming(phase corev1.PodPhase) *corev1.Pod {
	isController := true
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "logs", Namespace: "default", OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "DaemonSet", Name: "logs", UID: "logs-uid", Controller: &isController}}},
		Spec: corev1.PodSpec{NodeName: "worker-1", Volumes: []corev1.Volume{
			{Name: "data", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "logs"}}},
			{Name: "scratch", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
		}},
		Status: corev1.PodStatus{Phase: phase},
	}
}

func TestADrainWaitsForVolumes(t *testing.T) {
	tests := map[string]struct {
		volumes   []string
		pod       *corev1.Pod
		policy    v1alpha1.DrainTimeoutPolicy
		after     time.Duration
		isDrained bool
		blocked   string
	}{
		"none":                               {nil, nil, v1alpha1.DrainHalt, time.Second, true, ""},
		"one, at first":                      {[]string{testVolume}, nil, v1alpha1.DrainHalt, time.Second, false, ""},
		"one, for a while":                   {[]string{testVolume}, nil, v1alpha1.DrainHalt, time.Minute, false, testVolume + " (still attached"},
		"one, past the deadline under Halt":  {[]string{testVolume}, nil, v1alpha1.DrainHalt, 2 * time.Hour, false, testVolume},
		"one, past the deadline under Force": {[]string{testVolume}, nil, v1alpha1.DrainForce, 2 * time.Hour, true, testVolume},
		"that of a pod that stays":           {[]string{testVolume}, claiming(corev1.PodRunning), v1alpha1.DrainHalt, time.Minute, true, ""},
		"one more than those of such pods":   {[]string{testVolume, testVolume + "2"}, claiming(corev1.PodRunning), v1alpha1.DrainHalt, time.Minute, false, testVolume + "2"},
		"that of a pod that has ended":       {[]string{testVolume}, claiming(corev1.PodSucceeded), v1alpha1.DrainHalt, time.Minute, false, testVolume},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t, 1)
			pods := &corev1.Pod{}
			if err := c.client.DeleteAllOf(context.Background(), pods); err != nil {
				t.Fatal(err)
			}
			if test.pod != nil {
				c.create(test.pod)
			}
			scope := newScope([]Node{newNode(1, attached(test.volumes...))}, holding(1, v1alpha1.SlotDraining), func(s *Scope) {
				s.Rollout.Spec.Drain.OnTimeout, s.Now = test.policy, start.Add(test.after-time.Minute) // the slot is a minute old
			})
			c.controller.detaching.since(scope.Nodes[0].UID, scope.Now.Add(-min(test.after, time.Minute)))
			isDrained, blocked, err := c.controller.drain(context.Background(), scope, scope.Rollout.Status.Slots[0], &scope.Nodes[0])
			if err != nil || isDrained != test.isDrained || !strings.Contains(blocked, test.blocked) || (test.blocked == "") != (blocked == "") {
				t.Errorf("drained: %t, blocked %q, %v", isDrained, blocked, err)
			}
		})
	}
}

// A volume that is attached while the node reboots could not be used on another node.
func TestANodeRebootsWithoutVolumes(t *testing.T) {
	c := newCluster(t, 2)
	c.to(imageB)
	hold := func(volumes ...corev1.AttachedVolume) {
		node := c.node("worker-1")
		node.Status.VolumesAttached = volumes
		if err := c.client.Status().Update(context.Background(), node); err != nil {
			t.Fatal(err)
		}
	}
	hold(corev1.AttachedVolume{Name: testVolume})
	c.rounds(30)
	if image := c.image("worker-1"); image.Spec.Phase != v1alpha1.PhaseStaged {
		t.Fatalf("told %s with a volume attached", image.Spec.Phase)
	}
	slots := c.rollout().Status.Slots
	if len(slots) != 1 || !strings.Contains(slots[0].Message, testVolume) {
		t.Errorf("slots %+v", slots)
	}
	hold()
	c.rounds(30)
	if c.rollout().Status.Nodes.Updated != 2 {
		t.Errorf("not updated without the volume: %+v", c.rollout().Status)
	}
}

// TestADrainThatGoesOnToWaitForVolumesSaysSo: the event about pods would stay the last word.
func TestADrainThatGoesOnToWaitForVolumesSaysSo(t *testing.T) {
	pods, volumes := "waits for default/web (no more disruptions allowed)", "waits for "+testVolume+" ("+stillAttached+")"
	for _, test := range []struct{ before, after, want string }{
		{"", pods, "DrainBlocked"}, {pods, pods + ", default/db", ""}, {pods, volumes, "DrainBlocked"}, {volumes, volumes + "2", ""}, {volumes, "", ""},
	} {
		before, after := v1alpha1.Slot{Phase: v1alpha1.SlotDraining, Message: test.before}, v1alpha1.Slot{Phase: v1alpha1.SlotDraining, Message: test.after}
		if got := troubleOf(before, &after); got != test.want {
			t.Errorf("from %q to %q: %q, want %q", test.before, test.after, got, test.want)
		}
	}
}

// TestVolumesHaveTimeOfTheirOwn: pods may take long to end, and under Force longest.
func TestVolumesHaveTimeOfTheirOwn(t *testing.T) {
	c := newCluster(t, 1)
	if err := c.client.DeleteAllOf(context.Background(), &corev1.Pod{}); err != nil {
		t.Fatal(err)
	}
	scope := newScope([]Node{newNode(1, attached(testVolume))}, holding(1, v1alpha1.SlotDraining))
	scope.Rollout.Spec.Drain.OnTimeout = v1alpha1.DrainForce
	slot, node := scope.Rollout.Status.Slots[0], &scope.Nodes[0]
	drain := func(after time.Duration) (*v1alpha1.Slot, *notice) {
		t.Helper()
		scope.Now = start.Add(defaultDrainTimeout + after)
		isDrained, blocked, err := c.controller.drain(context.Background(), scope, slot, node)
		if err != nil {
			t.Fatal(err)
		}
		result := outcome{isDrained: isDrained, blocked: blocked}
		next := advance(scope, slot, node, result)
		return next, forcedEvent(node, next, result)
	}
	for _, after := range []time.Duration{time.Second, blockedAfter} {
		if next, event := drain(after); next.Phase != v1alpha1.SlotDraining || next.Message != "" || event != nil {
			t.Fatalf("%s past the deadline, when the last pod has gone: %+v, %+v", after, next, event)
		}
	}
	notReady(node)
	if next, event := drain(2 * blockedAfter); next.Phase != v1alpha1.SlotDraining || event != nil {
		t.Errorf("%+v, told %+v of a node that is not Ready and does not reboot", next, event)
	}
	node.Status.Conditions[0].Status = corev1.ConditionTrue
	next, event := drain(2 * blockedAfter)
	if next.Phase != v1alpha1.SlotBooting || event == nil || event.reason != "DrainForced" || !strings.Contains(event.message, testVolume) {
		t.Errorf("%+v, told %+v", next, event)
	}
}

func TestNodesThatWaitForVolumesAreForgotten(t *testing.T) {
	d := &detaching{}
	d.since("a", start)
	if at := d.since("a", start.Add(detachingKept)); !at.Equal(start) {
		t.Errorf("since %s", at)
	}
	d.end("a")
	d.since("b", start)
	if at := d.since("a", start.Add(2*detachingKept)); !at.Equal(start.Add(2*detachingKept)) || len(d.nodes) != 1 {
		t.Errorf("since %s, %v", at, d.nodes)
	}
}
