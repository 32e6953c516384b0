package story

import (
	"context"
	"fmt"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/imagemode/imagemode/api/machineconfiguration"
)

// AtWork is a build that runs, with the pod that works for it.
type AtWork struct {
	Build *mcfgv1.MachineOSBuild
	Pod   *corev1.Pod
}

// NextAtWork waits until the current build is Building in a pod other than the
// one before.
func (s *Story) NextAtWork(ctx context.Context, before types.UID) (*AtWork, error) {
	found := &AtWork{}
	err := until(ctx, "a build at work in another pod", func(ctx context.Context) (string, bool, error) {
		build, err := s.CurrentBuild(ctx)
		if err != nil {
			return err.Error(), false, nil
		}
		found.Build = build
		if !meta.IsStatusConditionTrue(build.Status.Conditions, string(mcfgv1.MachineOSBuilding)) {
			return build.Name + ": " + buildState(build), false, nil
		}
		var pods corev1.PodList
		if err := s.Cluster.Client.List(ctx, &pods, client.InNamespace(machineconfiguration.Namespace), podsFor(build)); err != nil {
			return err.Error(), false, nil
		}
		for i := range pods.Items {
			pod := &pods.Items[i]
			if pod.UID != before && pod.DeletionTimestamp == nil && pod.Status.Phase == corev1.PodRunning {
				found.Pod = pod
				return "", true, nil
			}
		}
		return fmt.Sprintf("%s has %d pods", build.Name, len(pods.Items)), false, nil
	})
	return found, err
}

// podsFor selects the pods of a build.
func podsFor(build *mcfgv1.MachineOSBuild) client.MatchingLabels {
	return client.MatchingLabels{
		machineconfiguration.LabelMachineOSBuild: machineconfiguration.Shorten(build.Name, machineconfiguration.MaxLabelValue),
	}
}

// Kill deletes a pod, and gives it no time.
func (s *Story) Kill(ctx context.Context, pod *corev1.Pod) error {
	return s.Cluster.Client.Delete(ctx, pod, client.GracePeriodSeconds(0))
}

// Evict asks for a pod's eviction, as a drain does.
func (s *Story) Evict(ctx context.Context, pod *corev1.Pod) error {
	eviction := &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name}}
	return s.Cluster.Core.PolicyV1().Evictions(pod.Namespace).Evict(ctx, eviction)
}

// KillController kills the controller's pods. Others take their place.
func (s *Story) KillController(ctx context.Context) error {
	return s.Cluster.Client.DeleteAllOf(ctx, &corev1.Pod{}, client.InNamespace(machineconfiguration.Namespace),
		client.MatchingLabels{"app.kubernetes.io/component": "controller"}, client.GracePeriodSeconds(0))
}

// Job returns the Job of a build that is at work.
func (s *Story) Job(ctx context.Context, build *mcfgv1.MachineOSBuild) (*batchv1.Job, error) {
	job := &batchv1.Job{}
	named := build.Status.Builder.Job
	return job, s.Cluster.Client.Get(ctx, client.ObjectKey{Namespace: named.Namespace, Name: named.Name}, job)
}

// Delete deletes an object, and what it owns in the background.
func (s *Story) Delete(ctx context.Context, object client.Object) error {
	return s.Cluster.Client.Delete(ctx, object, client.PropagationPolicy(metav1.DeletePropagationBackground))
}

// BuildIs waits until a build is in a phase.
func (s *Story) BuildIs(ctx context.Context, name string, want mcfgv1.BuildProgress) (*mcfgv1.MachineOSBuild, error) {
	build := &mcfgv1.MachineOSBuild{}
	err := until(ctx, fmt.Sprintf("MachineOSBuild %s to be %s", name, want), func(ctx context.Context) (string, bool, error) {
		if err := s.Cluster.Client.Get(ctx, client.ObjectKey{Name: name}, build); err != nil {
			return err.Error(), false, nil
		}
		return buildState(build), meta.IsStatusConditionTrue(build.Status.Conditions, string(want)), nil
	})
	return build, err
}
