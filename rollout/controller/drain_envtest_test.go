//go:build envtest

package controller

import (
	"fmt"
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/imagemode/imagemode/api/v1alpha1"
	"github.com/imagemode/imagemode/test/envtest"
)

// TestADrainOnARealAPIServer: how an API server says that a budget keeps a pod, and that
// it takes the Job of a gate and lets it go. There are no controllers: the budgets' status
// and the Job's pods are written here.
func TestADrainOnARealAPIServer(t *testing.T) {
	server, err := client.New(envtest.Start(t), client.Options{Scheme: schemeWithJobs(t)})
	if err != nil {
		t.Fatal(err)
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(server.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: testNamespace}}))
	r := &Reconciler{Client: server, Live: server, Recorder: events.NewFakeRecorder(100), Options: Options{Namespace: testNamespace}}
	addPod := func(pod *corev1.Pod) {
		t.Helper()
		now := int64(0)
		pod.Namespace, pod.Spec = testNamespace, corev1.PodSpec{NodeName: "worker-1", TerminationGracePeriodSeconds: &now, Containers: []corev1.Container{{Name: "web", Image: "web"}}}
		must(server.Create(t.Context(), pod))
		pod.Status = corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}}
		must(server.Status().Update(t.Context(), pod))
	}
	isLeft := func(object client.Object) bool {
		t.Helper()
		err := server.Get(t.Context(), client.ObjectKeyFromObject(object), object)
		must(client.IgnoreNotFound(err))
		return !apierrors.IsNotFound(err)
	}
	drain := func(t *testing.T, policy v1alpha1.DrainTimeoutPolicy) string {
		t.Helper()
		scope := newScope([]Node{newNode(1)}, holding(1, v1alpha1.SlotDraining), func(s *Scope) {
			s.Now = start.Add(2 * defaultDrainTimeout)
			s.Rollout.Spec.Drain = v1alpha1.DrainSpec{OnTimeout: policy, Force: true}
		})
		_, blocked, err := r.drain(t.Context(), scope, scope.Rollout.Status.Slots[0], &scope.Nodes[0])
		must(err)
		return blocked
	}
	for budgets, want := range []string{"was told to end", "no more disruptions allowed: ", severalBudgets} {
		t.Run(fmt.Sprintf("%d budgets", budgets), func(t *testing.T) {
			name := fmt.Sprintf("web-%d", budgets)
			labels := map[string]string{"app": name}
			for i := range budgets {
				none := intstr.FromInt32(0)
				budget := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%d", name, i), Namespace: testNamespace}, Spec: policyv1.PodDisruptionBudgetSpec{MaxUnavailable: &none, Selector: &metav1.LabelSelector{MatchLabels: labels}}}
				must(server.Create(t.Context(), budget))
				budget.Status = policyv1.PodDisruptionBudgetStatus{ObservedGeneration: budget.Generation, CurrentHealthy: 1, DesiredHealthy: 1, ExpectedPods: 1}
				must(server.Status().Update(t.Context(), budget))
			}
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
			addPod(pod)
			if blocked := drain(t, v1alpha1.DrainHalt); !strings.Contains(blocked, want) {
				t.Errorf("blocked %q, want %q", blocked, want)
			}
			if isLeft(pod) != (budgets > 0) {
				t.Fatalf("left under Halt: %t", isLeft(pod))
			}
			if drain(t, v1alpha1.DrainForce); isLeft(pod) {
				t.Error("left under Force")
			}
		})
	}
	t.Run("the Job of a gate", func(t *testing.T) {
		gate, template := jobGate()
		template.Spec.Schedule, template.Spec.JobTemplate.Spec.Template.Spec.RestartPolicy = "0 0 1 1 *", corev1.RestartPolicyNever
		must(server.Create(t.Context(), template))
		rollout := &v1alpha1.ImageRollout{ObjectMeta: metav1.ObjectMeta{Name: "worker", UID: "rollout-uid"}, Spec: v1alpha1.ImageRolloutSpec{Gates: []v1alpha1.Gate{gate}}}
		node, slot := newNode(1), v1alpha1.Slot{Image: imageB}
		if problem, err := r.unmetGate(t.Context(), rollout, slot, &node); err != nil || !strings.Contains(problem, "has not ended") {
			t.Fatalf("%q, %v", problem, err)
		}
		job := &batchv1.Job{}
		must(server.Get(t.Context(), r.gateJobKey(rollout, gate, slot, &node), job))
		isController := true
		addPod(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "check", Labels: job.Spec.Template.Labels, OwnerReferences: []metav1.OwnerReference{{APIVersion: "batch/v1", Kind: "Job", Name: job.Name, UID: job.UID, Controller: &isController}}}})
		if blocked := drain(t, v1alpha1.DrainHalt); !strings.Contains(blocked, "check (was told to end)") || isLeft(job) {
			t.Errorf("blocked %q, Job left: %t", blocked, isLeft(job))
		}
	})
}
