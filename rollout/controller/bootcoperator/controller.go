package bootcoperator

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/imagemode/imagemode/api/v1alpha1"
)

// groupVersion is that of the operator's kinds.
var groupVersion = schema.GroupVersion{Group: "node.bootc.dev", Version: "v1alpha1"}

const (
	// fieldOwner is the name under which everything here is written.
	fieldOwner = client.FieldOwner("imagemode-bootc-operator")
	// lookInterval is how old what is shown of the operator's work may be.
	lookInterval = 15 * time.Second
)

// Reconciler reconciles ImageRollouts.
type Reconciler struct {
	// Client reads from the cache and writes.
	Client client.Client
	// Live reads from the API server: the operator's kinds are not cached.
	Live client.Reader
}

// Add adds the backend to a manager. It must not run beside the native one.
func Add(mgr ctrl.Manager) error {
	r := &Reconciler{Client: mgr.GetClient(), Live: mgr.GetAPIReader()}
	return ctrl.NewControllerManagedBy(mgr).Named("bootcnodepool").For(&v1alpha1.ImageRollout{}).Complete(r)
}

// Reconcile makes one pass over one rollout.
func (r *Reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	rollout := &v1alpha1.ImageRollout{}
	if err := r.Client.Get(ctx, request.NamespacedName, rollout); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err) // the pool goes with its owner
	}
	if rollout.DeletionTimestamp != nil {
		return ctrl.Result{}, nil
	}
	result, err := r.reconcile(ctx, rollout)
	switch {
	case apierrors.IsConflict(err):
		return ctrl.Result{RequeueAfter: time.Second}, nil
	case meta.IsNoMatchError(err):
		report := report{problem: condition(v1alpha1.ConditionDegraded, true, "OperatorMissing", "the cluster has no BootcNodePools: install the bootc operator, or run the controller with --rollout-backend=native")}
		return ctrl.Result{RequeueAfter: lookInterval}, r.writeStatus(ctx, rollout, statusOf(rollout, report))
	}
	return result, err
}

func (r *Reconciler) reconcile(ctx context.Context, rollout *v1alpha1.ImageRollout) (ctrl.Result, error) {
	pool, err := r.readPool(ctx, rollout.Name)
	if err != nil {
		return ctrl.Result{}, err
	}
	report := report{problem: refuse(rollout.Spec)}
	selector, err := metav1.LabelSelectorAsSelector(rollout.Spec.NodeSelector)
	if err != nil {
		selector, report.problem = labels.Nothing(), condition(v1alpha1.ConditionDegraded, true, "InvalidSelector", "spec.nodeSelector is not valid, so nothing is handed to the bootc operator: "+err.Error())
	}
	wanted := poolFor(rollout, pool)
	if wanted != nil && report.problem.Reason == "" && !isIn(wanted, pool) {
		err := r.Client.Apply(ctx, client.ApplyConfigurationFromUnstructured(wanted), fieldOwner, client.ForceOwnership)
		switch {
		case err == nil:
			pool = wanted
		case apierrors.IsForbidden(err), apierrors.IsInvalid(err), apierrors.IsBadRequest(err):
			report.problem = condition(v1alpha1.ConditionDegraded, true, "PoolRefused", fmt.Sprintf(
				"BootcNodePool %s could not be written: %s; tried again by itself: see whether the operator's version fits, and to the rights of the controller", rollout.Name, clip(strings.Join(strings.Fields(err.Error()), " "))))
		default:
			return ctrl.Result{}, fmt.Errorf("BootcNodePool %s could not be written: %w", rollout.Name, err)
		}
	}
	if report.pool, err = readPoolStatus(pool); err != nil {
		return ctrl.Result{}, err
	}
	if report.nodes, err = r.mirrorNodes(ctx, rollout.Name, selector); err != nil {
		return ctrl.Result{}, err
	}
	return ctrl.Result{RequeueAfter: lookInterval}, r.writeStatus(ctx, rollout, statusOf(rollout, report))
}

// readPool returns nil when there is none.
func (r *Reconciler) readPool(ctx context.Context, name string) (*unstructured.Unstructured, error) {
	pool := &unstructured.Unstructured{}
	pool.SetGroupVersionKind(groupVersion.WithKind("BootcNodePool"))
	err := r.Live.Get(ctx, client.ObjectKey{Name: name}, pool)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return pool, err
}

// mirrorNodes brings what the operator's agents report into NodeImages, and
// returns the nodes of the rollout with it.
func (r *Reconciler) mirrorNodes(ctx context.Context, rollout string, selector labels.Selector) ([]bootcNode, error) {
	nodes := &corev1.NodeList{}
	if err := r.Client.List(ctx, nodes, client.MatchingLabelsSelector{Selector: selector}); err != nil {
		return nil, err
	}
	reported, err := r.readNodes(ctx)
	if err != nil {
		return nil, err
	}
	var found []bootcNode
	for i := range nodes.Items {
		node, isThere := reported[nodes.Items[i].Name]
		if !isThere {
			continue
		}
		found = append(found, node)
		if err := r.mirror(ctx, rollout, &nodes.Items[i], node); err != nil {
			return nil, err
		}
	}
	return found, nil
}

func (r *Reconciler) readNodes(ctx context.Context) (map[string]bootcNode, error) {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(groupVersion.WithKind("BootcNodeList"))
	if err := r.Live.List(ctx, list); err != nil {
		return nil, err
	}
	nodes := map[string]bootcNode{}
	for i := range list.Items {
		var node bootcNode
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(list.Items[i].Object, &node); err != nil {
			return nil, fmt.Errorf("BootcNode %s: %w", list.Items[i].GetName(), err)
		}
		nodes[list.Items[i].GetName()] = node
	}
	return nodes, nil
}

// mirror writes the NodeImage of one node where it differs.
func (r *Reconciler) mirror(ctx context.Context, rollout string, node *corev1.Node, reported bootcNode) error {
	present := &v1alpha1.NodeImage{}
	err := r.Client.Get(ctx, client.ObjectKey{Name: node.Name}, present)
	if client.IgnoreNotFound(err) != nil {
		return err
	}
	spec := nodeImageSpec(rollout, reported)
	if apierrors.IsNotFound(err) || present.Spec != spec {
		owner := []any{map[string]any{"apiVersion": "v1", "kind": "Node", "name": node.Name, "uid": string(node.UID)}}
		if err := r.apply(ctx, "NodeImage", node.Name, "spec", &spec, owner); err != nil {
			return err
		}
	}
	status := nodeImageStatus(present.Status, present.Generation, node.Status.NodeInfo.BootID, reported)
	if equality.Semantic.DeepEqual(present.Status, status) {
		return nil
	}
	return r.apply(ctx, "NodeImage", node.Name, "status", &status, nil)
}

func (r *Reconciler) writeStatus(ctx context.Context, rollout *v1alpha1.ImageRollout, status v1alpha1.ImageRolloutStatus) error {
	if equality.Semantic.DeepEqual(rollout.Status, status) {
		return nil
	}
	return r.apply(ctx, "ImageRollout", rollout.Name, "status", &status, nil)
}

// apply writes one part of an object of ours.
func (r *Reconciler) apply(ctx context.Context, kind, name, part string, value any, owners []any) error {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(value)
	if err != nil {
		return err
	}
	object := &unstructured.Unstructured{Object: map[string]any{part: content}}
	object.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(kind))
	object.SetName(name)
	if owners != nil {
		object.Object["metadata"].(map[string]any)["ownerReferences"] = owners
	}
	configuration := client.ApplyConfigurationFromUnstructured(object)
	if part == "status" {
		err = r.Client.SubResource("status").Apply(ctx, configuration, fieldOwner, client.ForceOwnership)
	} else {
		err = r.Client.Apply(ctx, configuration, fieldOwner, client.ForceOwnership)
	}
	if err != nil {
		return fmt.Errorf("%s %s: %s could not be written: %w", kind, name, part, err)
	}
	return nil
}
