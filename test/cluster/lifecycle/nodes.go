package lifecycle

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/imagemode/imagemode/test/cluster/layout"
)

// Role labels of nodes. A kubelet may not give itself one.
const (
	controlPlaneLabel = "node-role.kubernetes.io/control-plane"
	workerLabel       = "node-role.kubernetes.io/worker"
)

func newClient() (kubernetes.Interface, error) {
	config, err := clientcmd.BuildConfigFromFlags("", layout.Kubeconfig)
	if err != nil {
		return nil, err
	}
	config.Timeout = 10 * time.Second
	return kubernetes.NewForConfig(config)
}

// nodeTimeout is how long a node may take from its kubelet's start to Ready; a
// machine boots in it too.
const nodeTimeout = 5 * time.Minute

// awaitNode waits until the node is registered, labels it and waits until its
// kubelet has called it Ready since the time given: what it said before it was
// started again means nothing.
func awaitNode(ctx context.Context, client kubernetes.Interface, name, label string, since time.Time) error {
	ctx, cancel := context.WithTimeout(ctx, nodeTimeout)
	defer cancel()
	last := "is not registered"
	for {
		node, err := client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
		if err == nil {
			if err := ensureLabel(ctx, client, node, label); err != nil {
				return err
			}
			ready, why := nodeReady(node, since)
			if ready {
				return nil
			}
			last = why
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("node %s %s after %s: see its kubelet's log", name, last, nodeTimeout)
		case <-time.After(500 * time.Millisecond):
		}
	}
}

func ensureLabel(ctx context.Context, client kubernetes.Interface, node *corev1.Node, label string) error {
	if _, ok := node.Labels[label]; ok {
		return nil
	}
	patch := fmt.Appendf(nil, `{"metadata":{"labels":{%q:""}}}`, label)
	_, err := client.CoreV1().Nodes().Patch(ctx, node.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	return err
}

// nodeReady reports whether the node is Ready, and otherwise why not. Times in
// node conditions have whole seconds.
func nodeReady(node *corev1.Node, since time.Time) (ready bool, why string) {
	for _, condition := range node.Status.Conditions {
		if condition.Type != corev1.NodeReady {
			continue
		}
		if condition.LastHeartbeatTime.Time.Before(since.Truncate(time.Second)) {
			return false, "has not reported since " + since.Format(time.TimeOnly)
		}
		if condition.Status == corev1.ConditionTrue {
			return true, ""
		}
		return false, "is not Ready: " + condition.Message
	}
	return false, "has no Ready condition"
}
