package controller

import (
	"context"
	"fmt"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/labels"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/imagemode/imagemode/api/v1alpha1"
)

// parallelRequests keep a pass over hundreds of nodes short.
const parallelRequests = 16

// Add adds the controller to a manager. The manager has to elect a leader and
// must not release the lease before it has ended: two controllers that act at a
// time are kept from giving too many slots, but not from cordoning twice.
func Add(mgr ctrl.Manager, options Options) error {
	if options.Namespace == "" {
		return fmt.Errorf("rollout controller: no namespace for Secret %s", nodePullSecret)
	}
	if options.Clock == nil {
		options.Clock = time.Now
	}
	r := &Reconciler{
		Client:   mgr.GetClient(),
		Live:     mgr.GetAPIReader(),
		Recorder: mgr.GetEventRecorder("imagemode-rollout"),
		Options:  options,
		parallel: parallelRequests,
	}
	return ctrl.NewControllerManagedBy(mgr).
		Named("imagerollout").
		For(&v1alpha1.ImageRollout{}).
		Watches(&corev1.Node{}, handler.EnqueueRequestsFromMapFunc(r.rolloutsOfNode), builder.WithPredicates(nodeMatters)).
		Watches(&v1alpha1.NodeImage{}, handler.EnqueueRequestsFromMapFunc(rolloutOfImage)).
		Complete(newPaced(r))
}

// nodeMatters lets heartbeats pass by: a thousand nodes send many.
var nodeMatters = predicate.Funcs{UpdateFunc: func(update event.UpdateEvent) bool {
	before, isNode := update.ObjectOld.(*corev1.Node)
	after, isToo := update.ObjectNew.(*corev1.Node)
	if !isNode || !isToo {
		return true
	}
	old, now := Node{Node: before}, Node{Node: after}
	return !maps.Equal(before.Labels, after.Labels) || before.Spec.Unschedulable != after.Spec.Unschedulable ||
		before.Status.NodeInfo.BootID != after.Status.NodeInfo.BootID || old.isReady() != now.isReady() ||
		!equality.Semantic.DeepEqual(before.DeletionTimestamp, after.DeletionTimestamp)
}}

// rolloutsOfNode are those that select the node or hold a slot for it. For a
// label that changed, both the node before and after it are asked about.
func (r *Reconciler) rolloutsOfNode(ctx context.Context, node client.Object) []reconcile.Request {
	rollouts := &v1alpha1.ImageRolloutList{}
	if err := r.Client.List(ctx, rollouts, client.UnsafeDisableDeepCopy); err != nil { // nothing is changed
		log.FromContext(ctx).Error(err, "rollouts of a node could not be listed", "node", node.GetName())
		return nil
	}
	var requests []reconcile.Request
	for i := range rollouts.Items {
		rollout := &rollouts.Items[i]
		selector, _ := selectorOf(rollout) // one that is not valid selects none
		if selector.Matches(labels.Set(node.GetLabels())) || hasSlot(rollout, node.GetUID()) {
			requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(rollout)})
		}
	}
	return requests
}

// rolloutOfImage is the rollout that a NodeImage names; that it may be gone is
// how its leftovers are found.
func rolloutOfImage(_ context.Context, object client.Object) []reconcile.Request {
	image, isImage := object.(*v1alpha1.NodeImage)
	if !isImage || image.Spec.Rollout == "" {
		return nil
	}
	return []reconcile.Request{{NamespacedName: client.ObjectKey{Name: image.Spec.Rollout}}}
}
