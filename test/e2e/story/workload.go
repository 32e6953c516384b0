package story

import (
	"context"
	"fmt"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
)

// The workload is what the nodes are there for: it moves when they are drained,
// and its PodDisruptionBudget says how much of it has to stay up.
const (
	workloadNamespace = "imagemode-demo"
	workloadName      = "workload"
	workloadReplicas  = 2
	// workloadMinimum is the budget's.
	workloadMinimum = 1
	// workloadImage is on every node, since it is their sandboxes' image.
	workloadImage = "localhost/imagemode/pause:1"
	// workloadInterval is how often it is looked at: a pod that is replaced is gone
	// for longer.
	workloadInterval = 200 * time.Millisecond
)

// Workload records how many pods of the workload were available at least. It is
// safe for concurrent use.
type Workload struct {
	mu      sync.Mutex
	minimum int32
	isUp    bool
}

func (w *Workload) observe(available int32) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case available == workloadReplicas && !w.isUp:
		w.isUp, w.minimum = true, available
	case w.isUp:
		w.minimum = min(w.minimum, available)
	}
}

// Minimum is the smallest number of pods that were available at the same time
// since all were, or -1 if that never was.
func (w *Workload) Minimum() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.isUp {
		return -1
	}
	return int(w.minimum)
}

// watchWorkload records until the context ends.
func (s *Story) watchWorkload(ctx context.Context) {
	key := client.ObjectKey{Namespace: workloadNamespace, Name: workloadName}
	for ctx.Err() == nil {
		deployment := &appsv1.Deployment{}
		if err := s.Cluster.Client.Get(ctx, key, deployment); err == nil {
			s.Workload.observe(deployment.Status.AvailableReplicas)
		}
		_ = sleep(ctx, workloadInterval)
	}
}

// startWorkload runs the workload on the workers.
func (s *Story) startWorkload(ctx context.Context) error {
	if err := s.applyWorkload(ctx); err != nil {
		return err
	}
	err := until(ctx, "the workload to be up", func(context.Context) (string, bool, error) {
		return "", s.Workload.Minimum() >= 0, nil
	})
	if err == nil {
		s.Log.Line("Deployment %s/%s: %d pods on the workers, of which %d has to be available", workloadNamespace, workloadName, workloadReplicas, workloadMinimum)
	}
	return err
}

func (s *Story) applyWorkload(ctx context.Context) error {
	labels := map[string]string{"app": workloadName}
	meta := metav1.ObjectMeta{Namespace: workloadNamespace, Name: workloadName}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: workloadNamespace}}
	if err := client.IgnoreAlreadyExists(s.Cluster.Client.Create(ctx, namespace)); err != nil {
		return fmt.Errorf("create namespace %s: %w", workloadNamespace, err)
	}
	deployment, budget := &appsv1.Deployment{ObjectMeta: meta}, &policyv1.PodDisruptionBudget{ObjectMeta: meta}
	replicas, minimum := int32(workloadReplicas), intstr.FromInt32(workloadMinimum)
	for object, write := range map[client.Object]func(){
		deployment: func() {
			deployment.Spec.Replicas = &replicas
			deployment.Spec.Selector = &metav1.LabelSelector{MatchLabels: labels}
			deployment.Spec.Template.Labels = labels
			deployment.Spec.Template.Spec = workloadPod(labels)
		},
		budget: func() {
			budget.Spec = policyv1.PodDisruptionBudgetSpec{MinAvailable: &minimum, Selector: &metav1.LabelSelector{MatchLabels: labels}}
		},
	} {
		_, err := controllerutil.CreateOrUpdate(ctx, s.Cluster.Client, object, func() error { write(); return nil })
		if err != nil {
			return fmt.Errorf("apply %T %s: %w", object, workloadName, err)
		}
	}
	return nil
}

// workloadPod runs one container, on another worker than its like where that is
// possible.
func workloadPod(labels map[string]string) corev1.PodSpec {
	grace := int64(1)
	return corev1.PodSpec{
		TerminationGracePeriodSeconds: &grace,
		NodeSelector:                  map[string]string{workerLabel: ""},
		TopologySpreadConstraints: []corev1.TopologySpreadConstraint{{
			MaxSkew: 1, TopologyKey: corev1.LabelHostname, WhenUnsatisfiable: corev1.ScheduleAnyway,
			LabelSelector: &metav1.LabelSelector{MatchLabels: labels},
		}},
		Containers: []corev1.Container{{Name: workloadName, Image: workloadImage, ImagePullPolicy: corev1.PullNever}},
	}
}
