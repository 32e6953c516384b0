package machineconfiguration

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ControlPlaneLabels mark the nodes that the API server and etcd run on: those of
// installers old and new, and of nodes that only vote.
var ControlPlaneLabels = []string{
	"node-role.kubernetes.io/control-plane",
	"node-role.kubernetes.io/master",
	"node-role.kubernetes.io/arbiter",
}

// controlPlanePools are the pools of control-plane and arbiter nodes by name.
var controlPlanePools = []string{"master", "control-plane", "arbiter"}

// IsControlPlaneNode reports whether a node with these labels is one of the
// control plane.
func IsControlPlaneNode(labels map[string]string) bool {
	return slices.ContainsFunc(ControlPlaneLabels, func(label string) bool {
		_, isThere := labels[label]
		return isThere
	})
}

// IsControlPlanePool reports whether a MachineConfigPool is for control-plane
// nodes: by its name, or because its node selector asks for them. A selector that
// excludes them does not.
func IsControlPlanePool(name string, selector *metav1.LabelSelector) bool {
	if slices.Contains(controlPlanePools, name) {
		return true
	}
	if selector == nil {
		return false
	}
	if IsControlPlaneNode(selector.MatchLabels) {
		return true
	}
	return slices.ContainsFunc(selector.MatchExpressions, func(term metav1.LabelSelectorRequirement) bool {
		asks := term.Operator == metav1.LabelSelectorOpExists || term.Operator == metav1.LabelSelectorOpIn
		return asks && slices.Contains(ControlPlaneLabels, term.Key)
	})
}
