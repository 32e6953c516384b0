package story

import (
	"context"
	"fmt"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/imagemode/imagemode/api/machineconfiguration"
	"github.com/imagemode/imagemode/api/v1alpha1"
	"github.com/imagemode/imagemode/test/builders"
	"github.com/imagemode/imagemode/test/e2e/local"
)

// What builds by default push to, and with which Secrets.
const defaultBuildFlags = `[` +
	`{"op":"add","path":"/spec/template/spec/containers/0/args/-","value":"--default-push-repository=` + local.Registry + `/os/nodes"},` +
	`{"op":"add","path":"/spec/template/spec/containers/0/args/-","value":"--default-push-secret=push"},` +
	`{"op":"add","path":"/spec/template/spec/containers/0/args/-","value":"--default-base-pull-secret=base-pull"}]`

// BuildByDefault gives the controller the flags by which every pool has an image.
func (s *Story) BuildByDefault(ctx context.Context) error {
	_, err := s.Cluster.Kubectl(ctx, "-n", machineconfiguration.Namespace, "patch", "deployment/imagemode-controller", "--type=json", "-p", defaultBuildFlags)
	if err != nil {
		return err
	}
	s.Log.Line("builds by default are on")
	return until(ctx, "the controller with its new flags", s.controllerIsUp)
}

// AddPool makes a custom pool and a MachineConfig of its own, which brings a file.
func (s *Story) AddPool(ctx context.Context, pool, path, text string) error {
	for _, object := range []client.Object{builders.MachineConfig("60-"+pool, pool, builders.File(path, text)), builders.MachineConfigPool(pool)} {
		if err := s.Cluster.Client.Create(ctx, object); err != nil {
			return err
		}
	}
	s.Log.Line("MachineConfigPool %s is made, with %s", pool, path)
	return nil
}

// AllowOut says how many nodes of a pool may be out of service at a time.
func (s *Story) AllowOut(ctx context.Context, pool string, nodes int) error {
	patch := fmt.Sprintf(`{"spec":{"maxUnavailable":%d}}`, nodes)
	return s.Cluster.Client.Patch(ctx, builders.MachineConfigPool(pool), client.RawPatch(types.MergePatchType, []byte(patch)))
}

// Relabel makes a node one of a custom pool, or takes it out.
func (s *Story) Relabel(ctx context.Context, node, pool string, isIn bool) error {
	value := "null"
	if isIn {
		value = `""`
	}
	patch := fmt.Sprintf(`{"metadata":{"labels":{"%s%s":%s}}}`, builders.NodeRolePrefix, pool, value)
	if err := s.Cluster.Client.Patch(ctx, builders.Node(node, pool), client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
		return err
	}
	s.Log.Line("node %s: label of pool %s %s", node, pool, map[bool]string{true: "set", false: "removed"}[isIn])
	return nil
}

// RemovePool takes a custom pool away again, once it has no nodes.
func (s *Story) RemovePool(ctx context.Context, pool string) error {
	for _, object := range []client.Object{builders.MachineConfig("60-"+pool, pool), builders.MachineConfigPool(pool)} {
		if err := s.Cluster.Client.Delete(ctx, object); client.IgnoreNotFound(err) != nil {
			return err
		}
	}
	return nil
}

// PoolImage waits until a pool's MachineOSConfig is Ready and its rollout has that
// image.
func (s *Story) PoolImage(ctx context.Context, pool string) (string, error) {
	image := ""
	err := until(ctx, "an image of pool "+pool, func(ctx context.Context) (string, bool, error) {
		config := &mcfgv1.MachineOSConfig{}
		if err := s.Cluster.Client.Get(ctx, client.ObjectKey{Name: pool}, config); err != nil {
			return err.Error(), false, nil
		}
		rollout := &v1alpha1.ImageRollout{}
		if err := s.Cluster.Client.Get(ctx, client.ObjectKey{Name: pool}, rollout); err != nil {
			return describeConditions(config.Status.Conditions), false, nil
		}
		image = rollout.Spec.Image
		return describeConditions(config.Status.Conditions), image != "" && image == string(config.Status.CurrentImagePullSpec), nil
	})
	return image, err
}

// NodeRuns waits until a node of a pool runs an image, in service, and its
// MachineConfigNode and the pool say so.
func (s *Story) NodeRuns(ctx context.Context, node, pool, image string) error {
	err := until(ctx, node+" to run the image of pool "+pool, func(ctx context.Context) (string, bool, error) {
		object := &corev1.Node{}
		if err := s.Cluster.Client.Get(ctx, client.ObjectKey{Name: node}, object); err != nil {
			return err.Error(), false, nil
		}
		reported, err := s.NodeImage(ctx, node)
		if apierrors.IsNotFound(err) {
			return "no NodeImage", false, nil
		}
		if err != nil {
			return err.Error(), false, nil
		}
		isShown, state := s.isShownUpdated(ctx, node, pool)
		done := runs(reported, image) && isReady(object) && !object.Spec.Unschedulable && isShown
		return nodeState(reported, nil, image) + "; " + state, done, nil
	})
	if err == nil {
		s.Log.Line("node %s runs the image of pool %s", node, pool)
	}
	return err
}

func (s *Story) isShownUpdated(ctx context.Context, node, pool string) (bool, string) {
	shown := &mcfgv1.MachineConfigNode{}
	if err := s.Cluster.Client.Get(ctx, client.ObjectKey{Name: node}, shown); err != nil {
		return false, err.Error()
	}
	for _, condition := range shown.Status.Conditions {
		if condition.Type == string(mcfgv1.MachineConfigNodeUpdated) {
			return condition.Status == "True" && shown.Spec.Pool.Name == pool, "MachineConfigNode: " + condition.Message
		}
	}
	return false, "MachineConfigNode without conditions"
}

// PoolIsUpdated waits until a pool is, with that many machines.
func (s *Story) PoolIsUpdated(ctx context.Context, name string, machines int32) error {
	return until(ctx, fmt.Sprintf("MachineConfigPool %s to be Updated", name), func(ctx context.Context) (string, bool, error) {
		pool := &mcfgv1.MachineConfigPool{}
		if err := s.Cluster.Client.Get(ctx, client.ObjectKey{Name: name}, pool); err != nil {
			return err.Error(), false, nil
		}
		isDone := pool.Status.MachineCount == machines && pool.Status.UpdatedMachineCount == machines && pool.Status.ObservedGeneration == pool.Generation
		for _, condition := range pool.Status.Conditions {
			if condition.Type == mcfgv1.MachineConfigPoolUpdated {
				isDone = isDone && condition.Status == corev1.ConditionTrue
			}
		}
		return fmt.Sprintf("%d machines, %d updated; %s", pool.Status.MachineCount, pool.Status.UpdatedMachineCount, conditionsOf(pool)), isDone, nil
	})
}
