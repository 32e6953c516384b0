package machineconfigpool

import (
	"slices"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// role is what a pool is for. It decides which of several pools that select a
// node has it, and whose MachineConfigs and stream a pool takes over.
type role int

const (
	// custom pools come before all others and take over the worker pool's
	// MachineConfigs and stream.
	custom role = iota
	controlPlane
	worker
)

// workerPool is the name of the pool that custom pools take over from.
const workerPool = "worker"

// controlPlanePools are the pools of control-plane and arbiter nodes by name.
var controlPlanePools = []string{"master", "control-plane", "arbiter"}

// controlPlaneLabels mark control-plane nodes; a pool that asks for one of them
// is a control-plane pool whatever its name.
var controlPlaneLabels = []string{
	"node-role.kubernetes.io/master",
	"node-role.kubernetes.io/control-plane",
	"node-role.kubernetes.io/arbiter",
}

// roleOf tells a pool's role from its name, else from its node selector.
func roleOf(pool *mcfgv1.MachineConfigPool) role {
	switch {
	case pool.Name == workerPool:
		return worker
	case slices.Contains(controlPlanePools, pool.Name), requiresControlPlane(pool.Spec.NodeSelector):
		return controlPlane
	default:
		return custom
	}
}

// requiresControlPlane reports whether only nodes with a control-plane label
// match. A selector that excludes them does not.
func requiresControlPlane(selector *metav1.LabelSelector) bool {
	if selector == nil {
		return false
	}
	for _, label := range controlPlaneLabels {
		if _, found := selector.MatchLabels[label]; found {
			return true
		}
	}
	return slices.ContainsFunc(selector.MatchExpressions, func(term metav1.LabelSelectorRequirement) bool {
		asks := term.Operator == metav1.LabelSelectorOpExists || term.Operator == metav1.LabelSelectorOpIn
		return asks && slices.Contains(controlPlaneLabels, term.Key)
	})
}
