package story

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const controlPlaneLabel = "node-role.kubernetes.io/control-plane"

// MakeSingleNode leaves the cluster one node, a worker that is its control plane
// too, with the controller on it. It returns how to bring the others back, which
// is to be called after an error, too.
func (s *Story) MakeSingleNode(ctx context.Context, worker string) (restore func() error, err error) {
	var nodes corev1.NodeList
	if err := s.Cluster.Client.List(ctx, &nodes); err != nil {
		return func() error { return nil }, err
	}
	restore = func() error { return s.restoreNodes(worker, nodes.Items) }
	if err := s.labelNode(ctx, worker, `""`); err != nil {
		return restore, err
	}
	for i := range nodes.Items {
		if node := &nodes.Items[i]; node.Name != worker {
			if err := s.Cluster.Client.Delete(ctx, node.DeepCopy()); err != nil {
				return restore, err
			}
		}
	}
	pod, err := s.controllerPod(ctx)
	if err != nil {
		return restore, err
	}
	if err := client.IgnoreNotFound(s.Cluster.Client.Delete(ctx, pod, client.GracePeriodSeconds(0))); err != nil {
		return restore, err
	}
	return restore, until(ctx, "the controller to run on "+worker, func(ctx context.Context) (string, bool, error) {
		pod, err := s.controllerPod(ctx)
		if err != nil {
			return err.Error(), false, nil
		}
		return pod.Name + " on " + pod.Spec.NodeName, pod.Spec.NodeName == worker && isPodReady(pod), nil
	})
}

func (s *Story) labelNode(ctx context.Context, name, value string) error {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	patch := fmt.Sprintf(`{"metadata":{"labels":{%q:%s}}}`, controlPlaneLabel, value)
	return s.Cluster.Client.Patch(ctx, node, client.RawPatch("application/merge-patch+json", []byte(patch)))
}

// restoreNodes makes the nodes again as they were; their kubelets, which ran all
// the time, go on as if nothing had been.
func (s *Story) restoreNodes(worker string, nodes []corev1.Node) error {
	ctx, cancel := shortly()
	defer cancel()
	problems := []error{s.labelNode(ctx, worker, "null")}
	for i := range nodes {
		node := nodes[i].DeepCopy()
		if node.Name == worker {
			continue
		}
		node.ObjectMeta = metav1.ObjectMeta{Name: node.Name, Labels: node.Labels, Annotations: node.Annotations}
		err := s.Cluster.Client.Create(ctx, node)
		if apierrors.IsAlreadyExists(err) {
			continue
		}
		problems = append(problems, err)
	}
	// The controller goes back to where it belongs.
	if pod, err := s.controllerPod(ctx); err == nil && pod.Spec.NodeName == worker {
		problems = append(problems, client.IgnoreNotFound(s.Cluster.Client.Delete(ctx, pod, client.GracePeriodSeconds(0))))
	}
	for i := range nodes {
		problems = append(problems, s.AwaitService(ctx, nodes[i].Name))
	}
	return errors.Join(append(problems, until(ctx, "the agents", s.agentsAreUp))...)
}
