package story

import (
	"context"
	"fmt"
	"strings"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/imagemode/imagemode/api/machineconfiguration"
	"github.com/imagemode/imagemode/api/v1alpha1"
)

// What comes after the story: edits, failures and the end of a MachineOSConfig.

// DegradedConfig waits until the story's MachineOSConfig says that its build
// failed, and returns the condition.
func (s *Story) DegradedConfig(ctx context.Context) (*metav1.Condition, error) {
	var degraded *metav1.Condition
	err := until(ctx, "ImageBuildDegraded", func(ctx context.Context) (string, bool, error) {
		config, err := s.machineOSConfig(ctx)
		if err != nil {
			return err.Error(), false, nil
		}
		degraded = meta.FindStatusCondition(config.Status.Conditions, machineconfiguration.ConditionImageBuildDegraded)
		isNow := degraded != nil && degraded.ObservedGeneration == config.Generation && degraded.Status == metav1.ConditionTrue
		return describeConditions(config.Status.Conditions), isNow, nil
	})
	return degraded, err
}

// PoolCondition waits for a condition of the pool.
func (s *Story) PoolCondition(ctx context.Context, kind mcfgv1.MachineConfigPoolConditionType, status corev1.ConditionStatus) error {
	return until(ctx, fmt.Sprintf("MachineConfigPool %s to be %s=%s", Pool, kind, status), func(ctx context.Context) (string, bool, error) {
		pool, err := s.pool(ctx)
		if err != nil {
			return err.Error(), false, nil
		}
		for _, condition := range pool.Status.Conditions {
			if condition.Type == kind && condition.Status == status {
				return "", true, nil
			}
		}
		return conditionsOf(pool), false, nil
	})
}

// ReadyImage waits until the MachineOSConfig is Ready for its current spec and
// returns its image.
func (s *Story) ReadyImage(ctx context.Context) (string, error) {
	image := ""
	err := until(ctx, "MachineOSConfig "+Pool+" to be Ready", func(ctx context.Context) (string, bool, error) {
		config, err := s.machineOSConfig(ctx)
		if err != nil {
			return err.Error(), false, nil
		}
		image = string(config.Status.CurrentImagePullSpec)
		ready := meta.FindStatusCondition(config.Status.Conditions, machineconfiguration.ConditionReady)
		isReady := ready != nil && ready.Status == metav1.ConditionTrue && ready.ObservedGeneration == config.Generation
		return describeConditions(config.Status.Conditions), isReady, nil
	})
	return image, err
}

// CurrentBuild returns the build that the MachineOSConfig names, whatever it was
// made for.
func (s *Story) CurrentBuild(ctx context.Context) (*mcfgv1.MachineOSBuild, error) {
	config, err := s.machineOSConfig(ctx)
	if err != nil {
		return nil, err
	}
	build := &mcfgv1.MachineOSBuild{}
	name := config.Annotations[machineconfiguration.AnnotationCurrentMachineOSBuild]
	return build, s.Cluster.Client.Get(ctx, client.ObjectKey{Name: name}, build)
}

// PodsOf returns the names of the pods that worked for a build.
func (s *Story) PodsOf(ctx context.Context, build *mcfgv1.MachineOSBuild) ([]string, error) {
	var pods corev1.PodList
	err := s.Cluster.Client.List(ctx, &pods, client.InNamespace(machineconfiguration.Namespace), podsFor(build))
	var names []string
	for i := range pods.Items {
		names = append(names, pods.Items[i].Name)
	}
	return names, err
}

// SetPaused pauses or releases the pool.
func (s *Story) SetPaused(ctx context.Context, paused bool) error {
	return s.setPaused(ctx, Pool, paused)
}

// DeleteConfig deletes the MachineOSConfig and waits until it is gone.
func (s *Story) DeleteConfig(ctx context.Context) error {
	config := &mcfgv1.MachineOSConfig{ObjectMeta: metav1.ObjectMeta{Name: Pool}}
	if err := s.Cluster.Client.Delete(ctx, config); err != nil {
		return err
	}
	return until(ctx, "MachineOSConfig "+Pool+" to be gone", func(ctx context.Context) (string, bool, error) {
		config, err := s.machineOSConfig(ctx)
		if apierrors.IsNotFound(err) {
			return "", true, nil
		}
		if err != nil {
			return err.Error(), false, nil
		}
		return describeConditions(config.Status.Conditions), false, nil
	})
}

// Rollout returns the pool's ImageRollout.
func (s *Story) Rollout(ctx context.Context) (*v1alpha1.ImageRollout, error) {
	rollout := &v1alpha1.ImageRollout{}
	return rollout, s.Cluster.Client.Get(ctx, client.ObjectKey{Name: Pool}, rollout)
}

// AllRun waits until all workers run an image, in service.
func (s *Story) AllRun(ctx context.Context, image string) error {
	s.Image = image
	follower := &rolloutFollower{story: s, seen: map[string]string{}}
	return until(ctx, "all workers to run "+image, follower.look)
}

// RolloutHas waits until the rollout takes an image, or its repository's other
// name of it, to the nodes.
func (s *Story) RolloutHas(ctx context.Context, image string) error {
	_, digest, _ := strings.Cut(image, "@")
	return until(ctx, "the rollout to have "+digest, func(ctx context.Context) (string, bool, error) {
		rollout, err := s.Rollout(ctx)
		if err != nil {
			return err.Error(), false, nil
		}
		return rollout.Spec.Image, strings.HasSuffix(rollout.Spec.Image, "@"+digest), nil
	})
}
