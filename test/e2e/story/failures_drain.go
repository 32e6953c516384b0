package story

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Stubborn is a Deployment with one pod, bound to one worker, and the name of the
// PodDisruptionBudget that does not let the pod go.
const Stubborn = "stubborn"

var stubbornLabels = map[string]string{"app": Stubborn}

// StartStubborn starts it on a worker and returns its pod's name.
func (s *Story) StartStubborn(ctx context.Context, worker string) (string, error) {
	meta := metav1.ObjectMeta{Namespace: workloadNamespace, Name: Stubborn}
	spec := workloadPod(stubbornLabels)
	spec.NodeSelector = map[string]string{corev1.LabelHostname: worker}
	one, none := int32(1), intstr.FromInt32(0)
	for _, object := range []client.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: workloadNamespace}},
		&appsv1.Deployment{ObjectMeta: meta, Spec: appsv1.DeploymentSpec{
			Replicas: &one, Selector: &metav1.LabelSelector{MatchLabels: stubbornLabels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: stubbornLabels}, Spec: spec},
		}},
		&policyv1.PodDisruptionBudget{ObjectMeta: meta, Spec: policyv1.PodDisruptionBudgetSpec{
			MaxUnavailable: &none, Selector: &metav1.LabelSelector{MatchLabels: stubbornLabels},
		}},
	} {
		if err := client.IgnoreAlreadyExists(s.Cluster.Client.Create(ctx, object)); err != nil {
			return "", err
		}
	}
	name := ""
	err := until(ctx, "the stubborn pod", func(ctx context.Context) (string, bool, error) {
		pod, err := s.StubbornPod(ctx)
		if err != nil {
			return err.Error(), false, nil
		}
		name = pod.Name
		return string(pod.Status.Phase), isPodReady(pod), nil
	})
	return name, err
}

// StubbornPod is its one pod that is not about to end.
func (s *Story) StubbornPod(ctx context.Context) (*corev1.Pod, error) {
	var pods corev1.PodList
	if err := s.Cluster.Client.List(ctx, &pods, client.InNamespace(workloadNamespace), client.MatchingLabels(stubbornLabels)); err != nil {
		return nil, err
	}
	for i := range pods.Items {
		if pods.Items[i].DeletionTimestamp == nil {
			return &pods.Items[i], nil
		}
	}
	return nil, fmt.Errorf("it has no pod")
}

// LiftBudget lets the stubborn pod go.
func (s *Story) LiftBudget(ctx context.Context) error {
	budget := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: workloadNamespace, Name: Stubborn}}
	return s.Cluster.Client.Patch(ctx, budget, client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"maxUnavailable":1}}`)))
}

// StopStubborn removes it.
func (s *Story) StopStubborn() error {
	ctx, cancel := shortly()
	defer cancel()
	meta := metav1.ObjectMeta{Namespace: workloadNamespace, Name: Stubborn}
	for _, object := range []client.Object{&appsv1.Deployment{ObjectMeta: meta}, &policyv1.PodDisruptionBudget{ObjectMeta: meta}} {
		if err := client.IgnoreNotFound(s.Cluster.Client.Delete(ctx, object, client.PropagationPolicy("Background"))); err != nil {
			return err
		}
	}
	return nil
}
