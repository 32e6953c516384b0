package machineconfigpool

import (
	"context"
	"fmt"
	"slices"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

// renderedHistory is how many rendered configs of a pool are kept although
// nothing refers to them: enough to look back after a bad change, and room for
// a MachineOSBuild that the cache does not show yet.
const renderedHistory = 5

// superfluous returns the rendered configs of a pool that can go: those that
// neither the pool nor a build names, beyond the newest five.
func superfluous(pool *mcfgv1.MachineConfigPool, configs []mcfgv1.MachineConfig, builds []mcfgv1.MachineOSBuild) []*mcfgv1.MachineConfig {
	inUse := map[string]bool{pool.Spec.Configuration.Name: true, pool.Status.Configuration.Name: true}
	for _, build := range builds {
		inUse[build.Spec.MachineConfig.Name] = true
	}
	var unused []*mcfgv1.MachineConfig
	for i := range configs {
		config := &configs[i]
		if metav1.IsControlledBy(config, pool) && !inUse[config.Name] && config.DeletionTimestamp == nil {
			unused = append(unused, config)
		}
	}
	slices.SortFunc(unused, func(a, b *mcfgv1.MachineConfig) int {
		if isNewer(a, b) {
			return -1
		}
		return 1
	})
	return unused[min(len(unused), renderedHistory):]
}

// prune removes superfluous rendered configs, unless they are somebody else's.
func (r *poolReconciler) prune(ctx context.Context, scope *scope) error {
	if r.options.Off.Render {
		return nil
	}
	for _, config := range superfluous(scope.pool, scope.configs, scope.builds) {
		if err := r.client.Delete(ctx, config, client.Preconditions{UID: &config.UID}); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("delete MachineConfig %s: %w", config.Name, err)
		}
		log.FromContext(ctx).Info("removed a rendered config that nothing refers to", "machineConfig", config.Name)
	}
	return nil
}
