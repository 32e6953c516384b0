package machineosbuild

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"

	keys "github.com/imagemode/imagemode/api/machineconfiguration"
)

// configReconciler plans the builds of a MachineOSConfig and publishes what
// came of them.
type configReconciler struct {
	client   client.Client
	gatherer gatherer
	pulls    pullChecker
	events   reporter
	now      func() time.Time
}

// +kubebuilder:rbac:groups=machineconfiguration.openshift.io,resources=machineosconfigs,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=machineconfiguration.openshift.io,resources=machineosconfigs/status,verbs=patch
// +kubebuilder:rbac:groups=machineconfiguration.openshift.io,resources=machineosconfigs/finalizers,verbs=update
// +kubebuilder:rbac:groups=machineconfiguration.openshift.io,resources=machineosbuilds,verbs=get;list;watch;create;patch
// +kubebuilder:rbac:groups=machineconfiguration.openshift.io,resources=machineconfigpools;machineconfigs,verbs=get;list;watch
// +kubebuilder:rbac:groups="",namespace=openshift-machine-config-operator,resources=secrets;configmaps,verbs=get;list;watch
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch
// +kubebuilder:rbac:groups="",resources=events,verbs=create;patch

// Reconcile brings one MachineOSConfig to the build it wants: gather, plan,
// act, publish.
func (r *configReconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	config := &mcfgv1.MachineOSConfig{}
	if err := r.client.Get(ctx, request.NamespacedName, config); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if config.DeletionTimestamp != nil {
		// Its builds go with it, by ownership.
		return ctrl.Result{}, nil
	}
	scope, err := r.gatherer.gather(ctx, config)
	if err != nil {
		return resultFor(err)
	}
	chosen := decide(scope)
	actError := r.act(ctx, scope, &chosen)
	check := r.checkPull(ctx, scope, chosen)
	if err := r.publish(ctx, config, configStatus(scope, chosen, check, r.now())); err != nil {
		return resultFor(err)
	}
	if actError != nil {
		return resultFor(actError)
	}
	if check.readability == unreadable || check.readability == unknown {
		return ctrl.Result{RequeueAfter: registryDelay}, nil
	}
	return ctrl.Result{}, nil
}

// act brings the objects to the plan. Everything is written in an order in
// which a crash in between loses nothing: what was asked for is counted first,
// then built, and only then is the request removed.
func (r *configReconciler) act(ctx context.Context, s *scope, chosen *plan) error {
	if err := r.recordCounters(ctx, s, chosen.counters); err != nil {
		return err
	}
	if chosen.blueprint == nil {
		return nil
	}
	if chosen.build == nil {
		build := newBuild(s, chosen)
		if err := r.client.Create(ctx, build); err != nil {
			if apierrors.IsAlreadyExists(err) {
				// It is new and not in the cache yet, or it belonged to a deleted
				// MachineOSConfig of the same name and is about to go.
				return errLeftover
			}
			return fmt.Errorf("create MachineOSBuild %s: %w", build.Name, err)
		}
		r.events.buildChosen(build, chosen.why)
		chosen.build = build
	}
	if err := r.supersede(ctx, s, chosen.build.Name); err != nil {
		return err
	}
	return r.pointAt(ctx, s.config, chosen)
}

// recordCounters writes the counters, if they changed.
func (r *configReconciler) recordCounters(ctx context.Context, s *scope, now counters) error {
	recorded, exists := decodeCounters(s.config.Annotations)
	if exists && equality.Semantic.DeepEqual(recorded, now) {
		return nil
	}
	before := readCounters(s.config, s.builds)
	if err := r.annotate(ctx, s.config, map[string]string{keys.AnnotationBuildCounters: now.encode()}); err != nil {
		return err
	}
	if now.Rebuild > before.Rebuild {
		r.events.rebuildAccepted(s.config, now.Rebuild)
	}
	return nil
}

// supersede marks the builds that are not wanted any more. Each is interrupted
// by its own reconciler; successes are kept, for an edit that is taken back.
func (r *configReconciler) supersede(ctx context.Context, s *scope, chosen string) error {
	for i := range s.builds {
		build := &s.builds[i]
		if build.Name == chosen || hasSucceeded(build) || isSuperseded(build) {
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

// pointAt names the chosen build on the MachineOSConfig and removes the request
// for a rebuild that it answers.
func (r *configReconciler) pointAt(ctx context.Context, config *mcfgv1.MachineOSConfig, chosen *plan) error {
	if config.Annotations[keys.AnnotationCurrentMachineOSBuild] != chosen.build.Name {
		pointer := map[string]string{keys.AnnotationCurrentMachineOSBuild: chosen.build.Name}
		if err := r.annotate(ctx, config, pointer); err != nil {
			return err
		}
	}
	if value, asked := config.Annotations[keys.AnnotationRebuild]; asked {
		return r.removeRebuild(ctx, config, value, chosen.counters)
	}
	return nil
}

// annotate sets annotations by one patch that fails if the object changed.
func (r *configReconciler) annotate(ctx context.Context, config *mcfgv1.MachineOSConfig, annotations map[string]string) error {
	before := config.DeepCopy()
	if config.Annotations == nil {
		config.Annotations = map[string]string{}
	}
	maps.Copy(config.Annotations, annotations)
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

// checkPull asks whether the nodes can pull the image, once there is one.
func (r *configReconciler) checkPull(ctx context.Context, s *scope, chosen plan) pullCheck {
	if chosen.build == nil || !hasSucceeded(chosen.build) {
		return pullCheck{}
	}
	return r.pulls.check(ctx, s, string(chosen.build.Status.DigestedImagePushSpec))
}

// publish writes a status that differs.
func (r *configReconciler) publish(ctx context.Context, config *mcfgv1.MachineOSConfig, status mcfgv1.MachineOSConfigStatus) error {
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
	return nil
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
	return &mcfgv1.MachineOSBuild{
		ObjectMeta: metav1.ObjectMeta{
			Name:   print.name,
			Labels: buildLabels(s.config.Name, s.pool.Name, s.rendered.Name),
			Annotations: map[string]string{
				keys.AnnotationInputsHash:    print.inputs.Image.hash(),
				keys.AnnotationBuildInputs:   string(inputs),
				keys.AnnotationBuildReason:   encodeWhy(chosen.why),
				keys.AnnotationBuildCounters: print.counters.encode(),
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
