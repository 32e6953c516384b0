package story

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/imagemode/imagemode/api/machineconfiguration"
	"github.com/imagemode/imagemode/api/v1alpha1"
)

// HandRollout is an ImageRollout that somebody wrote: no MachineOSConfig is there.
const HandRollout = "by-hand"

// Deploy installs imagemode, and does not wait to see that nothing happens.
func (s *Story) Deploy() Phase { return s.Install()[0] }

// ApplyRollout writes the rollout by hand: the image to all workers, as changed.
func (s *Story) ApplyRollout(ctx context.Context, image string, change func(*v1alpha1.ImageRolloutSpec)) error {
	spec := v1alpha1.ImageRolloutSpec{
		Image:         image,
		NodeSelector:  &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: workerLabel, Operator: metav1.LabelSelectorOpExists}}},
		PullSecretRef: &v1alpha1.SecretReference{Namespace: machineconfiguration.Namespace, Name: "node-pull"},
	}
	change(&spec)
	return retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		rollout := &v1alpha1.ImageRollout{ObjectMeta: metav1.ObjectMeta{Name: HandRollout}}
		_, err := controllerutil.CreateOrUpdate(ctx, s.Cluster.Client, rollout, func() error {
			rollout.Spec = spec
			return nil
		})
		return err
	})
}

// DeleteRollout deletes the rollout and waits until its nodes are let go.
func (s *Story) DeleteRollout(ctx context.Context) error {
	return s.deleteAll(ctx, &v1alpha1.ImageRollout{}, &v1alpha1.ImageRolloutList{})
}

// AwaitRollout waits until the rollout is as the function wants it.
func (s *Story) AwaitRollout(ctx context.Context, what string, is func(*v1alpha1.ImageRollout) bool) (*v1alpha1.ImageRollout, error) {
	rollout := &v1alpha1.ImageRollout{}
	err := until(ctx, "ImageRollout "+HandRollout+": "+what, func(ctx context.Context) (string, bool, error) {
		rollout = &v1alpha1.ImageRollout{}
		if err := s.Cluster.Client.Get(ctx, client.ObjectKey{Name: HandRollout}, rollout); err != nil {
			return err.Error(), false, nil
		}
		return describeConditions(rollout.Status.Conditions) + fmt.Sprintf("; slots %+v", rollout.Status.Slots), is(rollout), nil
	})
	return rollout, err
}

// RolloutCondition waits for a condition of the rollout with that status and reason.
func (s *Story) RolloutCondition(ctx context.Context, kind string, status metav1.ConditionStatus, reason string) (*metav1.Condition, error) {
	var found *metav1.Condition
	_, err := s.AwaitRollout(ctx, fmt.Sprintf("%s=%s, %s", kind, status, reason), func(rollout *v1alpha1.ImageRollout) bool {
		found = meta.FindStatusCondition(rollout.Status.Conditions, kind)
		return found != nil && found.Status == status && found.Reason == reason && found.ObservedGeneration == rollout.Generation
	})
	return found, err
}

// AwaitNode waits until what a worker's agent reports is as the function wants it.
func (s *Story) AwaitNode(ctx context.Context, node, what string, is func(*v1alpha1.NodeImage) bool) (*v1alpha1.NodeImage, error) {
	var image *v1alpha1.NodeImage
	err := until(ctx, node+": "+what, func(ctx context.Context) (state string, done bool, err error) {
		if image, err = s.NodeImage(ctx, node); err != nil {
			return err.Error(), false, nil
		}
		return fmt.Sprintf("booted %+v, staged %+v, last attempt %+v; %s", image.Status.Booted, image.Status.Staged, image.Status.LastAttempt,
			describeConditions(image.Status.Conditions)), is(image), nil
	})
	return image, err
}

// HasStaged says whether the node reports the image staged, and locked against a
// reboot that nobody ordered.
func HasStaged(image string) func(*v1alpha1.NodeImage) bool {
	return func(node *v1alpha1.NodeImage) bool {
		staged := node.Status.Staged
		return staged != nil && staged.DownloadOnly && strings.HasSuffix(image, "@"+staged.Digest)
	}
}

// Runs says whether the node reports that it runs the image.
func Runs(image string) func(*v1alpha1.NodeImage) bool {
	return func(node *v1alpha1.NodeImage) bool { return runs(node, image) }
}

// AwaitService waits until a worker is Ready and takes pods.
func (s *Story) AwaitService(ctx context.Context, name string) error {
	return until(ctx, name+" to be in service", func(ctx context.Context) (string, bool, error) {
		node := &corev1.Node{}
		if err := s.Cluster.Client.Get(ctx, client.ObjectKey{Name: name}, node); err != nil {
			return err.Error(), false, nil
		}
		return fmt.Sprintf("Ready %t, unschedulable %t", isReady(node), node.Spec.Unschedulable), isReady(node) && !node.Spec.Unschedulable, nil
	})
}

// KillControllerAtCordon waits until somebody cordons the worker, and ends the
// controller at once and without a word. It returns the pod's name.
func (s *Story) KillControllerAtCordon(ctx context.Context, worker string) (string, error) {
	_, version, err := s.listWorkers(ctx)
	if err != nil {
		return "", err
	}
	pod, err := s.controllerPod(ctx)
	if err != nil {
		return "", err
	}
	stream, err := s.watchWorkers(ctx, version)
	if err != nil {
		return "", err
	}
	defer stream.Stop()
	for event := range stream.ResultChan() {
		if node, isNode := event.Object.(*corev1.Node); isNode && node.Name == worker && node.Spec.Unschedulable {
			s.Log.Line("%s is cordoned: ending %s", worker, pod.Name)
			return pod.Name, s.Cluster.Client.Delete(ctx, pod, client.GracePeriodSeconds(0))
		}
	}
	return "", fmt.Errorf("%s was not cordoned: %w", worker, context.Cause(ctx))
}

func (s *Story) controllerPod(ctx context.Context) (*corev1.Pod, error) {
	return s.podOf(ctx, "controller", func(*corev1.Pod) bool { return true })
}

// podOf finds a running pod of a component of imagemode.
func (s *Story) podOf(ctx context.Context, component string, is func(*corev1.Pod) bool) (*corev1.Pod, error) {
	var pods corev1.PodList
	err := s.Cluster.Client.List(ctx, &pods, client.InNamespace(machineconfiguration.Namespace), client.MatchingLabels{"app.kubernetes.io/component": component})
	if err != nil {
		return nil, err
	}
	for i := range pods.Items {
		if pod := &pods.Items[i]; pod.DeletionTimestamp == nil && pod.Status.Phase == corev1.PodRunning && is(pod) {
			return pod, nil
		}
	}
	return nil, fmt.Errorf("no %s is running", component)
}

// AwaitOutages waits until a worker was out of service so often, and returns how
// long the last time took.
func (s *Story) AwaitOutages(ctx context.Context, worker string, count int) (time.Duration, error) {
	err := until(ctx, fmt.Sprintf("%s to have been out of service %d times", worker, count), func(context.Context) (string, bool, error) {
		return fmt.Sprint(s.OutagesOf(worker)), s.OutagesOf(worker) >= count, nil
	})
	if err != nil {
		return 0, err
	}
	outages := s.Workers.Outages()[worker]
	return outages[len(outages)-1], nil
}

// OutagesOf is how often a worker was out of service since the story began.
func (s *Story) OutagesOf(worker string) int { return len(s.Workers.Outages()[worker]) }

// shortly is a context for what has to be undone, also after the test's end.
func shortly() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), time.Minute)
}
