package osimagestream

import (
	"context"
	"slices"
	"time"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/imagemode/imagemode/api/machineconfiguration"
)

// watch says what changes the streams, or heals a partial result.
func (r *reconciler) watch(mgr ctrl.Manager) *builder.Builder {
	b := ctrl.NewControllerManagedBy(mgr).
		Named("osimagestream").
		For(&mcfgv1.OSImageStream{}).
		Watches(&corev1.ConfigMap{}, enqueueIf(r.isInput)).
		Watches(&corev1.Secret{}, enqueueIf(r.isCredentials)).
		Watches(&mcfgv1.MachineOSConfig{}, enqueueIf(always), builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&mcfgv1.MachineConfigPool{}, enqueueIf(always), builder.WithPredicates(wishChanged)).
		WatchesRawSource(source.Func(enqueueOnce))
	for _, kind := range optionalKinds {
		b = b.WatchesRawSource(watchWhenServed(mgr, kind))
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

// wishChanged passes pools whose stream another one is, since it decides which
// streams are in use.
var wishChanged = predicate.Funcs{
	UpdateFunc: func(e event.UpdateEvent) bool {
		before, after := e.ObjectOld.(*mcfgv1.MachineConfigPool), e.ObjectNew.(*mcfgv1.MachineConfigPool)
		return before.Spec.OSImageStream != after.Spec.OSImageStream
	},
}

// servedInterval is how often it is looked whether a kind that was absent is
// served by now. A look is a request or two.
const servedInterval = 30 * time.Second

// watchWhenServed watches a kind as soon as the API server serves it. Until
// then it costs a look now and then, and holds nothing up. Only metadata is
// kept: the objects are read when they are needed.
func watchWhenServed(mgr ctrl.Manager, kind schema.GroupVersionKind) source.Source {
	return source.Func(func(ctx context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		go func() {
			for !isServed(mgr, kind) {
				select {
				case <-ctx.Done():
					return
				case <-time.After(servedInterval):
				}
			}
			if err := watchMetadata(ctx, mgr, kind, queue); err != nil {
				log.FromContext(ctx).Error(err, "watch a kind of the platform; its changes are seen only with other changes", "kind", kind.Kind)
			}
		}()
		return nil
	})
}

func isServed(mgr ctrl.Manager, kind schema.GroupVersionKind) bool {
	_, err := mgr.GetRESTMapper().RESTMapping(kind.GroupKind(), kind.Version)
	return err == nil
}

func watchMetadata(ctx context.Context, mgr ctrl.Manager, kind schema.GroupVersionKind, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
	watched := &metav1.PartialObjectMetadata{}
	watched.SetGroupVersionKind(kind)
	informer, err := mgr.GetCache().GetInformer(ctx, watched)
	if err != nil {
		return err
	}
	enqueue := func(any) { queue.Add(object) }
	_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc: enqueue, DeleteFunc: enqueue,
		UpdateFunc: func(before, after any) {
			if before.(client.Object).GetResourceVersion() != after.(client.Object).GetResourceVersion() {
				queue.Add(object)
			}
		},
	})
	return err
}
