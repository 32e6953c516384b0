// Package optional watches kinds that a cluster may lack, or get later.
package optional

import (
	"context"
	"strings"
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

const (
	// settleLooks and settleInterval are for the moments between a CRD's event and
	// the API server serving its kind.
	settleLooks    = 10
	settleInterval = time.Second
	// seldomInterval is how often it is looked without any event, for the case
	// that CRDs cannot be watched.
	seldomInterval = 10 * time.Minute
)

// +kubebuilder:rbac:groups=apiextensions.k8s.io,resources=customresourcedefinitions,verbs=get;list;watch

var kindCRD = schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"}

// Kind is a source for a controller: it watches a kind as soon as the API server
// serves it, and enqueues what requestsFor makes of a changed object. Until then
// it holds nothing up and asks nothing: the event of a CRD wakes it. Only metadata
// is kept, so the object that requestsFor gets has nothing else.
func Kind(mgr ctrl.Manager, kind schema.GroupVersionKind, requestsFor func(client.Object) []reconcile.Request) source.Source {
	return source.Func(func(ctx context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		enqueue := func(object client.Object) {
			for _, request := range requestsFor(object) {
				queue.Add(request)
			}
		}
		go func() {
			if !waitUntilServed(ctx, mgr, kind) {
				return
			}
			if err := watch(ctx, mgr, kind, enqueue); err != nil && ctx.Err() == nil {
				log.FromContext(ctx).Error(err, "a kind cannot be watched; its changes are seen only with other changes", "kind", kind.Kind)
			}
		}()
		return nil
	})
}

// waitUntilServed reports false when ctx ended before.
func waitUntilServed(ctx context.Context, mgr ctrl.Manager, kind schema.GroupVersionKind) bool {
	if isServed(mgr, kind) {
		return true
	}
	wake := make(chan struct{}, 1)
	isOfGroup := func(crd client.Object) {
		if strings.HasSuffix(crd.GetName(), "."+kind.Group) {
			select {
			case wake <- struct{}{}:
			default: // it is awake already
			}
		}
	}
	go func() {
		if err := watch(ctx, mgr, kindCRD, isOfGroup); err != nil && ctx.Err() == nil {
			log.FromContext(ctx).Error(err, "CRDs cannot be watched; a kind that comes later is noticed late", "kind", kind.Kind)
		}
	}()
	for {
		select {
		case <-ctx.Done():
			return false
		case <-wake:
			if settles(ctx, mgr, kind) {
				return true
			}
		case <-time.After(seldomInterval):
			if isServed(mgr, kind) {
				return true
			}
		}
	}
}

// settles looks some times, since a kind is served only moments after its CRD
// was created. The CRD may be another one of the group.
func settles(ctx context.Context, mgr ctrl.Manager, kind schema.GroupVersionKind) bool {
	for range settleLooks {
		if isServed(mgr, kind) {
			return true
		}
		select {
		case <-ctx.Done():
			return false
		case <-time.After(settleInterval):
		}
	}
	return false
}

func isServed(mgr ctrl.Manager, kind schema.GroupVersionKind) bool {
	_, err := mgr.GetRESTMapper().RESTMapping(kind.GroupKind(), kind.Version)
	return err == nil
}

// watch calls changed for every object of a kind that comes, changes or goes.
func watch(ctx context.Context, mgr ctrl.Manager, kind schema.GroupVersionKind, changed func(client.Object)) error {
	watched := &metav1.PartialObjectMetadata{}
	watched.SetGroupVersionKind(kind)
	informer, err := mgr.GetCache().GetInformer(ctx, watched)
	if err != nil {
		return err
	}
	_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc: func(added any) { changed(added.(client.Object)) },
		UpdateFunc: func(before, after any) {
			if before.(client.Object).GetResourceVersion() != after.(client.Object).GetResourceVersion() {
				changed(after.(client.Object))
			}
		},
		DeleteFunc: func(deleted any) {
			if last, isLast := deleted.(toolscache.DeletedFinalStateUnknown); isLast {
				deleted = last.Obj
			}
			if object, isObject := deleted.(client.Object); isObject {
				changed(object)
			}
		},
	})
	return err
}
