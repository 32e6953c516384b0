package story

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/imagemode/imagemode/api/v1alpha1"
)

// What the agent as a service of the machines is told with.

// AgentUnit is the service.
const AgentUnit = "imagemode-agent.service"

// kubeletKubeconfig is the kubelet's credential on the machines.
const kubeletKubeconfig = "/etc/kubernetes/kubelet.conf"

// AllowService gives nodes the rights that the service needs.
func (s *Story) AllowService(ctx context.Context) error {
	_, err := s.Cluster.Kubectl(ctx, "apply", "--server-side", "-f", "config/agent/service/nodes.yaml")
	return err
}

// MaskService keeps the service from running on a machine, in this image and in
// those to come; isMasked false lets it.
func (s *Story) MaskService(ctx context.Context, machine string, isMasked bool) error {
	script := "systemctl unmask " + AgentUnit
	if isMasked {
		script = "systemctl mask " + AgentUnit + " && systemctl stop " + AgentUnit
	}
	_, err := s.Cluster.Exec(ctx, machine, "sh", "-c", script)
	return err
}

// AgentStandsBack waits until the agent's pod on a machine says that it leaves the
// machine to the service.
func (s *Story) AgentStandsBack(ctx context.Context, machine string) error {
	return until(ctx, "the agent's pod on "+machine+" to stand back", func(ctx context.Context) (string, bool, error) {
		pod, err := s.podOf(ctx, "agent", func(pod *corev1.Pod) bool { return pod.Spec.NodeName == machine })
		if err != nil {
			return err.Error(), false, nil
		}
		stream, err := s.Cluster.Core.CoreV1().Pods(pod.Namespace).GetLogs(pod.Name, &corev1.PodLogOptions{}).Stream(ctx)
		if err != nil {
			return err.Error(), false, nil
		}
		defer stream.Close()
		said, err := io.ReadAll(io.LimitReader(stream, 1<<20))
		return fmt.Sprintf("%s says %d bytes", pod.Name, len(said)), strings.Contains(string(said), "standing back for the service"), err
	})
}

// RemoveAgents deletes the DaemonSet and waits until its pods are gone.
func (s *Story) RemoveAgents(ctx context.Context) error {
	err := s.Cluster.Client.Delete(ctx, &appsv1.DaemonSet{ObjectMeta: inNamespace("imagemode-agent")}, client.PropagationPolicy("Background"))
	if client.IgnoreNotFound(err) != nil {
		return err
	}
	return until(ctx, "the agents' pods to be gone", func(ctx context.Context) (string, bool, error) {
		var pods corev1.PodList
		err := s.Cluster.Client.List(ctx, &pods, client.InNamespace(inNamespace("").Namespace), client.MatchingLabels{"app.kubernetes.io/component": "agent"})
		return fmt.Sprintf("%d left", len(pods.Items)), len(pods.Items) == 0, err
	})
}

// KubeletClient is a client with the credential of a machine's kubelet.
func (s *Story) KubeletClient(ctx context.Context, machine string) (client.Client, error) {
	content, err := s.Cluster.Exec(ctx, machine, "cat", kubeletKubeconfig)
	if err != nil {
		return nil, err
	}
	return s.Cluster.ClientWithKubeconfig([]byte(content))
}

// AllowSoftReboots has a rollout restart the userspace only, where that is possible.
func (s *Story) AllowSoftReboots(ctx context.Context, rollout string) error {
	return s.patchRollout(ctx, rollout, `{"spec":{"reboot":{"policy":"SoftIfCapable"}}}`)
}

// GiveUpAfter says how long a node of a rollout may take to be well on its image.
func (s *Story) GiveUpAfter(ctx context.Context, rollout string, deadline time.Duration) error {
	return s.patchRollout(ctx, rollout, fmt.Sprintf(`{"spec":{"rollback":{"deadline":%q}}}`, deadline))
}

func (s *Story) patchRollout(ctx context.Context, name, patch string) error {
	object := &v1alpha1.ImageRollout{ObjectMeta: metav1.ObjectMeta{Name: name}}
	return s.Cluster.Client.Patch(ctx, object, client.RawPatch("application/merge-patch+json", []byte(patch)))
}
