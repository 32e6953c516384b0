package machineconfigpool

import (
	"fmt"
	"slices"
	"strings"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// renderedPrefix begins the names of rendered MachineConfigs.
const renderedPrefix = "rendered-"

// isRendered reports whether a MachineConfig is the result of a render: such
// a one is never the input of another, whatever its labels.
func isRendered(config *mcfgv1.MachineConfig) bool {
	owner := metav1.GetControllerOf(config)
	return strings.HasPrefix(config.Name, renderedPrefix) || (owner != nil && owner.Kind == "MachineConfigPool")
}

// selectConfigs returns the MachineConfigs of a pool in the order in which they
// are merged: those of inherited (the worker pool, for custom pools; else nil)
// first, then the pool's own, each by name and none twice. The order of all
// does not matter.
func selectConfigs(pool, inherited *mcfgv1.MachineConfigPool, all []mcfgv1.MachineConfig) ([]*mcfgv1.MachineConfig, error) {
	var ordered []*mcfgv1.MachineConfig
	taken := map[string]bool{}
	for _, from := range []*mcfgv1.MachineConfigPool{inherited, pool} {
		if from == nil {
			continue
		}
		selector, err := configSelector(from)
		if err != nil {
			return nil, err
		}
		for _, config := range matching(selector, all) {
			if !taken[config.Name] {
				taken[config.Name] = true
				ordered = append(ordered, config)
			}
		}
	}
	return ordered, nil
}

// configSelector parses spec.machineConfigSelector. Without one a pool selects
// nothing and runs its stream as it is. An empty one, which would select the
// MachineConfigs of every pool, is an error.
func configSelector(pool *mcfgv1.MachineConfigPool) (labels.Selector, error) {
	selector, err := metav1.LabelSelectorAsSelector(pool.Spec.MachineConfigSelector)
	if err != nil {
		return nil, &renderError{
			reason:  reasonInvalidSelector,
			message: fmt.Sprintf("spec.machineConfigSelector of MachineConfigPool %s is not valid: %v", pool.Name, err),
		}
	}
	if pool.Spec.MachineConfigSelector != nil && selector.Empty() {
		return nil, &renderError{
			reason:  reasonInvalidSelector,
			message: fmt.Sprintf("spec.machineConfigSelector of MachineConfigPool %s is empty and would select every MachineConfig; name labels in it, or leave it out to select none", pool.Name),
		}
	}
	return selector, nil
}

// checkNodeSelector: a pool whose spec.nodeSelector is not valid keeps the nodes that
// it has, and says why.
func checkNodeSelector(pool *mcfgv1.MachineConfigPool) error {
	if _, err := metav1.LabelSelectorAsSelector(pool.Spec.NodeSelector); err != nil {
		return &renderError{
			reason:  reasonInvalidSelector,
			message: fmt.Sprintf("spec.nodeSelector of MachineConfigPool %s is not valid, so the pool keeps the nodes that it has: %v", pool.Name, err),
		}
	}
	return nil
}

// matching returns the selected MachineConfigs of users, by name.
func matching(selector labels.Selector, all []mcfgv1.MachineConfig) []*mcfgv1.MachineConfig {
	var selected []*mcfgv1.MachineConfig
	for i := range all {
		config := &all[i]
		if selector.Matches(labels.Set(config.Labels)) && !isRendered(config) && config.DeletionTimestamp == nil {
			selected = append(selected, config)
		}
	}
	slices.SortFunc(selected, func(a, b *mcfgv1.MachineConfig) int { return strings.Compare(a.Name, b.Name) })
	return selected
}
