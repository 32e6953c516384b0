package story

import (
	"context"
	"fmt"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/imagemode/imagemode/api/machineconfiguration"
	"github.com/imagemode/imagemode/test/builders"
)

// CreateEmptyPool makes a pool of a name that no node belongs to: builds can be
// asked for without moving a node.
func (s *Story) CreateEmptyPool(ctx context.Context, name string) error {
	return client.IgnoreAlreadyExists(s.Cluster.Client.Create(ctx, builders.MachineConfigPool(name)))
}

// DeletePool deletes a pool and its MachineOSConfig.
func (s *Story) DeletePool(ctx context.Context, name string) error {
	config := &mcfgv1.MachineOSConfig{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if err := client.IgnoreNotFound(s.Cluster.Client.Delete(ctx, config)); err != nil {
		return err
	}
	return client.IgnoreNotFound(s.Cluster.Client.Delete(ctx, builders.MachineConfigPool(name)))
}

// FailedBuild waits for a pool's build to fail and returns its Failed condition.
func (s *Story) FailedBuild(ctx context.Context, pool string) (*metav1.Condition, error) {
	var failed *metav1.Condition
	err := until(ctx, "the build for pool "+pool+" to fail", func(ctx context.Context) (string, bool, error) {
		var builds mcfgv1.MachineOSBuildList
		if err := s.Cluster.Client.List(ctx, &builds); err != nil {
			return err.Error(), false, nil
		}
		state := "no build"
		for _, build := range builds.Items {
			if build.Spec.MachineOSConfig.Name != pool {
				continue
			}
			state = describeConditions(build.Status.Conditions)
			failed = meta.FindStatusCondition(build.Status.Conditions, string(mcfgv1.MachineOSBuildFailed))
			if failed != nil && failed.Status == metav1.ConditionTrue {
				return state, true, nil
			}
		}
		return state, false, nil
	})
	return failed, err
}

// InvalidConfig waits until a pool's MachineOSConfig is not Valid and returns
// the condition that says why.
func (s *Story) InvalidConfig(ctx context.Context, pool string) (*metav1.Condition, error) {
	var valid *metav1.Condition
	err := until(ctx, fmt.Sprintf("MachineOSConfig %s to be refused", pool), func(ctx context.Context) (string, bool, error) {
		config := &mcfgv1.MachineOSConfig{}
		if err := s.Cluster.Client.Get(ctx, client.ObjectKey{Name: pool}, config); err != nil {
			return err.Error(), false, nil
		}
		valid = meta.FindStatusCondition(config.Status.Conditions, machineconfiguration.ConditionValid)
		return describeConditions(config.Status.Conditions), valid != nil && valid.Status == metav1.ConditionFalse, nil
	})
	return valid, err
}

// BuilderPods returns the names of the builder pods of a pool's builds.
func (s *Story) BuilderPods(ctx context.Context, pool string) ([]string, error) {
	var pods corev1.PodList
	err := s.Cluster.Client.List(ctx, &pods, client.InNamespace(machineconfiguration.Namespace),
		client.MatchingLabels{machineconfiguration.LabelMachineOSConfig: pool})
	if err != nil {
		return nil, err
	}
	var names []string
	for _, pod := range pods.Items {
		names = append(names, pod.Name)
	}
	return names, nil
}
