package machineconfigpool

import (
	"context"
	"fmt"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/imagemode/imagemode/api/machineconfiguration"
)

// nodeReconciler writes the answer of membership to the label of each Node.
type nodeReconciler struct {
	client client.Client
	claims *claimBook
}

func (r *nodeReconciler) add(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).
		Named("node-membership").
		For(&corev1.Node{}, builder.WithPredicates(predicate.LabelChangedPredicate{})).
		Watches(&mcfgv1.MachineConfigPool{}, handler.EnqueueRequestsFromMapFunc(r.allNodes), builder.WithPredicates(selectionChanged)).
		Complete(r)
}

// selectionChanged passes changes of a pool that can move nodes.
var selectionChanged = predicate.Funcs{
	UpdateFunc: func(e event.UpdateEvent) bool {
		before, after := e.ObjectOld.(*mcfgv1.MachineConfigPool), e.ObjectNew.(*mcfgv1.MachineConfigPool)
		return !equality.Semantic.DeepEqual(before.Spec.NodeSelector, after.Spec.NodeSelector) ||
			before.DeletionTimestamp.IsZero() != after.DeletionTimestamp.IsZero()
	},
}

// allNodes enqueues every node: a changed selector can win or lose any.
func (r *nodeReconciler) allNodes(ctx context.Context, _ client.Object) []reconcile.Request {
	var nodes corev1.NodeList
	if err := r.client.List(ctx, &nodes, client.UnsafeDisableDeepCopy); err != nil {
		log.FromContext(ctx).Error(err, "list Nodes")
		return nil
	}
	return requestsFor(nodes.Items)
}

func requestsFor(nodes []corev1.Node) []reconcile.Request {
	requests := make([]reconcile.Request, 0, len(nodes))
	for i := range nodes {
		requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&nodes[i])})
	}
	return requests
}

// +kubebuilder:rbac:groups="",resources=nodes,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=machineconfiguration.openshift.io,resources=machineconfigpools,verbs=get;list;watch

// Reconcile writes one node's pool to its label.
func (r *nodeReconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	node := &corev1.Node{}
	if err := r.client.Get(ctx, request.NamespacedName, node); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	var pools mcfgv1.MachineConfigPoolList
	if err := r.client.List(ctx, &pools, client.UnsafeDisableDeepCopy); err != nil {
		return reconcile.Result{}, fmt.Errorf("list MachineConfigPools: %w", err)
	}
	answer := r.claims.of(pools.Items).poolOf(node.Labels)
	if len(answer.contested) > 0 {
		// Both pools say so in their status; the node stays where it is.
		return reconcile.Result{}, nil
	}
	return result(r.label(ctx, node, answer.pool))
}

// label sets the node's pool, or removes the label of a node that has none.
func (r *nodeReconciler) label(ctx context.Context, node *corev1.Node, pool string) error {
	value, isLabelled := node.Labels[machineconfiguration.LabelNodePool]
	wanted := machineconfiguration.PoolLabelValue(pool)
	if value == wanted && isLabelled == (pool != "") {
		return nil
	}
	before := node.DeepCopy()
	if pool == "" {
		delete(node.Labels, machineconfiguration.LabelNodePool)
	} else {
		if node.Labels == nil {
			node.Labels = map[string]string{}
		}
		node.Labels[machineconfiguration.LabelNodePool] = wanted
	}
	if err := r.client.Patch(ctx, node, client.MergeFrom(before)); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("label Node %s: %w", node.Name, err)
	}
	log.FromContext(ctx).Info("node belongs to pool", "from", value, "to", pool)
	return nil
}
