// Package optional watches kinds that a cluster may lack, or get later.
package optional

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

// servedInterval is how often it is looked whether a kind that was absent is
// served by now. A look is a request or two.
const servedInterval = 10 * time.Second

// Kind is a source for a controller: it watches a kind as soon as the API server
// serves it, and enqueues what requestFor makes of a changed object. Until then
// it costs a look now and then, and holds nothing up. Only metadata is kept, so
// the object that requestFor gets has nothing else.
func Kind(mgr ctrl.Manager, kind schema.GroupVersionKind, requestFor func(client.Object) reconcile.Request) source.Source {
	return source.Func(func(ctx context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		go func() {
			if !waitUntilServed(ctx, mgr, kind) {
				return
			}
			enqueue := func(object client.Object) { queue.Add(requestFor(object)) }
			if err := watch(ctx, mgr, kind, enqueue); err != nil && ctx.Err() == nil {
				log.FromContext(ctx).Error(err, "a kind cannot be watched; its changes are seen only with other changes", "kind", kind.Kind)
			}
		}()
		return nil
	})
}

// waitUntilServed reports false when ctx ended before.
func waitUntilServed(ctx context.Context, mgr ctrl.Manager, kind schema.GroupVersionKind) bool {
	for {
		if _, err := mgr.GetRESTMapper().RESTMapping(kind.GroupKind(), kind.Version); err == nil {
			return true
		}
		select {
		case <-ctx.Done():
			return false
		case <-time.After(servedInterval):
		}
	}
}

func watch(ctx context.Context, mgr ctrl.Manager, kind schema.GroupVersionKind, enqueue func(client.Object)) error {
	watched := &metav1.PartialObjectMetadata{}
	watched.SetGroupVersionKind(kind)
	informer, err := mgr.GetCache().GetInformer(ctx, watched)
	if err != nil {
		return err
	}
	_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc: func(added any) { enqueue(added.(client.Object)) },
		UpdateFunc: func(before, after any) {
			if before.(client.Object).GetResourceVersion() != after.(client.Object).GetResourceVersion() {
				enqueue(after.(client.Object))
			}
		},
		DeleteFunc: func(deleted any) {
			if last, isLast := deleted.(toolscache.DeletedFinalStateUnknown); isLast {
				deleted = last.Obj
			}
			if object, isObject := deleted.(client.Object); isObject {
				enqueue(object)
			}
		},
	})
	return err
}
