package story

import (
	"context"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/imagemode/imagemode/api/machineconfiguration"
)

// AgentClient is a client with a token as the agent on a worker has one: bound to
// its pod, so that the API server finds the worker's name in it.
func (s *Story) AgentClient(ctx context.Context, worker string) (client.Client, error) {
	pod, err := s.podOf(ctx, "agent", func(pod *corev1.Pod) bool { return pod.Spec.NodeName == worker })
	if err != nil {
		return nil, err
	}
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		BoundObjectRef: &authenticationv1.BoundObjectReference{Kind: "Pod", APIVersion: "v1", Name: pod.Name, UID: pod.UID},
	}}
	answer, err := s.Cluster.Core.CoreV1().ServiceAccounts(machineconfiguration.Namespace).
		CreateToken(ctx, pod.Spec.ServiceAccountName, request, metav1.CreateOptions{})
	if err != nil {
		return nil, err
	}
	return s.Cluster.ClientWithToken(answer.Status.Token)
}
