package machineconfigpool

import (
	"context"
	"fmt"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/imagemode/imagemode/api/machineconfiguration"
	"github.com/imagemode/imagemode/controllers/osimagestream/streams"
)

// publish makes the rendered MachineConfig, then points the pool to it: a pool
// never names a config that does not exist.
func (r *poolReconciler) publish(ctx context.Context, scope *scope, wanted *rendered) error {
	if findConfig(scope.configs, wanted.name) == nil {
		if err := r.create(ctx, scope.pool, wanted); err != nil {
			return err
		}
	}
	configuration := wanted.configuration()
	if equality.Semantic.DeepEqual(scope.pool.Spec.Configuration, configuration) {
		return nil
	}
	before := scope.pool.Spec.Configuration.Name
	err := r.patchPool(ctx, scope, func(pool *mcfgv1.MachineConfigPool) { pool.Spec.Configuration = configuration })
	if err != nil {
		return fmt.Errorf("write spec.configuration of MachineConfigPool %s: %w", scope.pool.Name, err)
	}
	if before != wanted.name {
		log.FromContext(ctx).Info("pool has a new rendered config", "from", before, "to", wanted.name)
		r.announceOverride(scope, wanted)
	}
	return nil
}

// patchPool changes a pool, if there is a change, and fails if it is another by now.
func (r *poolReconciler) patchPool(ctx context.Context, scope *scope, change func(*mcfgv1.MachineConfigPool)) error {
	before := scope.pool.DeepCopy()
	change(scope.pool)
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if err := r.client.Patch(ctx, scope.pool, patch); err != nil {
		scope.pool = before
		return err
	}
	return nil
}

// announceOverride says that a pool's OS image is not that of its stream, which
// then no more brings it updates.
func (r *poolReconciler) announceOverride(scope *scope, wanted *rendered) {
	if wanted.isOverridden {
		r.events.Eventf(scope.pool, nil, corev1.EventTypeNormal, "OSImageURLOverridden", "Render",
			"OS image %s, which a MachineConfig names, takes the place of the image of the pool's stream", wanted.spec.OSImageURL)
	}
}

// create makes the rendered MachineConfig. One of that name has that content.
func (r *poolReconciler) create(ctx context.Context, pool *mcfgv1.MachineConfigPool, wanted *rendered) error {
	config := wanted.machineConfig(r.options.Version)
	if err := controllerutil.SetControllerReference(pool, config, r.client.Scheme()); err != nil {
		return fmt.Errorf("own MachineConfig %s: %w", config.Name, err)
	}
	if err := r.client.Create(ctx, config); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("create MachineConfig %s: %w", config.Name, err)
	}
	r.events.Eventf(pool, config, corev1.EventTypeNormal, "RenderedConfigGenerated", "Render", "%s successfully generated", config.Name)
	return nil
}

// machineConfig returns the object of a rendered config.
func (w *rendered) machineConfig(version string) *mcfgv1.MachineConfig {
	annotations := map[string]string{
		machineconfiguration.AnnotationGeneratedByControllerVersion: version,
		machineconfiguration.AnnotationReleaseImageVersion:          version,
	}
	if w.isOverridden {
		annotations[machineconfiguration.AnnotationOSImageURLOverridden] = "true"
	}
	if w.fullName != "" {
		annotations[machineconfiguration.AnnotationFullName] = w.fullName
	}
	return &mcfgv1.MachineConfig{
		ObjectMeta: metav1.ObjectMeta{Name: w.name, Annotations: annotations},
		Spec:       *w.spec.DeepCopy(),
	}
}

// configuration returns the pool's reference to a rendered config, with the
// MachineConfigs it was made from in their order.
func (w *rendered) configuration() mcfgv1.MachineConfigPoolStatusConfiguration {
	configuration := mcfgv1.MachineConfigPoolStatusConfiguration{ObjectReference: referenceTo(w.name)}
	for _, source := range w.sources {
		configuration.Source = append(configuration.Source, referenceTo(source.Name))
	}
	return configuration
}

func referenceTo(config string) corev1.ObjectReference {
	return corev1.ObjectReference{APIVersion: mcfgv1.GroupVersion.String(), Kind: "MachineConfig", Name: config}
}

// announce makes events of what changed in a pool's status for the worse.
func (r *poolReconciler) announce(before, after *mcfgv1.MachineConfigPool) {
	for _, condition := range after.Status.Conditions {
		if condition.Status != corev1.ConditionTrue || condition.Type != mcfgv1.MachineConfigPoolDegraded {
			continue
		}
		old := findCondition(before.Status.Conditions, condition.Type)
		if old == nil || old.Status != condition.Status || old.Reason != condition.Reason {
			r.events.Eventf(before, nil, corev1.EventTypeWarning, condition.Reason, "Reconcile", "%s", shortened(condition.Message))
		}
	}
}

// maxEventNote is less than the API's limit of 1024 bytes on an event's text.
const maxEventNote = 1000

func shortened(text string) string { return streams.Truncate(text, maxEventNote) }
