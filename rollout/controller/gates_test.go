package controller

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/imagemode/imagemode/api/v1alpha1"
)

func schemeWithJobs(t *testing.T) *runtime.Scheme {
	t.Helper()
	scheme := newScheme(t)
	if err := batchv1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	return scheme
}

// gateBench is a controller on an API server that holds these objects.
func gateBench(t *testing.T, objects ...client.Object) (*Reconciler, client.Client) {
	t.Helper()
	server := fake.NewClientBuilder().WithScheme(schemeWithJobs(t)).WithObjects(objects...).WithStatusSubresource(&batchv1.Job{}).
		WithIndex(&corev1.Pod{}, "spec.nodeName", func(object client.Object) []string { return []string{object.(*corev1.Pod).Spec.NodeName} }).Build()
	return &Reconciler{Client: server, Live: server, Options: Options{Namespace: testNamespace}}, server
}

func gatePod(name, node string, ready corev1.ConditionStatus) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "net", Labels: map[string]string{"app": "cni"}},
		Spec:       corev1.PodSpec{NodeName: node},
		Status:     corev1.PodStatus{Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: ready}}},
	}
}

func TestGates(t *testing.T) {
	cni := v1alpha1.Gate{Name: "cni", Pods: &v1alpha1.PodsGate{Namespace: "net", Selector: metav1.LabelSelector{MatchLabels: map[string]string{"app": "cni"}}}}
	kernel := v1alpha1.Gate{Name: "kernel", NodeCondition: &v1alpha1.NodeConditionGate{Type: "KernelDeadlock", Status: "False"}}
	deadlock := func(status corev1.ConditionStatus) func(*Node) {
		return func(n *Node) {
			n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{Type: "KernelDeadlock", Status: status, Message: "text"})
		}
	}
	tests := map[string]struct {
		gates   []v1alpha1.Gate
		node    Node
		objects []client.Object
		want    string
	}{
		"no gates":                         {nil, newNode(1), nil, ""},
		"pods that are Ready":              {[]v1alpha1.Gate{cni}, newNode(1), []client.Object{gatePod("a", "worker-1", corev1.ConditionTrue)}, ""},
		"a pod that is not":                {[]v1alpha1.Gate{cni}, newNode(1), []client.Object{gatePod("a", "worker-1", corev1.ConditionFalse)}, "gate cni: pod net/a is not Ready"},
		"a pod on another node":            {[]v1alpha1.Gate{cni}, newNode(1), []client.Object{gatePod("a", "worker-2", corev1.ConditionTrue)}, "gate cni: no pod in namespace net matches app=cni on the node"},
		"a condition as it should be":      {[]v1alpha1.Gate{kernel}, newNode(1, deadlock(corev1.ConditionFalse)), nil, ""},
		"a condition as it should not be":  {[]v1alpha1.Gate{kernel}, newNode(1, deadlock(corev1.ConditionTrue)), nil, "gate kernel: condition KernelDeadlock of the Node is True, not False: text"},
		"a condition that is not there":    {[]v1alpha1.Gate{kernel}, newNode(1), nil, "gate kernel: the Node has no condition KernelDeadlock"},
		"one that is not valid":            {[]v1alpha1.Gate{cni, {Name: "x"}}, newNode(1), nil, "spec.gates[1] (gate x) is not valid: it says nothing that this version could check"},
		"the template of a job is missing": {[]v1alpha1.Gate{{Name: "job", Job: &v1alpha1.JobGate{CronJob: "check"}}}, newNode(1), nil, "gate job: CronJob " + testNamespace + "/check does not exist"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			r, _ := gateBench(t, test.objects...)
			rollout := &v1alpha1.ImageRollout{Spec: v1alpha1.ImageRolloutSpec{Gates: test.gates}}
			got, err := r.unmetGate(context.Background(), rollout, v1alpha1.Slot{}, &test.node)
			if err != nil || got != test.want {
				t.Errorf("got %q, %v; want %q", got, err, test.want)
			}
		})
	}
}

// podsGate is a gate on pods that have a label.
func podsGate(label string) v1alpha1.Gate {
	return v1alpha1.Gate{Name: "pods", Pods: &v1alpha1.PodsGate{Namespace: "net", Selector: metav1.LabelSelector{MatchLabels: map[string]string{label: "x"}}}}
}

func gated(gates ...v1alpha1.Gate) func(*Scope) {
	return func(s *Scope) { s.Rollout.Spec.Gates = gates }
}

func TestAGateThatIsNotValidIsNamed(t *testing.T) {
	good := podsGate("app")
	elsewhere, operator := podsGate("app"), podsGate("app")
	elsewhere.Pods.Namespace = "Net"
	operator.Pods.Selector.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Is"}}
	for name, test := range map[string]struct {
		gates []v1alpha1.Gate
		want  string // the beginning; empty: they are valid
	}{
		"none": {nil, ""},
		"all that there are, if correct": {[]v1alpha1.Gate{
			good, {Name: "b", NodeCondition: &v1alpha1.NodeConditionGate{Type: "example.com/Healthy"}}, {Name: "c", Job: &v1alpha1.JobGate{CronJob: "check"}},
			{Name: "d", Pods: &v1alpha1.PodsGate{Namespace: "net"}},
		}, ""},
		"a label with a space":              {[]v1alpha1.Gate{good, podsGate("a b")}, "spec.gates[1].pods.selector (gate pods) is not valid: "},
		"an operator that does not exist":   {[]v1alpha1.Gate{operator}, "spec.gates[0].pods.selector (gate pods) is not valid: "},
		"no name of a namespace":            {[]v1alpha1.Gate{elsewhere}, "spec.gates[0].pods.namespace (gate pods) is not valid: "},
		"no name of a condition":            {[]v1alpha1.Gate{{Name: "c", NodeCondition: &v1alpha1.NodeConditionGate{Type: "is healthy"}}}, "spec.gates[0].nodeCondition.type (gate c) is not valid: "},
		"no name of a CronJob":              {[]v1alpha1.Gate{{Name: "j", Job: &v1alpha1.JobGate{CronJob: "net/check"}}}, "spec.gates[0].job.cronJob (gate j) is not valid: "},
		"a kind of gate of a later version": {[]v1alpha1.Gate{{Name: "x"}}, "spec.gates[0] (gate x) is not valid: it says nothing that this version could check"},
	} {
		t.Run(name, func(t *testing.T) {
			got := gateProblem(test.gates)
			if (got == "") != (test.want == "") || !strings.HasPrefix(got, test.want) {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

// TestAGateThatIsPutRightHasItsTimeAgain: while it was not valid, it said nothing about
// the node. One that stays unmet sends the node back, and the rejection says why.
func TestAGateThatIsPutRightHasItsTimeAgain(t *testing.T) {
	wasInvalid := func(s *Scope) {
		s.Rollout.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionDegraded, Status: metav1.ConditionTrue, Reason: reasonInvalidGate}}
	}
	unmet := outcome{gate: "gate pods: pod net/a is not Ready"}
	late := func(s *Scope) { s.Now = start.Add(defaultRollbackDeadline + time.Minute) }
	changes := []func(*Scope){gated(podsGate("app")), holding(1, v1alpha1.SlotBooting), late}

	scope := newScope([]Node{newNode(1, updated, rebooted)}, append(changes, wasInvalid)...)
	next := advance(scope, scope.Rollout.Status.Slots[0], &scope.Nodes[0], unmet)
	if next == nil || next.Phase != v1alpha1.SlotBooting || !next.Since.Time.Equal(scope.Now) {
		t.Errorf("as soon as the gate is valid: slot %+v", next)
	}

	scope = newScope([]Node{newNode(1, updated, rebooted)}, changes...)
	before := scope.Rollout.Status.Slots[0]
	next = advance(scope, before, &scope.Nodes[0], unmet)
	if next == nil || next.Phase != v1alpha1.SlotRollingBack {
		t.Fatalf("past the deadline: slot %+v", next)
	}
	why := "after 20m0s it still waits for gate pods: pod net/a is not Ready"
	if event := stepEvent(&scope.Nodes[0], before, next); event.reason != "RollingBack" || !strings.Contains(event.message, why) {
		t.Errorf("event %+v", event)
	}
	after := scope.after([]v1alpha1.Slot{*next}, nil)
	if entries := rejected(after); len(entries) != 1 || !strings.Contains(entries[0].Reason, "worker-1 (RollingBack: "+why) {
		t.Errorf("rejected %+v", entries)
	}
}

// A gate with a mistake in it takes no node out of service; a node that is drained for it
// returns, and one that has rebooted already is not sent back.
func TestAGateThatIsNotValidDisturbsNoNode(t *testing.T) {
	wrong := func(s *v1alpha1.ImageRolloutSpec) { s.Gates = []v1alpha1.Gate{podsGate("a b")} }
	right := func(s *v1alpha1.ImageRolloutSpec) { s.Gates = nil }
	expect := func(c *cluster) {
		t.Helper()
		degraded := meta.FindStatusCondition(c.rollout().Status.Conditions, v1alpha1.ConditionDegraded)
		if degraded == nil || degraded.Reason != "InvalidGate" || !strings.Contains(degraded.Message, "spec.gates[0].pods.selector") {
			t.Errorf("Degraded %+v", degraded)
		}
	}
	t.Run("from the beginning", func(t *testing.T) {
		c := newCluster(t, 2)
		c.changeRollout(wrong)
		c.to(imageB)
		c.settle()
		expect(c)
		for name, m := range c.machines {
			if m.boots != 1 || c.node(name).Spec.Unschedulable || m.staged != imageB {
				t.Errorf("%s: %d boots, staged %s", name, m.boots, m.staged)
			}
		}
		c.changeRollout(right)
		c.settle()
		c.expectUpdated(imageB)
	})
	t.Run("while a node is drained", func(t *testing.T) {
		c := newCluster(t, 2)
		c.blocked["pod-worker-1"] = true
		c.to(imageB)
		c.rounds(10)
		if slots := c.rollout().Status.Slots; len(slots) != 1 || slots[0].Phase != v1alpha1.SlotDraining {
			t.Fatalf("slots %+v", slots)
		}
		c.changeRollout(wrong)
		c.settle()
		expect(c)
		if c.node("worker-1").Spec.Unschedulable || c.machines["worker-1"].boots != 1 || len(c.rollout().Status.Slots) > 0 {
			t.Errorf("worker-1 is not back in service: %+v", c.rollout().Status.Slots)
		}
		delete(c.blocked, "pod-worker-1")
		c.changeRollout(right)
		c.settle()
		c.expectUpdated(imageB)
	})
	t.Run("while a node waits for it", func(t *testing.T) {
		c := newCluster(t, 2)
		c.changeRollout(func(s *v1alpha1.ImageRolloutSpec) { s.Gates = []v1alpha1.Gate{podsGate("app")} })
		c.to(imageB)
		c.rounds(20)
		c.changeRollout(wrong)
		c.now = c.now.Add(2 * time.Hour)
		c.rounds(3)
		expect(c)
		slots := c.rollout().Status.Slots
		if len(slots) != 1 || slots[0].Phase != v1alpha1.SlotBooting || len(c.rollout().Status.Rejected) > 0 || c.machines[slots[0].Node].booted != imageB {
			t.Fatalf("slots %+v, rejected %+v", slots, c.rollout().Status.Rejected)
		}
		c.changeRollout(right)
		c.settle()
		c.expectUpdated(imageB)
	})
}

// jobGate is a gate whose Job is made from template.
func jobGate() (gate v1alpha1.Gate, template *batchv1.CronJob) {
	template = &batchv1.CronJob{ObjectMeta: metav1.ObjectMeta{Name: "check", Namespace: testNamespace}}
	template.Spec.JobTemplate.Spec.Template.Spec.Containers = []corev1.Container{{Name: "check", Image: "check"}}
	return v1alpha1.Gate{Name: "job", Job: &v1alpha1.JobGate{CronJob: "check"}}, template
}

// TestNoNodeIsDrainedForAGateWithoutATemplate: found after the reboot, a typing mistake
// would be taken for the image's fault.
func TestNoNodeIsDrainedForAGateWithoutATemplate(t *testing.T) {
	c := newClusterWith(t, 2, schemeWithJobs(t))
	gate, template := jobGate()
	c.changeRollout(func(s *v1alpha1.ImageRolloutSpec) { s.Image, s.Gates = imageB, []v1alpha1.Gate{gate} })
	c.rounds(20)
	status := c.rollout().Status
	degraded := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionDegraded)
	if len(status.Slots) > 0 || degraded.Reason != reasonInvalidGate || !strings.Contains(degraded.Message, "spec.gates[0].job.cronJob (gate job): CronJob "+testNamespace+"/check does not exist") {
		t.Fatalf("slots %v, Degraded %s: %s", status.Slots, degraded.Reason, degraded.Message)
	}
	c.create(template)
	c.rounds(20)
	if boots := c.machines["worker-1"].boots + c.machines["worker-2"].boots; boots < 3 {
		t.Errorf("no node is updated with the template there: %+v", c.rollout().Status)
	}
}

// TestAMissingTemplateChangesNoSlot: a node that waits for the gate does not go back for
// it, and its time begins anew when the template is back, not at each pass.
func TestAMissingTemplateChangesNoSlot(t *testing.T) {
	c := newClusterWith(t, 3, schemeWithJobs(t))
	gate, template := jobGate()
	c.create(template)
	c.changeRollout(func(s *v1alpha1.ImageRolloutSpec) { s.Image, s.Gates = imageB, []v1alpha1.Gate{gate} })
	for range 40 {
		if c.rounds(1); len(c.rollout().Status.Slots) > 0 && strings.Contains(c.rollout().Status.Slots[0].Message, "gate job") {
			break
		}
	}
	if err := c.client.Delete(context.Background(), template); err != nil {
		t.Fatal(err)
	}
	two, anyZone := intstr.FromInt32(2), ""
	c.changeRollout(func(s *v1alpha1.ImageRolloutSpec) { s.MaxUnavailable, s.TopologyKey = &two, &anyZone })
	pass := func() *v1alpha1.ImageRollout {
		c.now = c.now.Add(time.Second)
		c.pass()
		return c.rollout()
	}
	pass()
	before := pass()
	if degraded := meta.FindStatusCondition(before.Status.Conditions, v1alpha1.ConditionDegraded); len(before.Status.Slots) != 1 || degraded.Reason != reasonInvalidGate {
		t.Fatalf("slots %+v, Degraded %s: %s", before.Status.Slots, degraded.Reason, degraded.Message)
	}
	if after := pass(); after.ResourceVersion != before.ResourceVersion {
		t.Errorf("a pass in which nothing happened wrote %+v, it was %+v", after.Status.Slots, before.Status.Slots)
	}
	c.now = c.now.Add(2 * defaultRollbackDeadline)
	if status := pass().Status; len(status.Slots) != 1 || status.Slots[0].Phase != v1alpha1.SlotBooting || len(status.Rejected) > 0 {
		t.Errorf("the image is blamed for it: slots %+v, rejected %+v", status.Slots, status.Rejected)
	}
}

func TestAJobOfAGateRunsOnceOnItsNode(t *testing.T) {
	gate, template := jobGate()
	r, server := gateBench(t, template)
	rollout := &v1alpha1.ImageRollout{ObjectMeta: metav1.ObjectMeta{Name: "worker", UID: "rollout-uid"}}
	rollout.Spec.Gates = []v1alpha1.Gate{gate}
	node, slot := newNode(1), v1alpha1.Slot{Image: imageB}
	look := func(want string) {
		t.Helper()
		got, err := r.unmetGate(context.Background(), rollout, slot, &node)
		if err != nil || !strings.Contains(got, want) || (want == "") != (got == "") {
			t.Errorf("got %q, %v; want %q", got, err, want)
		}
	}
	look("has not ended")
	look("has not ended")
	jobs := &batchv1.JobList{}
	if err := server.List(context.Background(), jobs); err != nil || len(jobs.Items) != 1 {
		t.Fatalf("%d Jobs, %v", len(jobs.Items), err)
	}
	job := &jobs.Items[0]
	pod := job.Spec.Template.Spec
	if pod.NodeName != "worker-1" || pod.Containers[0].Env[0].Value != "worker-1" || job.OwnerReferences[0].UID != "rollout-uid" || job.Spec.TTLSecondsAfterFinished == nil {
		t.Errorf("Job %+v", job)
	}
	end := func(kind batchv1.JobConditionType, message string) {
		t.Helper()
		job.Status.Conditions = []batchv1.JobCondition{{Type: kind, Status: corev1.ConditionTrue, Message: message}}
		if err := server.Status().Update(context.Background(), job); err != nil {
			t.Fatal(err)
		}
	}
	end(batchv1.JobFailed, "exit code 1")
	look("failed: exit code 1")
	end(batchv1.JobComplete, "")
	look("")
	rollout.Spec.Image = imageC
	look("") // what the rollout is to do next is not what the node runs
	rollout.Spec.RetryToken = "2"
	look("has not ended") // another try is another Job
	rollout.Spec.RetryToken = ""
	node.Image.Status.SoftReboots++
	look("has not ended") // as is another boot
	node.Image.Status.SoftReboots--
	node.Status.NodeInfo.BootID = "boot-3"
	look("has not ended")
	node.Status.NodeInfo.BootID = "boot-1"
	slot.Image = imageC
	look("has not ended") // and another image
	slot.Image = imageB
	look("")
	job.Finalizers = []string{"example.com/keep"}
	if err := errors.Join(server.Update(context.Background(), job), server.Delete(context.Background(), job)); err != nil {
		t.Fatal(err)
	}
	look("is being deleted") // its pods were ended
}

// The target changes while a node on the image waits for a gate: its Job ends, none is
// made for the old slot, and the next image gets a Job of its own in its own boot.
func TestAJobOfAGateSaysNothingAboutTheNextImage(t *testing.T) {
	c := newClusterWith(t, 2, schemeWithJobs(t))
	gate, template := jobGate()
	c.create(template)
	c.changeRollout(func(s *v1alpha1.ImageRolloutSpec) { s.Image, s.Gates = imageB, []v1alpha1.Gate{gate} })
	jobs := func() []batchv1.Job {
		t.Helper()
		list := &batchv1.JobList{}
		if err := c.client.List(context.Background(), list); err != nil {
			t.Fatal(err)
		}
		return list.Items
	}
	until := func(what string, isIt func() bool) {
		t.Helper()
		for range 40 {
			if c.rounds(1); isIt() {
				return
			}
		}
		t.Fatalf("%s never came: slots %+v, Jobs %d", what, c.rollout().Status.Slots, len(jobs()))
	}
	until("a Job", func() bool { return len(jobs()) == 1 })
	before := jobs()[0]
	node := before.Spec.Template.Spec.NodeName
	if c.machines[node].booted != imageB {
		t.Fatalf("%s runs %s", node, c.machines[node].booted)
	}
	c.to(imageA)
	c.reconcile() // and the agent has not even seen it
	if slots := c.rollout().Status.Slots; len(slots) > 0 && slots[0].Phase == v1alpha1.SlotBooting {
		t.Fatalf("the slot, which was withdrawn, waits for its gate: %+v", slots)
	}
	until("the end of the slot", func() bool {
		slots := c.rollout().Status.Slots
		return len(slots) == 0 || slots[0].Image == imageA
	})
	if left := jobs(); len(left) > 0 {
		t.Fatalf("%d Jobs are left of the slot, which was withdrawn", len(left))
	}
	until("the next Job", func() bool { return len(jobs()) == 1 })
	job := jobs()[0]
	if m := c.machines[job.Spec.Template.Spec.NodeName]; m.booted != imageA || job.Name == before.Name {
		t.Fatalf("Job %s, that before is %s; its node runs %s", job.Name, before.Name, m.booted)
	}
	end := func(kind batchv1.JobConditionType) {
		t.Helper()
		job.Status.Conditions = []batchv1.JobCondition{{Type: kind, Status: corev1.ConditionTrue}}
		if err := c.client.Status().Update(context.Background(), &job); err != nil {
			t.Fatal(err)
		}
	}
	end(batchv1.JobComplete)
	c.settle()
	c.expectUpdated(imageA)
	if left := jobs(); len(left) != 1 || len(c.rollout().Status.Rejected) > 0 {
		t.Errorf("%d Jobs, rejected %+v; want that which has ended, and nothing rejected", len(left), c.rollout().Status.Rejected)
	}
}

// A pod of a gate's Job goes with its Job: evicted, it would end well, or come back.
func TestADrainEndsTheJobsOfGates(t *testing.T) {
	isController := true
	pod := func(name, namespace string, labels map[string]string) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: namespace, Labels: labels, UID: types.UID(name),
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "batch/v1", Kind: "Job", Name: name, UID: types.UID(name + "-job"), Controller: &isController}},
		}, Spec: corev1.PodSpec{NodeName: "worker-1"}}
	}
	ofGate := map[string]string{labelGate: "worker"}
	tests := map[string]struct {
		pod     *corev1.Pod
		isEnded bool
	}{
		"the Job of a gate is ended":          {pod("check", testNamespace, ofGate), true},
		"another's pod is evicted":            {pod("check", testNamespace, nil), false},
		"the label alone does not make a Job": {pod("check", "default", ofGate), false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: "check", Namespace: test.pod.Namespace, UID: "check-job"}}
			r, server := gateBench(t, test.pod, job)
			scope := newScope([]Node{newNode(1)}, holding(1, v1alpha1.SlotDraining))
			if _, blocked, err := r.drain(context.Background(), scope, scope.Rollout.Status.Slots[0], &scope.Nodes[0]); err != nil || blocked != "" {
				t.Fatalf("blocked %q, %v", blocked, err)
			}
			isThere := func(object client.Object) bool {
				return server.Get(context.Background(), client.ObjectKeyFromObject(object), object) == nil
			}
			if isThere(job) == test.isEnded || isThere(test.pod) != test.isEnded { // no garbage collector is here
				t.Errorf("Job left: %t, pod left: %t", isThere(job), isThere(test.pod))
			}
		})
	}
}
