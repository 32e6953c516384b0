package controller

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/imagemode/imagemode/api/v1alpha1"
)

const (
	// blockedAfter is how long a drain lasts before it says what it waits for, if
	// its timeout is not shorter: pods that follow one another through their budget
	// are no news.
	blockedAfter = 30 * time.Second
	// terminatingLimit is how long after its grace period a pod may still be
	// there: the kubelet needs some seconds to report the end.
	terminatingLimit = 30 * time.Second
	// maxEvictions is how many pods of a node are told to go at the same time.
	maxEvictions = 10
)

// drain makes one pass over the pods of a node: it evicts those that have to
// go, by the eviction subresource, so that PodDisruptionBudgets decide; after
// the deadline and under onTimeout Force it deletes those that their budget keeps.
// It returns whether none is left, and none of their volumes is attached, and which
// stay and why: nothing while all is on its way. With both, Force does not wait for them.
func (r *Reconciler) drain(ctx context.Context, scope *Scope, slot v1alpha1.Slot, node *Node) (isDrained bool, blocked string, err error) {
	settings := scope.Rollout.Spec.Drain
	skip, err := skipSelector(settings)
	if err != nil {
		return false, err.Error(), nil
	}
	pods := &corev1.PodList{}
	onNode := client.MatchingFieldsSelector{Selector: fields.OneTermEqualSelector("spec.nodeName", node.Name)}
	if err := r.Live.List(ctx, pods, onNode); err != nil {
		return false, "", fmt.Errorf("Node %s: pods could not be listed: %w", node.Name, err)
	}
	going, staying := parted(pods.Items, func(pod *corev1.Pod) bool { return !staysOnNode(pod) && !skip.Matches(labels.Set(pod.Labels)) })
	isLate := isOverdue(scope, slot)
	isForced := settings.OnTimeout == v1alpha1.DrainForce && isLate
	left, since := r.moveAllOff(ctx, scope, firstToGo(going), node, isLate, isForced), slot.Since.Time
	if len(going) == 0 {
		left = attachedVolumes(node.Node, staying)
		since = r.detaching.since(node.UID, scope.Now)
	}
	if len(going) == 0 && len(left) == 0 {
		r.detaching.end(node.UID)
	}
	if len(left) == 0 || scope.Now.Sub(since) < min(blockedAfter, drainTimeout(scope)) {
		return len(going) == 0 && len(left) == 0, "", nil
	}
	return len(going) == 0 && isForced, "waits for " + list(left), nil
}

// parted takes the pods apart: those that is says yes to, and the others.
func parted(pods []corev1.Pod, is func(*corev1.Pod) bool) (yes, no []*corev1.Pod) {
	for i := range pods {
		if is(&pods[i]) {
			yes = append(yes, &pods[i])
			continue
		}
		no = append(no, &pods[i])
	}
	return yes, no
}

// moveAllOff tells the pods to go, some at the same time, and names those that stay.
func (r *Reconciler) moveAllOff(ctx context.Context, scope *Scope, pods []*corev1.Pod, node *Node, isLate, isForced bool) (left []string) {
	why := make([]string, len(pods))
	inParallel(min(r.parallel, maxEvictions), len(pods), func(i int) { why[i] = r.moveOff(ctx, scope, pods[i], node, isForced) })
	for i, pod := range pods {
		if why[i] == "" && isLate {
			why[i] = "was told to end" // a drain that took too long names what it has waited for
		}
		if why[i] != "" {
			left = append(left, fmt.Sprintf("%s/%s (%s)", pod.Namespace, pod.Name, why[i]))
		}
	}
	return left
}

// systemPriority is where the priorities of Kubernetes' own classes begin: a pod of
// system-cluster-critical or system-node-critical may serve others on its node.
const systemPriority = int32(2_000_000_000)

// firstToGo are the pods of the workload, and those of the system when none of them
// is left.
func firstToGo(going []*corev1.Pod) []*corev1.Pod {
	var workload, system []*corev1.Pod
	for _, pod := range going {
		if priority := pod.Spec.Priority; priority != nil && *priority >= systemPriority {
			system = append(system, pod)
			continue
		}
		workload = append(workload, pod)
	}
	if len(workload) > 0 {
		return workload
	}
	return system
}

// skipSelector matches the pods that may stay; none without spec.drain.skipPodSelector.
func skipSelector(settings v1alpha1.DrainSpec) (labels.Selector, error) {
	if settings.SkipPodSelector == nil {
		return labels.Nothing(), nil
	}
	selector, err := metav1.LabelSelectorAsSelector(settings.SkipPodSelector)
	if err != nil {
		return nil, fmt.Errorf("spec.drain.skipPodSelector: %w", err)
	}
	return selector, nil
}

// moveOff does what can be done about one pod and says what keeps it, if
// anything does.
func (r *Reconciler) moveOff(ctx context.Context, scope *Scope, pod *corev1.Pod, node *Node, isForced bool) string {
	if pod.DeletionTimestamp != nil {
		return hanging(scope.Now, pod, node)
	}
	if job := r.gateJobOf(pod); job != nil {
		return r.endGate(ctx, job)
	}
	if why := refusal(pod, scope.Rollout.Spec.Drain); why != "" {
		return why
	}
	return r.evict(ctx, pod, isForced)
}

// endGate ends a Job of a gate that has lasted longer than its slot. Its pod evicted, it
// would be made anew on the same node.
func (r *Reconciler) endGate(ctx context.Context, job *batchv1.Job) string {
	if err := r.deleteJob(ctx, job); err != nil {
		return err.Error()
	}
	return ""
}

// hanging says why a pod that was told to end is still there, once that is odd.
// The times in it are fixed, so that the message is, too.
func hanging(now time.Time, pod *corev1.Pod, node *Node) string {
	due := pod.DeletionTimestamp.Time // the API server adds the grace period
	if now.Sub(due) < terminatingLimit {
		return ""
	}
	text := "should have ended by " + due.UTC().Format(time.RFC3339)
	switch {
	case len(pod.Finalizers) > 0:
		return text + ", finalizers hold it: " + strings.Join(pod.Finalizers, ", ")
	case !node.isReady():
		return text + ", but the node is not Ready and its kubelet does not end it: bring the node back, or taint it node.kubernetes.io/out-of-service if it is off for good"
	}
	return text + ", but the kubelet has not ended it"
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

// evict asks for the eviction and says what refuses it; a budget that does is
// overruled if isForced. The UID makes sure that it is this pod and not its
// replacement under the same name.
func (r *Reconciler) evict(ctx context.Context, pod *corev1.Pod, isForced bool) string {
	eviction := &policyv1.Eviction{
		ObjectMeta:    metav1.ObjectMeta{Name: pod.Name, Namespace: pod.Namespace},
		DeleteOptions: &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &pod.UID}},
	}
	err := r.Client.SubResource("eviction").Create(ctx, pod, eviction)
	if err == nil || apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return ""
	}
	budget := budgetOf(err)
	switch {
	case budget == "":
		return err.Error()
	case isForced:
		return r.remove(ctx, pod, budget)
	}
	return budget
}

// remove deletes a pod past its budget, with its own grace period.
func (r *Reconciler) remove(ctx context.Context, pod *corev1.Pod, budget string) string {
	err := r.Client.Delete(ctx, pod, client.Preconditions{UID: &pod.UID})
	switch {
	case err == nil:
		r.Recorder.Eventf(pod, nil, corev1.EventTypeWarning, "DrainForced", "Drain", "%s", clip("deleted for the update of its node, spec.drain.onTimeout is Force: "+budget))
		return ""
	case apierrors.IsNotFound(err), apierrors.IsConflict(err):
		return ""
	case apierrors.IsForbidden(err):
		return budget + "; the controller may not delete pods: bind the ClusterRole imagemode-force-drain to it, or set another spec.drain.onTimeout"
	}
	return err.Error()
}

// severalBudgets is part of the API server's answer where more than one budget selects
// the pod: it evicts no such pod, whatever they allow.
const severalBudgets = "more than one PodDisruptionBudget"

// budgetOf reads which PodDisruptionBudget refused the eviction; empty: it was none. An
// API server with too much to do answers with the same code, but names no budget.
func budgetOf(err error) string {
	status, isStatus := err.(apierrors.APIStatus) //nolint:errorlint // the API server's answer, not wrapped
	if !isStatus {
		return ""
	}
	if answer := status.Status(); answer.Code == http.StatusInternalServerError && strings.Contains(answer.Message, severalBudgets) {
		return answer.Message
	}
	if status.Status().Details != nil {
		for _, cause := range status.Status().Details.Causes {
			if cause.Type == policyv1.DisruptionBudgetCause {
				return "no more disruptions allowed: " + cause.Message
			}
		}
	}
	return ""
}
