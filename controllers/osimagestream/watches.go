package osimagestream

import (
	"context"
	"slices"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/imagemode/imagemode/api/machineconfiguration"
	"github.com/imagemode/imagemode/controllers/optional"
	"github.com/imagemode/imagemode/controllers/osimagestream/streams"
)

// watch says what changes the streams, or heals a partial result.
func (r *reconciler) watch(mgr ctrl.Manager) *builder.Builder {
	b := ctrl.NewControllerManagedBy(mgr).
		Named("osimagestream").
		For(&mcfgv1.OSImageStream{}).
		Watches(&corev1.ConfigMap{}, enqueueIf(r.isInput)).
		Watches(&corev1.Secret{}, enqueueIf(r.isCredentials)).
		Watches(&mcfgv1.MachineOSConfig{}, enqueueIf(always), builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&mcfgv1.MachineConfig{}, enqueueIf(always), builder.WithPredicates(imageChanged)).
		Watches(&mcfgv1.MachineConfigPool{}, enqueueIf(always), builder.WithPredicates(wishChanged)).
		WatchesRawSource(source.Func(enqueueOnce))
	for _, kind := range optionalKinds {
		b = b.WatchesRawSource(optional.Kind(mgr, kind, func(client.Object) []reconcile.Request { return []reconcile.Request{object} }))
	}
	return b
}

// enqueueOnce runs one reconcile at the start, so that a cluster without any
// source is told so.
func enqueueOnce(_ context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
	queue.Add(object)
	return nil
}

// enqueueIf enqueues the one object for changes that concern it.
func enqueueIf(isConcerned func(client.Object) bool) handler.EventHandler {
	return handler.EnqueueRequestsFromMapFunc(func(_ context.Context, changed client.Object) []reconcile.Request {
		if !isConcerned(changed) {
			return nil
		}
		return []reconcile.Request{object}
	})
}

func always(client.Object) bool { return true }

func (r *reconciler) isInput(changed client.Object) bool {
	return changed.GetNamespace() == r.options.Namespace && slices.Contains(inputConfigMaps, changed.GetName())
}

// isCredentials passes pull secrets, and not the copies that each build has.
func (r *reconciler) isCredentials(changed client.Object) bool {
	secret, isSecret := changed.(*corev1.Secret)
	_, isOfBuild := changed.GetLabels()[machineconfiguration.LabelEphemeralBuildObject]
	return isSecret && !isOfBuild && changed.GetNamespace() == r.options.Namespace &&
		(secret.Type == corev1.SecretTypeDockerConfigJson || secret.Type == corev1.SecretTypeDockercfg)
}

// wishChanged passes pools whose stream another one is, or whose config, which may
// do without a stream: both decide which streams are in use.
var wishChanged = predicate.Funcs{
	UpdateFunc: func(e event.UpdateEvent) bool {
		before, after := e.ObjectOld.(*mcfgv1.MachineConfigPool), e.ObjectNew.(*mcfgv1.MachineConfigPool)
		return before.Spec.OSImageStream != after.Spec.OSImageStream || before.Spec.Configuration.Name != after.Spec.Configuration.Name
	},
}

// imageChanged passes MachineConfigs that name an OS image, or did.
var imageChanged = predicate.Funcs{
	CreateFunc: func(e event.CreateEvent) bool { return streams.NamesImage(e.Object.(*mcfgv1.MachineConfig)) },
	DeleteFunc: func(e event.DeleteEvent) bool { return streams.NamesImage(e.Object.(*mcfgv1.MachineConfig)) },
	UpdateFunc: func(e event.UpdateEvent) bool {
		before, after := e.ObjectOld.(*mcfgv1.MachineConfig), e.ObjectNew.(*mcfgv1.MachineConfig)
		return streams.NamesImage(before) != streams.NamesImage(after) || streams.NamesImage(after) && before.Spec.OSImageURL != after.Spec.OSImageURL
	},
}
