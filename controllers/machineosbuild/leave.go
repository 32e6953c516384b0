package machineosbuild

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"

	keys "github.com/imagemode/imagemode/api/machineconfiguration"
	imagemodev1alpha1 "github.com/imagemode/imagemode/api/v1alpha1"
)

// A MachineOSConfig that is being deleted takes its nodes to an image with
// their configuration and without its Containerfile. It is planned and built
// like any other, with the text left out (see containerfile in scope.go), and
// handed to the nodes when it is Ready. When the rollout has it, the
// MachineOSConfig goes.

// parting is what to do about a MachineOSConfig that is being deleted.
type parting string

const (
	// notLeaving: it is not being deleted.
	notLeaving parting = "not leaving"
	// goOn building the image without the Containerfile.
	goOn parting = "go on"
	// letGo: it is done, or nothing holds it.
	letGo parting = "let go"
	// handOver the build of the image that the nodes go to, then let go.
	handOver parting = "hand over"
	// abandon the nodes as they are.
	abandon parting = "abandon"
)

// partingRules in order: the first that holds counts.
var partingRules = []struct {
	says  string
	then  parting
	holds func(*scope) bool
}{
	{"it is not being deleted", notLeaving, func(s *scope) bool { return s.config.DeletionTimestamp == nil }},
	{"nothing of ours holds it", letGo, func(s *scope) bool { return isLetGo(s.config) }},
	{"the user wants it gone at once", abandon, func(s *scope) bool { return isAbandoned(s.config) }},
	{"its pool is gone, and the nodes with it", letGo, func(s *scope) bool { return s.pool == nil }},
	{"its nodes never had an image of it", letGo, func(s *scope) bool { return s.rollout == nil || s.rollout.Spec.Image == "" }},
	{"its nodes have the image without the Containerfile to go to", handOver, func(s *scope) bool { return s.lastBuild() != nil }},
}

func partingOf(s *scope) parting {
	for _, rule := range partingRules {
		if rule.holds(s) {
			return rule.then
		}
	}
	return goOn
}

// isLetGo reports whether a MachineOSConfig that is being deleted is no longer
// this controller's matter.
func isLetGo(config *mcfgv1.MachineOSConfig) bool {
	return config.DeletionTimestamp != nil && !controllerutil.ContainsFinalizer(config, keys.FinalizerBaseImage)
}

func isAbandoned(config *mcfgv1.MachineOSConfig) bool {
	_, abandoned := config.Annotations[keys.AnnotationAbandon]
	return abandoned
}

// lastBuild is the build of the image that the rollout has, if that is the one
// that is wanted; nil otherwise.
func (s *scope) lastBuild() *mcfgv1.MachineOSBuild {
	chosen := decide(s)
	if chosen.build == nil || !hasImage(chosen.build) || string(chosen.build.Status.DigestedImagePushSpec) != s.rollout.Spec.Image {
		return nil
	}
	return chosen.build
}

// leave does what is due of a parting. isLeaving is false when the
// MachineOSConfig is to be planned for.
func (r *configReconciler) leave(ctx context.Context, s *scope) (isLeaving bool, err error) {
	switch partingOf(s) {
	case notLeaving, goOn:
		return false, nil
	case abandon:
		if err := r.deleteRollout(ctx, s); err != nil {
			return true, err
		}
	case handOver:
		if err := r.handOver(ctx, s.lastBuild(), s.rollout); err != nil {
			return true, err
		}
	}
	return true, r.letGo(ctx, s)
}

// handOver makes the last build the rollout's, so that it does not go with the
// MachineOSConfig: it says what the nodes run, and where their image is.
func (r *configReconciler) handOver(ctx context.Context, build *mcfgv1.MachineOSBuild, rollout *imagemodev1alpha1.ImageRollout) error {
	if isOwnedBy(build, rollout.UID) {
		return nil
	}
	before := build.DeepCopy()
	build.OwnerReferences = []metav1.OwnerReference{
		*metav1.NewControllerRef(rollout, imagemodev1alpha1.GroupVersion.WithKind("ImageRollout")),
	}
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if err := r.client.Patch(ctx, build, patch); err != nil {
		return fmt.Errorf("hand MachineOSBuild %s over to ImageRollout %s: %w", build.Name, rollout.Name, err)
	}
	return nil
}

// deleteRollout ends the rollout of nodes that are to stay as they are.
func (r *configReconciler) deleteRollout(ctx context.Context, s *scope) error {
	if s.rollout == nil {
		return nil
	}
	if err := r.client.Delete(ctx, s.rollout, uidOf(s.rollout)); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("delete ImageRollout %s: %w", s.rollout.Name, err)
	}
	return nil
}

// letGo removes the finalizer. What the MachineOSConfig still owns goes with it.
func (r *configReconciler) letGo(ctx context.Context, s *scope) error {
	if isLetGo(s.config) {
		return nil
	}
	r.events.configDeleted(s.config)
	r.watch.forget(s.config.Name)
	before := s.config.DeepCopy()
	controllerutil.RemoveFinalizer(s.config, keys.FinalizerBaseImage)
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if err := r.client.Patch(ctx, s.config, patch); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("let MachineOSConfig %s go: %w", s.config.Name, err)
	}
	return nil
}
