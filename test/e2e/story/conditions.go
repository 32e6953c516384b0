package story

import (
	"fmt"
	"strings"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// describeConditions lists what is True, and what is False with a reason and a
// message, so that a wait that failed says why.
func describeConditions(conditions []metav1.Condition) string {
	if len(conditions) == 0 {
		return "no conditions"
	}
	var parts []string
	for _, condition := range conditions {
		part := fmt.Sprintf("%s=%s (%s)", condition.Type, condition.Status, condition.Reason)
		if condition.Message != "" {
			part += " " + condition.Message
		}
		parts = append(parts, part)
	}
	return strings.Join(parts, "; ")
}

// conditionsOf does so for a pool, whose conditions have a type of their own;
// those that are False say nothing there.
func conditionsOf(pool *mcfgv1.MachineConfigPool) string {
	var conditions []metav1.Condition
	for _, condition := range pool.Status.Conditions {
		if condition.Status == corev1.ConditionTrue {
			conditions = append(conditions, metav1.Condition{
				Type: string(condition.Type), Status: metav1.ConditionTrue,
				Reason: condition.Reason, Message: condition.Message,
			})
		}
	}
	return describeConditions(conditions)
}
