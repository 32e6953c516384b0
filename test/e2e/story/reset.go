package story

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/imagemode/imagemode/api/machineconfiguration"
	"github.com/imagemode/imagemode/api/v1alpha1"
)

// Reset takes imagemode and what the story declared off a cluster where the
// story was told before, so that an installation can be seen again. The nodes
// keep the image they run.
func (s *Story) Reset() Phase {
	return Phase{"take an earlier installation off", 5 * time.Minute, s.reset}
}

// reset deletes the MachineOSConfigs first, while the controller runs, since
// only it removes their finalizers. They are abandoned: else their nodes would
// be taken to another image first.
func (s *Story) reset(ctx context.Context) error {
	if err := s.stopDefaultBuilds(ctx); err != nil {
		return err
	}
	if err := s.abandonAll(ctx); err != nil {
		return err
	}
	if err := s.deleteAll(ctx, &mcfgv1.MachineOSConfig{}, &mcfgv1.MachineOSConfigList{}); err != nil {
		return err
	}
	for _, workload := range []client.Object{
		&appsv1.Deployment{ObjectMeta: inNamespace("imagemode-controller")},
		&appsv1.DaemonSet{ObjectMeta: inNamespace("imagemode-agent")},
	} {
		err := s.Cluster.Client.Delete(ctx, workload, client.PropagationPolicy("Background"))
		if client.IgnoreNotFound(err) != nil {
			return err
		}
	}
	if err := until(ctx, "imagemode's pods to be gone", s.podsAreGone); err != nil {
		return err
	}
	if err := s.freeSlots(ctx); err != nil {
		return err
	}
	if err := s.liftDeletionPolicy(ctx); err != nil {
		return err
	}
	for _, kind := range []struct {
		object client.Object
		list   client.ObjectList
	}{
		{&mcfgv1.MachineOSBuild{}, &mcfgv1.MachineOSBuildList{}},
		{&v1alpha1.ImageRollout{}, &v1alpha1.ImageRolloutList{}},
		{&v1alpha1.NodeImage{}, &v1alpha1.NodeImageList{}},
		{&mcfgv1.MachineConfigNode{}, &mcfgv1.MachineConfigNodeList{}},
		{&mcfgv1.MachineConfigPool{}, &mcfgv1.MachineConfigPoolList{}},
		{&mcfgv1.MachineConfig{}, &mcfgv1.MachineConfigList{}},
		{&mcfgv1.OSImageStream{}, &mcfgv1.OSImageStreamList{}},
	} {
		if err := s.deleteAll(ctx, kind.object, kind.list); err != nil {
			return err
		}
	}
	return nil
}

// stopDefaultBuilds takes the flags of builds by default away: with them,
// MachineOSConfigs come back when they are deleted.
func (s *Story) stopDefaultBuilds(ctx context.Context) error {
	controller := &appsv1.Deployment{ObjectMeta: inNamespace("imagemode-controller")}
	if err := s.get(ctx, controller); err != nil {
		return client.IgnoreNotFound(err)
	}
	before := controller.DeepCopy()
	container := &controller.Spec.Template.Spec.Containers[0]
	container.Args = slices.DeleteFunc(container.Args, func(argument string) bool { return strings.HasPrefix(argument, "--default-push-") })
	if len(container.Args) == len(before.Spec.Template.Spec.Containers[0].Args) {
		return nil
	}
	if err := s.Cluster.Client.Patch(ctx, controller, client.MergeFrom(before)); err != nil {
		return err
	}
	return until(ctx, "the controller without builds by default", s.controllerIsUp)
}

// abandonAll lets all MachineOSConfigs go without another image. Where no
// controller is there to do so, their finalizers are removed by hand.
func (s *Story) abandonAll(ctx context.Context) error {
	var configs mcfgv1.MachineOSConfigList
	if err := s.Cluster.Client.List(ctx, &configs); err != nil {
		if meta.IsNoMatchError(err) || apierrors.IsNotFound(err) {
			return nil
		}
		return err
	}
	patch := `{"metadata":{"annotations":{"` + machineconfiguration.AnnotationAbandon + `":""}}}`
	controller := &appsv1.Deployment{ObjectMeta: inNamespace("imagemode-controller")}
	if err := s.get(ctx, controller); apierrors.IsNotFound(err) {
		patch = `{"metadata":{"finalizers":null}}`
	}
	for i := range configs.Items {
		err := s.Cluster.Client.Patch(ctx, &configs.Items[i], client.RawPatch("application/merge-patch+json", []byte(patch)))
		if client.IgnoreNotFound(err) != nil {
			return err
		}
	}
	return nil
}

// freeSlots ends what a rollout was at when it was interrupted: no controller is
// there any more to put its nodes back into service.
func (s *Story) freeSlots(ctx context.Context) error {
	var rollouts v1alpha1.ImageRolloutList
	if err := s.Cluster.Client.List(ctx, &rollouts); err != nil {
		if meta.IsNoMatchError(err) || apierrors.IsNotFound(err) {
			return nil
		}
		return err
	}
	for i := range rollouts.Items {
		for _, slot := range rollouts.Items[i].Status.Slots {
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: slot.Node}}
			err := s.Cluster.Client.Patch(ctx, node, client.RawPatch("application/merge-patch+json", []byte(
				`{"metadata":{"labels":{"node.kubernetes.io/exclude-from-external-load-balancers":null},"annotations":{"imagemode.dev/cordoned-for":null,"imagemode.dev/kept-from-scale-down":null,`+
					`"cluster-autoscaler.kubernetes.io/scale-down-disabled":null,"karpenter.sh/do-not-disrupt":null}},"spec":{"unschedulable":null}}`)))
			if client.IgnoreNotFound(err) != nil {
				return err
			}
		}
		err := s.Cluster.Client.Patch(ctx, &rollouts.Items[i], client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`)))
		if client.IgnoreNotFound(err) != nil {
			return err
		}
	}
	return nil
}

// liftDeletionPolicy lets the OSImageStream be deleted, which a policy forbids as
// long as imagemode is installed. The server notices some moments later.
func (s *Story) liftDeletionPolicy(ctx context.Context) error {
	binding := &admissionregistrationv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: "osimagestream-prevent-deletion-binding"}}
	if err := s.Cluster.Client.Delete(ctx, binding); client.IgnoreNotFound(err) != nil {
		return err
	}
	stream := &mcfgv1.OSImageStream{ObjectMeta: metav1.ObjectMeta{Name: machineconfiguration.OSImageStreamName}}
	return until(ctx, "the OSImageStream may be deleted", func(ctx context.Context) (string, bool, error) {
		err := s.Cluster.Client.Delete(ctx, stream, client.DryRunAll)
		return fmt.Sprint(err), !apierrors.IsForbidden(err), nil
	})
}

// deleteAll deletes all objects of a kind and waits until they are gone. A kind
// that the cluster does not have has no objects.
func (s *Story) deleteAll(ctx context.Context, object client.Object, list client.ObjectList) error {
	err := s.Cluster.Client.DeleteAllOf(ctx, object)
	if meta.IsNoMatchError(err) || apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	return until(ctx, fmt.Sprintf("all %T to be gone", object), func(ctx context.Context) (string, bool, error) {
		if err := s.Cluster.Client.List(ctx, list); err != nil {
			return err.Error(), false, nil
		}
		count := meta.LenList(list)
		return fmt.Sprintf("%d left", count), count == 0, nil
	})
}

func (s *Story) podsAreGone(ctx context.Context) (string, bool, error) {
	var pods corev1.PodList
	err := s.Cluster.Client.List(ctx, &pods, client.InNamespace(machineconfiguration.Namespace),
		client.MatchingLabels{"app.kubernetes.io/name": "imagemode"})
	if err != nil {
		return err.Error(), false, nil
	}
	return fmt.Sprintf("%d left", len(pods.Items)), len(pods.Items) == 0, nil
}
