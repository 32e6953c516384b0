package controller

import (
	"context"
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/imagemode/imagemode/api/v1alpha1"
)

// gateBench is a controller on an API server that holds these objects.
func gateBench(t *testing.T, objects ...client.Object) (*Reconciler, client.Client) {
	t.Helper()
	scheme := newScheme(t)
	if err := batchv1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	server := fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).WithStatusSubresource(&batchv1.Job{}).
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
		"a gate of a later version":        {[]v1alpha1.Gate{{Name: "x"}}, newNode(1), nil, "gate x: it says nothing that this version could check"},
		"the template of a job is missing": {[]v1alpha1.Gate{{Name: "job", Job: &v1alpha1.JobGate{CronJob: "check"}}}, newNode(1), nil, "gate job: CronJob " + testNamespace + "/check does not exist"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			r, _ := gateBench(t, test.objects...)
			rollout := &v1alpha1.ImageRollout{Spec: v1alpha1.ImageRolloutSpec{Gates: test.gates}}
			got, err := r.unmetGate(context.Background(), rollout, &test.node)
			if err != nil || got != test.want {
				t.Errorf("got %q, %v; want %q", got, err, test.want)
			}
		})
	}
}

func TestAJobOfAGateRunsOnceOnItsNode(t *testing.T) {
	template := &batchv1.CronJob{ObjectMeta: metav1.ObjectMeta{Name: "check", Namespace: testNamespace}}
	template.Spec.JobTemplate.Spec.Template.Spec.Containers = []corev1.Container{{Name: "check", Image: "check"}}
	r, server := gateBench(t, template)
	rollout := &v1alpha1.ImageRollout{ObjectMeta: metav1.ObjectMeta{Name: "worker", UID: "rollout-uid"}}
	rollout.Spec.Gates = []v1alpha1.Gate{{Name: "job", Job: &v1alpha1.JobGate{CronJob: "check"}}}
	node := newNode(1)
	look := func(want string) {
		t.Helper()
		got, err := r.unmetGate(context.Background(), rollout, &node)
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
	rollout.Spec.RetryToken = "2"
	look("has not ended") // another try is another Job
}
