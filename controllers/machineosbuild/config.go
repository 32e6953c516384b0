package machineosbuild

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"

	keys "github.com/imagemode/imagemode/api/machineconfiguration"
)

// configReconciler plans the builds of a MachineOSConfig and publishes what
// came of them.
type configReconciler struct {
	client   client.Client
	gatherer gatherer
	watch    *imageWatch
	events   reporter
	options  Options
	now      func() time.Time
}

// +kubebuilder:rbac:groups=machineconfiguration.openshift.io,resources=machineosconfigs,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=machineconfiguration.openshift.io,resources=machineosconfigs/status,verbs=patch
// +kubebuilder:rbac:groups=machineconfiguration.openshift.io,resources=machineosconfigs/finalizers,verbs=update
// +kubebuilder:rbac:groups=machineconfiguration.openshift.io,resources=machineosbuilds,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=machineconfiguration.openshift.io,resources=machineconfigpools;machineconfigs,verbs=get;list;watch
// +kubebuilder:rbac:groups=imagemode.dev,resources=imagerollouts,verbs=get;list;watch;delete
// +kubebuilder:rbac:groups="",namespace=openshift-machine-config-operator,resources=secrets;configmaps,verbs=get;list;watch
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch
// +kubebuilder:rbac:groups="",resources=events,verbs=create;patch

// Reconcile brings one MachineOSConfig to the build it wants: gather, plan,
// act, publish.
func (r *configReconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	config := &mcfgv1.MachineOSConfig{}
	if err := r.client.Get(ctx, request.NamespacedName, config); err != nil {
		if apierrors.IsNotFound(err) {
			r.watch.forget(request.Name)
		}
		return resultFor(client.IgnoreNotFound(err))
	}
	scope, err := r.gatherer.gather(ctx, config)
	if err != nil {
		return resultFor(err)
	}
	if isLeaving, err := r.leave(ctx, scope); isLeaving || err != nil {
		return resultFor(err)
	}
	chosen := decide(scope)
	isMade, actError := r.act(ctx, scope, &chosen)
	if isMade {
		return resultFor(actError) // the event of the new build brings what comes after it
	}
	check, err := r.checkImage(ctx, scope, chosen)
	if err != nil {
		return resultFor(err)
	}
	if err := r.publish(ctx, scope, chosen, check); err != nil {
		return resultFor(err)
	}
	if actError != nil {
		return resultFor(actError)
	}
	if err := r.forgetOldBuilds(ctx, scope, chosen); err != nil {
		return resultFor(err)
	}
	return r.again(chosen, check), nil
}

// again says when to look at a MachineOSConfig the next time, whatever happens.
func (r *configReconciler) again(chosen plan, check pullCheck) ctrl.Result {
	result := ctrl.Result{RequeueAfter: check.again}
	if !chosen.wakeAt.IsZero() {
		due := max(time.Second, chosen.wakeAt.Sub(r.now()))
		if result.RequeueAfter == 0 || due < result.RequeueAfter {
			result.RequeueAfter = due
		}
	}
	return result
}

// act brings the objects to the plan; isMade says that a build is new, and that what
// comes after it is left to the next pass. Everything is written in an order in
// which a crash in between loses nothing: what was asked for is counted first,
// then built, and only then is the request removed.
func (r *configReconciler) act(ctx context.Context, s *scope, chosen *plan) (isMade bool, err error) {
	if err := r.record(ctx, s, chosen); err != nil || chosen.blueprint == nil {
		return false, err
	}
	if chosen.build == nil {
		return true, r.announce(ctx, s, *chosen)
	}
	if err := r.adopt(ctx, s.config, chosen.build); err != nil {
		return false, err
	}
	if err := r.supersede(ctx, s, chosen.build); err != nil {
		return false, err
	}
	return false, r.removeRequests(ctx, s.config, chosen)
}

// announce creates the build and says so in the status, side by side: neither
// needs the other.
func (r *configReconciler) announce(ctx context.Context, s *scope, chosen plan) error {
	build := newBuild(s, &chosen)
	chosen.build = build.DeepCopy()
	var group errgroup.Group
	group.Go(func() error { return r.create(ctx, s, build, chosen.why) })
	group.Go(func() error { return r.publish(ctx, s, chosen, pullCheck{}) })
	return group.Wait()
}

func (r *configReconciler) create(ctx context.Context, s *scope, build *mcfgv1.MachineOSBuild, why []change) error {
	if err := r.client.Create(ctx, build); err != nil {
		if apierrors.IsAlreadyExists(err) {
			// It is new and not in the cache yet, or it belonged to a deleted
			// MachineOSConfig of the same name and is about to go.
			return errLeftover
		}
		return fmt.Errorf("create MachineOSBuild %s: %w", build.Name, err)
	}
	r.events.buildChosen(s.config, build, why)
	return nil
}

// adopt takes a build that a former MachineOSConfig left to the rollout.
func (r *configReconciler) adopt(ctx context.Context, config *mcfgv1.MachineOSConfig, build *mcfgv1.MachineOSBuild) error {
	if isOwnedBy(build, config.UID) {
		return nil
	}
	before := build.DeepCopy()
	build.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(config, mcfgv1.GroupVersion.WithKind("MachineOSConfig"))}
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if err := r.client.Patch(ctx, build, patch); err != nil {
		return fmt.Errorf("adopt MachineOSBuild %s: %w", build.Name, err)
	}
	return nil
}

// record writes down what is about to be done: the counters, and the name of the
// build. It sees that the MachineOSConfig does not go before its nodes have another
// image to go to.
func (r *configReconciler) record(ctx context.Context, s *scope, chosen *plan) error {
	before := readCounters(s.config, s.builds)
	recorded, exists := decodeCounters(s.config.Annotations)
	err := r.patch(ctx, s.config, func(config *mcfgv1.MachineOSConfig) {
		if !exists || !equality.Semantic.DeepEqual(recorded, chosen.counters) {
			metav1.SetMetaDataAnnotation(&config.ObjectMeta, keys.AnnotationBuildCounters, chosen.counters.encode())
		}
		if chosen.blueprint == nil {
			return
		}
		metav1.SetMetaDataAnnotation(&config.ObjectMeta, keys.AnnotationCurrentMachineOSBuild, chosen.blueprint.name)
		if config.DeletionTimestamp == nil {
			controllerutil.AddFinalizer(config, keys.FinalizerBaseImage)
		}
	})
	if err == nil && chosen.counters.Rebuild > before.Rebuild {
		r.events.rebuildAccepted(s.config, chosen.counters.Rebuild)
	}
	return err
}

// supersede marks the builds that are not wanted any more. Each is interrupted
// by its own reconciler; successes are kept, for an edit that is taken back. One at
// work on the same image as the chosen one goes on, and the chosen one takes its
// image: a rendered config may change without anything for the image in it.
func (r *configReconciler) supersede(ctx context.Context, s *scope, chosenBuild *mcfgv1.MachineOSBuild) error {
	chosen := chosenBuild.Name
	for i := range s.builds {
		build := &s.builds[i]
		if build.Name == chosen || hasSucceeded(build) || isSuperseded(build) || isTwin(chosenBuild, build) && build.Status.Builder != nil {
			continue
		}
		before := build.DeepCopy()
		metav1.SetMetaDataAnnotation(&build.ObjectMeta, keys.AnnotationSupersededBy, chosen)
		if err := r.client.Patch(ctx, build, client.MergeFrom(before)); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("mark MachineOSBuild %s as superseded: %w", build.Name, err)
		}
	}
	return nil
}

// removeRequests removes the annotations that the chosen build answers.
func (r *configReconciler) removeRequests(ctx context.Context, config *mcfgv1.MachineOSConfig, chosen *plan) error {
	if hasSucceeded(chosen.build) {
		err := r.patch(ctx, config, func(config *mcfgv1.MachineOSConfig) {
			delete(config.Annotations, keys.AnnotationPreBuiltImage)
		})
		if err != nil {
			return err
		}
	}
	if value, asked := config.Annotations[keys.AnnotationRebuild]; asked {
		return r.removeRebuild(ctx, config, value, chosen.counters)
	}
	return nil
}

// patch changes metadata, if there is a change, by one patch that fails if the
// object changed.
func (r *configReconciler) patch(ctx context.Context, config *mcfgv1.MachineOSConfig, change func(*mcfgv1.MachineOSConfig)) error {
	before := config.DeepCopy()
	change(config)
	if equality.Semantic.DeepEqual(before.ObjectMeta, config.ObjectMeta) {
		return nil
	}
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if err := r.client.Patch(ctx, config, patch); err != nil {
		if apierrors.IsNotFound(err) {
			// Deleted meanwhile; the next reconcile sees that it is gone.
			return errLeftover
		}
		return fmt.Errorf("annotate MachineOSConfig %s: %w", config.Name, err)
	}
	return nil
}

// removeRebuild removes the annotation together with the memory of its value.
// The patch tests the value: another one set meanwhile is another request.
func (r *configReconciler) removeRebuild(ctx context.Context, config *mcfgv1.MachineOSConfig, value string, now counters) error {
	now.HandledValue = nil
	patch, err := json.Marshal([]map[string]any{
		{"op": "test", "path": annotationPath(keys.AnnotationRebuild), "value": value},
		{"op": "remove", "path": annotationPath(keys.AnnotationRebuild)},
		{"op": "replace", "path": annotationPath(keys.AnnotationBuildCounters), "value": now.encode()},
	})
	if err != nil {
		return err
	}
	err = r.client.Patch(ctx, config, client.RawPatch(types.JSONPatchType, patch))
	if apierrors.IsInvalid(err) {
		// The test failed: the next reconcile sees the new value.
		return errLeftover
	}
	if err != nil {
		return fmt.Errorf("remove annotation %s of MachineOSConfig %s: %w", keys.AnnotationRebuild, config.Name, err)
	}
	return nil
}

// checkImage asks whether the image is there and the nodes can pull it, once
// there is one. That it is gone is written down, and the next plan builds it
// again.
func (r *configReconciler) checkImage(ctx context.Context, s *scope, chosen plan) (pullCheck, error) {
	if chosen.build == nil || !hasImage(chosen.build) {
		return pullCheck{}, nil
	}
	check := r.watch.check(ctx, s, string(chosen.build.Status.DigestedImagePushSpec))
	if !check.isGone {
		return check, r.hold(ctx, s, chosen.build)
	}
	before := chosen.build.DeepCopy()
	metav1.SetMetaDataAnnotation(&chosen.build.ObjectMeta, keys.AnnotationImageGone, r.now().UTC().Format(time.RFC3339))
	if err := r.client.Patch(ctx, chosen.build, client.MergeFrom(before)); client.IgnoreNotFound(err) != nil {
		return check, fmt.Errorf("mark the image of MachineOSBuild %s as gone: %w", chosen.build.Name, err)
	}
	r.events.imageGone(s.config, chosen.build)
	r.watch.forget(s.config.Name)
	return check, nil
}

// publish writes a status that differs.
func (r *configReconciler) publish(ctx context.Context, s *scope, chosen plan, check pullCheck) error {
	config, status := s.config, configStatus(s, chosen, check, r.now())
	if equality.Semantic.DeepEqual(config.Status, status) {
		return nil
	}
	before := config.DeepCopy()
	config.Status = status
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	// A MachineOSConfig that was deleted meanwhile has no status to write.
	if err := r.client.Status().Patch(ctx, config, patch); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("write the status of MachineOSConfig %s: %w", config.Name, err)
	}
	r.events.statusChanged(config, before.Status.Conditions, hasFailedBefore(s, chosen))
	return nil
}

// hasFailedBefore reports whether the build before the chosen one failed.
func hasFailedBefore(s *scope, chosen plan) bool {
	for i := len(s.builds) - 1; i > 0; i-- {
		if chosen.build != nil && s.builds[i].Name == chosen.build.Name {
			return phaseOf(&s.builds[i-1]) == mcfgv1.MachineOSBuildFailed
		}
	}
	return false
}

// newBuild returns the MachineOSBuild of a plan. What it was planned from
// stands in its annotations: the next plan is compared with them.
func newBuild(s *scope, chosen *plan) *mcfgv1.MachineOSBuild {
	print := chosen.blueprint
	inputs, err := json.Marshal(print.inputs)
	if err != nil {
		// Strings, numbers and lists of them.
		panic(err)
	}
	build := &mcfgv1.MachineOSBuild{
		ObjectMeta: metav1.ObjectMeta{
			Name:   print.name,
			Labels: buildLabels(s.config.Name, s.pool.Name, s.rendered.Name),
			Annotations: map[string]string{
				keys.AnnotationInputsHash:    print.inputs.Image.hash(),
				keys.AnnotationBuildInputs:   string(inputs),
				keys.AnnotationBuildReason:   encodeWhy(chosen.why),
				keys.AnnotationBuildCounters: print.counters.encode(),
				keys.AnnotationDependencies:  s.dependencies(),
				keys.AnnotationPushSecret:    s.config.Spec.RenderedImagePushSecret.Name,
			},
			OwnerReferences: []metav1.OwnerReference{
				*metav1.NewControllerRef(s.config, mcfgv1.GroupVersion.WithKind("MachineOSConfig")),
			},
		},
		Spec: mcfgv1.MachineOSBuildSpec{
			MachineConfig:         mcfgv1.MachineConfigReference{Name: s.rendered.Name},
			MachineOSConfig:       mcfgv1.MachineOSConfigReference{Name: s.config.Name},
			RenderedImagePushSpec: mcfgv1.ImageTagFormat(pushSpec(print.inputs.PushRepository, print.name)),
		},
	}
	if print.seed != "" {
		build.Labels[keys.LabelPreBuiltImage] = "true"
		build.Annotations[keys.AnnotationPreBuiltImage] = print.seed
		build.Spec.RenderedImagePushSpec = s.config.Spec.RenderedImagePushSpec
	}
	return build
}

func inputsHashOf(build *mcfgv1.MachineOSBuild) string {
	return build.Annotations[keys.AnnotationInputsHash]
}

// escapePointer escapes a member name of a JSON pointer (RFC 6901).
var escapePointer = strings.NewReplacer("~", "~0", "/", "~1")

// annotationPath is where an annotation is in a JSON patch.
func annotationPath(key string) string {
	return "/metadata/annotations/" + escapePointer.Replace(key)
}
