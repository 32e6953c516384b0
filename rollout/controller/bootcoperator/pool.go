package bootcoperator

import (
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/imagemode/imagemode/api/v1alpha1"
)

// refusal is a setting that the operator knows nothing of.
type refusal struct {
	field string
	isSet func(v1alpha1.ImageRolloutSpec) bool
}

// refusals: to ignore one of these would take nodes down at a time, or in a way,
// that somebody has ruled out.
var refusals = []refusal{
	{"mode StageOnly", func(s v1alpha1.ImageRolloutSpec) bool { return s.Mode == v1alpha1.RolloutModeStageOnly }},
	{"canary", func(s v1alpha1.ImageRolloutSpec) bool { return s.Canary != nil }},
	{"soak", func(s v1alpha1.ImageRolloutSpec) bool { return s.Soak != nil && s.Soak.Duration > 0 }},
	{"failureBudget", func(s v1alpha1.ImageRolloutSpec) bool { return s.FailureBudget != nil }},
	{"windows", func(s v1alpha1.ImageRolloutSpec) bool { return len(s.Windows) > 0 }},
	{"gates", func(s v1alpha1.ImageRolloutSpec) bool { return len(s.Gates) > 0 }},
	{"drain.onTimeout Force", func(s v1alpha1.ImageRolloutSpec) bool { return s.Drain.OnTimeout == v1alpha1.DrainForce }},
	{"drain.deleteEmptyDir false", func(s v1alpha1.ImageRolloutSpec) bool {
		return s.Drain.DeleteEmptyDir != nil && !*s.Drain.DeleteEmptyDir
	}},
	{"drain.skipPodSelector", func(s v1alpha1.ImageRolloutSpec) bool { return s.Drain.SkipPodSelector != nil }},
	{"drift Correct", func(s v1alpha1.ImageRolloutSpec) bool { return s.Drift == v1alpha1.DriftCorrect }},
	{"live", func(s v1alpha1.ImageRolloutSpec) bool { return s.Live != nil }},
}

// refuse names the settings that the operator cannot keep; nothing is handed to
// it then. The zero condition: there are none.
func refuse(spec v1alpha1.ImageRolloutSpec) metav1.Condition {
	var names []string
	for _, refusal := range refusals {
		if refusal.isSet(spec) {
			names = append(names, "spec."+refusal.field)
		}
	}
	if len(names) == 0 {
		return metav1.Condition{}
	}
	return condition(v1alpha1.ConditionDegraded, true, "NotSupported",
		"the bootc operator cannot do "+strings.Join(names, ", ")+": remove it, or run the controller with --rollout-backend=native")
}

// poolFor is the BootcNodePool that a rollout comes to; nil while there is
// nothing to hand over. A rollout that lost its image pauses the pool.
func poolFor(rollout *v1alpha1.ImageRollout, present *unstructured.Unstructured) *unstructured.Unstructured {
	spec := rollout.Spec
	image, isPaused := spec.Image, spec.Paused
	if image == "" && present != nil {
		image, _, _ = unstructured.NestedString(present.Object, "spec", "image", "ref")
		isPaused = true
	}
	if image == "" || spec.NodeSelector == nil {
		return nil
	}
	policy := "RebootOnly"
	if spec.Reboot.Policy == v1alpha1.RebootSoftIfCapable {
		policy = "AllowSoftReboot"
	}
	content := map[string]any{
		"nodeSelector": selectorContent(spec.NodeSelector),
		"image":        map[string]any{"ref": image},
		"rollout":      rolloutContent(spec, isPaused),
		"disruption":   map[string]any{"rebootPolicy": policy},
	}
	if spec.PullSecretRef != nil {
		content["pullSecretRef"] = map[string]any{"name": spec.PullSecretRef.Name, "namespace": spec.PullSecretRef.Namespace}
	}
	pool := &unstructured.Unstructured{Object: map[string]any{"spec": content}}
	pool.SetGroupVersionKind(groupVersion.WithKind("BootcNodePool"))
	pool.SetName(rollout.Name)
	pool.SetOwnerReferences([]metav1.OwnerReference{{
		APIVersion: v1alpha1.GroupVersion.String(), Kind: "ImageRollout", Name: rollout.Name, UID: rollout.UID,
	}})
	return pool
}

func rolloutContent(spec v1alpha1.ImageRolloutSpec, isPaused bool) map[string]any {
	content := map[string]any{"paused": isPaused, "maxUnavailable": int64(1)}
	if limit := spec.MaxUnavailable; limit != nil {
		if limit.Type == intstr.String {
			content["maxUnavailable"] = limit.StrVal
		} else {
			content["maxUnavailable"] = int64(max(limit.IntVal, 1))
		}
	}
	// Past its timeout the operator frees the slot of a node: that is Skip.
	if timeout := spec.Drain.Timeout; timeout != nil && spec.Drain.OnTimeout == v1alpha1.DrainSkip {
		content["drainTimeoutSeconds"] = int64(timeout.Seconds())
	}
	return content
}

func selectorContent(selector *metav1.LabelSelector) map[string]any {
	content := map[string]any{}
	if len(selector.MatchLabels) > 0 {
		labels := map[string]any{}
		for key, value := range selector.MatchLabels {
			labels[key] = value
		}
		content["matchLabels"] = labels
	}
	var expressions []any
	for _, expression := range selector.MatchExpressions {
		entry := map[string]any{"key": expression.Key, "operator": string(expression.Operator)}
		var values []any
		for _, value := range expression.Values {
			values = append(values, value)
		}
		if values != nil {
			entry["values"] = values
		}
		expressions = append(expressions, entry)
	}
	if expressions != nil {
		content["matchExpressions"] = expressions
	}
	return content
}

// isIn says whether the pool says all of it already. Fields that are not ours do
// not matter.
func isIn(wanted, present *unstructured.Unstructured) bool {
	if present == nil {
		return false
	}
	want, _, _ := unstructured.NestedMap(wanted.Object, "spec")
	have, _, _ := unstructured.NestedMap(present.Object, "spec")
	if _, isWanted := want["pullSecretRef"]; !isWanted && have["pullSecretRef"] != nil {
		return false
	}
	for key, value := range want {
		if !equality.Semantic.DeepEqual(value, have[key]) {
			return false
		}
	}
	return true
}
