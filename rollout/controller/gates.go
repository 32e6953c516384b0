package controller

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/imagemode/imagemode/api/v1alpha1"
)

// unmetGate names the first gate that is not met on the node, which runs the slot's
// image, and why; empty when all are.
func (r *Reconciler) unmetGate(ctx context.Context, rollout *v1alpha1.ImageRollout, slot v1alpha1.Slot, node *Node) (string, error) {
	if problem := gateProblem(rollout.Spec.Gates); problem != "" {
		return problem, nil
	}
	for _, gate := range rollout.Spec.Gates {
		var problem string
		var err error
		switch {
		case gate.NodeCondition != nil:
			problem = unmetCondition(*gate.NodeCondition, node)
		case gate.Pods != nil:
			problem, err = r.unreadyPods(ctx, *gate.Pods, node.Name)
		case gate.Job != nil:
			problem, err = r.unfinishedJob(ctx, rollout, gate, slot, node)
		}
		if problem != "" || err != nil {
			return fmt.Sprintf("gate %s: %s", gate.Name, problem), err
		}
	}
	return "", nil
}

// gateProblem names the field of the first gate that no node could ever meet, since it
// makes no sense to Kubernetes; empty: there is none. The API cannot check all of it.
func gateProblem(gates []v1alpha1.Gate) string {
	for i, gate := range gates {
		if field, problem := wrongField(gate); problem != "" {
			return fmt.Sprintf("spec.gates[%d]%s (gate %s) is not valid: %s", i, field, gate.Name, problem)
		}
	}
	return ""
}

// gateProblem is also that a Job of a gate has no template: nobody could tell whether a
// node does well on the image, which is not the image's fault.
func (s *Scope) gateProblem() string {
	return cmp.Or(gateProblem(s.Rollout.Spec.Gates), s.MissingTemplate)
}

// wasInvalidGate says whether the status says so, which it does before anything else.
func (s *Scope) wasInvalidGate() bool {
	before := meta.FindStatusCondition(s.Rollout.Status.Conditions, v1alpha1.ConditionDegraded)
	return before != nil && before.Reason == reasonInvalidGate
}

func wrongField(gate v1alpha1.Gate) (field, problem string) {
	switch {
	case gate.NodeCondition != nil:
		return ".nodeCondition.type", strings.Join(validation.IsQualifiedName(gate.NodeCondition.Type), "; ")
	case gate.Pods != nil:
		if wrong := validation.IsDNS1123Label(gate.Pods.Namespace); len(wrong) > 0 {
			return ".pods.namespace", strings.Join(wrong, "; ")
		}
		if _, err := metav1.LabelSelectorAsSelector(&gate.Pods.Selector); err != nil {
			return ".pods.selector", err.Error()
		}
		return "", ""
	case gate.Job != nil:
		return ".job.cronJob", strings.Join(validation.IsDNS1123Subdomain(gate.Job.CronJob), "; ")
	}
	return "", "it says nothing that this version could check"
}

// reasonInvalidGate is that of a rollout with a gate that is not valid.
const reasonInvalidGate = "InvalidGate"

func unmetCondition(gate v1alpha1.NodeConditionGate, node *Node) string {
	want := gate.Status
	if want == "" {
		want = string(corev1.ConditionTrue)
	}
	for _, condition := range node.Status.Conditions {
		if string(condition.Type) != gate.Type {
			continue
		}
		if string(condition.Status) == want {
			return ""
		}
		return fmt.Sprintf("condition %s of the Node is %s, not %s: %s", gate.Type, condition.Status, want, condition.Message)
	}
	return fmt.Sprintf("the Node has no condition %s", gate.Type)
}

// unreadyPods says which of the gate's pods on the node are not Ready. A node
// without any has not met the gate: its pods are still to come.
func (r *Reconciler) unreadyPods(ctx context.Context, gate v1alpha1.PodsGate, node string) (string, error) {
	selector, err := metav1.LabelSelectorAsSelector(&gate.Selector)
	if err != nil {
		return "selector: " + err.Error(), nil
	}
	pods := &corev1.PodList{}
	onNode := client.MatchingFieldsSelector{Selector: fields.OneTermEqualSelector("spec.nodeName", node)}
	if err := r.Live.List(ctx, pods, onNode, client.InNamespace(gate.Namespace), client.MatchingLabelsSelector{Selector: selector}); err != nil {
		return "", fmt.Errorf("Node %s: pods of a gate could not be listed: %w", node, err)
	}
	var unready []string
	for i := range pods.Items {
		if pod := &pods.Items[i]; !isPodReady(pod) {
			unready = append(unready, fmt.Sprintf("pod %s/%s is not Ready", pod.Namespace, pod.Name))
		}
	}
	if len(pods.Items) == 0 {
		return fmt.Sprintf("no pod in namespace %s matches %s on the node", gate.Namespace, selector), nil
	}
	return list(unready), nil
}
