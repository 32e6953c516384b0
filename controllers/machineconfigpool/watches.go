package machineconfigpool

import (
	"context"
	"slices"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/imagemode/imagemode/api/machineconfiguration"
	"github.com/imagemode/imagemode/api/v1alpha1"
)

// watch says which changes concern which pools. A pool too many costs a look
// into the cache; a pool too few would be wrong until the next change.
func (r *poolReconciler) watch(b *builder.Builder) *builder.Builder {
	return b.
		For(&mcfgv1.MachineConfigPool{}).
		Watches(&mcfgv1.MachineConfigPool{}, r.enqueue(everyPool), builder.WithPredicates(sharedChanged)).
		Watches(&mcfgv1.MachineConfig{}, r.enqueue(poolsOfConfig)).
		Watches(&mcfgv1.OSImageStream{}, r.enqueue(everyPool)).
		Watches(&corev1.ConfigMap{}, r.enqueue(everyPool), builder.WithPredicates(isTrustBundle)).
		Watches(&corev1.Node{}, r.enqueue(poolsOfNode), builder.WithPredicates(nodeChanged)).
		Watches(&mcfgv1.MachineOSConfig{}, r.enqueue(poolOfOSConfig)).
		Watches(&mcfgv1.MachineOSBuild{}, r.enqueue(poolOfBuild)).
		Watches(&v1alpha1.NodeImage{}, r.enqueue(poolsOfNodeImage)).
		Watches(&v1alpha1.ImageRollout{}, handler.EnqueueRequestsFromMapFunc(sameName))
}

// concern reports whether a changed object concerns a pool. pools are all pools,
// pool one of them.
type concern func(ctx context.Context, r *poolReconciler, changed client.Object, pools []mcfgv1.MachineConfigPool) []string

// enqueue maps a changed object to the names of pools.
func (r *poolReconciler) enqueue(concerned concern) handler.EventHandler {
	return handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, changed client.Object) []reconcile.Request {
		var pools mcfgv1.MachineConfigPoolList
		if err := r.client.List(ctx, &pools, client.UnsafeDisableDeepCopy); err != nil {
			log.FromContext(ctx).Error(err, "list MachineConfigPools")
			return nil
		}
		var requests []reconcile.Request
		for _, name := range concerned(ctx, r, changed, pools.Items) {
			requests = append(requests, reconcile.Request{NamespacedName: types.NamespacedName{Name: name}})
		}
		return requests
	})
}

func sameName(_ context.Context, changed client.Object) []reconcile.Request {
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Name: changed.GetName()}}}
}

func everyPool(_ context.Context, _ *poolReconciler, _ client.Object, pools []mcfgv1.MachineConfigPool) []string {
	return namesWhere(pools, func(*mcfgv1.MachineConfigPool) bool { return true })
}

func namesWhere(pools []mcfgv1.MachineConfigPool, isMeant func(*mcfgv1.MachineConfigPool) bool) []string {
	var names []string
	for i := range pools {
		if isMeant(&pools[i]) {
			names = append(names, pools[i].Name)
		}
	}
	return names
}

// poolsOfConfig: the pools that select a MachineConfig, and with the worker pool
// every custom one; the owner of a rendered config, so that a lost one returns.
func poolsOfConfig(_ context.Context, _ *poolReconciler, changed client.Object, pools []mcfgv1.MachineConfigPool) []string {
	if isRendered(changed.(*mcfgv1.MachineConfig)) {
		return namesWhere(pools, func(pool *mcfgv1.MachineConfigPool) bool { return pool.Spec.Configuration.Name == changed.GetName() })
	}
	selects := func(pool *mcfgv1.MachineConfigPool) bool {
		selector, err := configSelector(pool)
		return err == nil && selector.Matches(labels.Set(changed.GetLabels()))
	}
	workers := findPool(pools, workerPool)
	isWorkers := workers != nil && selects(workers)
	return namesWhere(pools, func(pool *mcfgv1.MachineConfigPool) bool {
		return selects(pool) || (isWorkers && roleOf(pool) == custom)
	})
}

// poolsOfNode: the pool in a node's label and every pool that selects it.
func poolsOfNode(_ context.Context, r *poolReconciler, changed client.Object, pools []mcfgv1.MachineConfigPool) []string {
	names := namesWhere(pools, func(pool *mcfgv1.MachineConfigPool) bool {
		return changed.GetLabels()[machineconfiguration.LabelNodePool] == machineconfiguration.PoolLabelValue(pool.Name)
	})
	for _, claim := range r.claims.of(pools) {
		if claim.selector.Matches(labels.Set(changed.GetLabels())) && !slices.Contains(names, claim.pool) {
			names = append(names, claim.pool)
		}
	}
	return names
}

func poolOfOSConfig(_ context.Context, _ *poolReconciler, changed client.Object, _ []mcfgv1.MachineConfigPool) []string {
	return []string{changed.(*mcfgv1.MachineOSConfig).Spec.MachineConfigPool.Name}
}

// poolOfBuild goes by the MachineOSConfig, which has its pool's name but for
// objects from before that rule.
func poolOfBuild(ctx context.Context, r *poolReconciler, changed client.Object, _ []mcfgv1.MachineConfigPool) []string {
	name := changed.(*mcfgv1.MachineOSBuild).Spec.MachineOSConfig.Name
	osConfig, err := get(ctx, r.client, name, &mcfgv1.MachineOSConfig{})
	if err != nil || osConfig == nil {
		return []string{name}
	}
	return []string{osConfig.Spec.MachineConfigPool.Name}
}

func poolsOfNodeImage(ctx context.Context, r *poolReconciler, changed client.Object, pools []mcfgv1.MachineConfigPool) []string {
	node, err := get(ctx, r.client, changed.GetName(), &corev1.Node{})
	if err != nil || node == nil {
		return nil
	}
	return poolsOfNode(ctx, r, node, pools)
}

// isTrustBundle passes the ConfigMap with the site's certificates.
var isTrustBundle = predicate.NewPredicateFuncs(func(object client.Object) bool {
	return object.GetName() == machineconfiguration.ConfigMapTrustBundle
})

// sharedChanged passes changes of a pool that can concern another pool: whose
// nodes it has, and for custom pools what they take over from worker. It lets
// the many writes of spec.configuration and status pass by.
var sharedChanged = predicate.Funcs{
	UpdateFunc: func(e event.UpdateEvent) bool {
		before, after := e.ObjectOld.(*mcfgv1.MachineConfigPool), e.ObjectNew.(*mcfgv1.MachineConfigPool)
		return selectionChanged.Update(e) ||
			before.Spec.OSImageStream != after.Spec.OSImageStream ||
			!equality.Semantic.DeepEqual(before.Spec.MachineConfigSelector, after.Spec.MachineConfigSelector)
	},
}

// nodeChanged passes what a pool's status shows of a node; a kubelet writes the
// Node far more often than that changes.
var nodeChanged = predicate.Funcs{
	UpdateFunc: func(e event.UpdateEvent) bool {
		before, after := e.ObjectOld.(*corev1.Node), e.ObjectNew.(*corev1.Node)
		return !equality.Semantic.DeepEqual(before.Labels, after.Labels) ||
			before.Spec.Unschedulable != after.Spec.Unschedulable ||
			isNodeReady(before) != isNodeReady(after)
	},
}
