package controller

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/imagemode/imagemode/api/v1alpha1"
)

// drain makes one pass over the pods of a node: it evicts those that have to
// go, by the eviction subresource only, so that PodDisruptionBudgets decide.
// It returns whether none is left, or which are and why.
func (r *Reconciler) drain(ctx context.Context, rollout *v1alpha1.ImageRollout, node string) (isDrained bool, blocked string, err error) {
	pods := &corev1.PodList{}
	onNode := client.MatchingFieldsSelector{Selector: fields.OneTermEqualSelector("spec.nodeName", node)}
	if err := r.Live.List(ctx, pods, onNode); err != nil {
		return false, "", fmt.Errorf("Node %s: pods could not be listed: %w", node, err)
	}
	var left []string
	for i := range pods.Items {
		pod := &pods.Items[i]
		if staysOnNode(pod) {
			continue
		}
		why := refusal(pod, rollout.Spec.Drain)
		if why == "" {
			why = r.evict(ctx, pod)
		}
		left = append(left, fmt.Sprintf("%s/%s (%s)", pod.Namespace, pod.Name, why))
	}
	if len(left) == 0 {
		return true, "", nil
	}
	return false, "waits for " + list(left), nil
}

// staysOnNode: static pods cannot be evicted, pods of a DaemonSet would come
// back at once, and a finished pod is nobody's service.
func staysOnNode(pod *corev1.Pod) bool {
	if _, isMirror := pod.Annotations[corev1.MirrorPodAnnotationKey]; isMirror {
		return true
	}
	if owner := metav1.GetControllerOf(pod); owner != nil && owner.Kind == "DaemonSet" {
		return true
	}
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

// refusal says why a pod must not be evicted under the rollout's settings.
func refusal(pod *corev1.Pod, settings v1alpha1.DrainSpec) string {
	if pod.DeletionTimestamp != nil {
		return ""
	}
	if metav1.GetControllerOf(pod) == nil && !settings.Force {
		return "no controller would replace it; delete it, or set spec.drain.force"
	}
	if settings.DeleteEmptyDir == nil || *settings.DeleteEmptyDir {
		return ""
	}
	for _, volume := range pod.Spec.Volumes {
		if volume.EmptyDir != nil {
			return fmt.Sprintf("volume %s is an emptyDir, spec.drain.deleteEmptyDir is false", volume.Name)
		}
	}
	return ""
}

// evict asks for the eviction and says what the pod waits for now. The UID makes
// sure that it is this pod and not its replacement under the same name.
func (r *Reconciler) evict(ctx context.Context, pod *corev1.Pod) string {
	if pod.DeletionTimestamp != nil {
		return "terminating"
	}
	eviction := &policyv1.Eviction{
		ObjectMeta:    metav1.ObjectMeta{Name: pod.Name, Namespace: pod.Namespace},
		DeleteOptions: &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &pod.UID}},
	}
	err := r.Client.SubResource("eviction").Create(ctx, pod, eviction)
	switch {
	case err == nil, apierrors.IsNotFound(err), apierrors.IsConflict(err):
		return "terminating"
	case apierrors.IsTooManyRequests(err):
		return budgetOf(err)
	}
	return err.Error()
}

// budgetOf reads which PodDisruptionBudget refused: the API server says so in
// the causes of its answer.
func budgetOf(err error) string {
	status, isStatus := err.(apierrors.APIStatus) //nolint:errorlint // the API server's answer, not wrapped
	if isStatus && status.Status().Details != nil {
		for _, cause := range status.Status().Details.Causes {
			if cause.Type == policyv1.DisruptionBudgetCause {
				return cause.Message
			}
		}
	}
	return err.Error()
}
