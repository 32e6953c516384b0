package machineconfigpool

import (
	"context"
	"fmt"
	"time"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/imagemode/imagemode/api/machineconfiguration"
	"github.com/imagemode/imagemode/api/v1alpha1"
	"github.com/imagemode/imagemode/controllers/optional"
	"github.com/imagemode/imagemode/controllers/rivals"
)

const (
	// viewInterval is how often at most a node's MachineConfigNode is written: the
	// steps of an update come in bursts, and are written together.
	viewInterval = time.Second
	// maxConcurrentViews is how many nodes are shown at once. Each waits for the API
	// server most of its time.
	maxConcurrentViews = 4
)

// viewReconciler shows the state of each node on its MachineConfigNode and in
// annotations of the Node. Nothing here decides anything by what it shows.
type viewReconciler struct {
	client client.Client
	off    Parts
	rivals *rivals.Watch
	schema *nodeSchema
	clock  clock.PassiveClock
	// writes are those of the MachineConfigNode of each node.
	writes pacer
}

func (r *viewReconciler) add(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).
		Named("machineconfignode").
		For(&corev1.Node{}, builder.WithPredicates(nodeChanged)).
		Watches(&mcfgv1.MachineConfigNode{}, handler.EnqueueRequestsFromMapFunc(sameName)).
		Watches(&v1alpha1.NodeImage{}, handler.EnqueueRequestsFromMapFunc(sameName)).
		Watches(&v1alpha1.ImageRollout{}, handler.EnqueueRequestsFromMapFunc(r.nodesOfPool)).
		Watches(&mcfgv1.MachineConfigPool{}, handler.EnqueueRequestsFromMapFunc(r.nodesOfPool), builder.WithPredicates(configurationChanged)).
		WatchesRawSource(optional.Kind(mgr, kindCRD, r.nodesOfSchema)).
		WithOptions(controller.Options{MaxConcurrentReconciles: maxConcurrentViews}).
		Complete(r)
}

// configurationChanged passes what of a pool is shown on its nodes: the many
// writes of its status pass by.
var configurationChanged = predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
	before, after := e.ObjectOld.(*mcfgv1.MachineConfigPool), e.ObjectNew.(*mcfgv1.MachineConfigPool)
	return before.Spec.Configuration.Name != after.Spec.Configuration.Name
}}

// nodesOfSchema enqueues every node when the fields of MachineConfigNodes change.
func (r *viewReconciler) nodesOfSchema(crd client.Object) []reconcile.Request {
	if crd.GetName() != machineConfigNodes {
		return nil
	}
	r.schema.changed()
	var nodes corev1.NodeList
	if err := r.client.List(context.Background(), &nodes, client.UnsafeDisableDeepCopy); err != nil {
		return nil // the cache is read: this does not happen once it has started
	}
	return requestsFor(nodes.Items)
}

// nodesOfPool enqueues the nodes of the pool of an object's name.
func (r *viewReconciler) nodesOfPool(ctx context.Context, object client.Object) []reconcile.Request {
	var nodes corev1.NodeList
	selector := client.MatchingLabels{machineconfiguration.LabelNodePool: machineconfiguration.PoolLabelValue(object.GetName())}
	if err := r.client.List(ctx, &nodes, selector, client.UnsafeDisableDeepCopy); err != nil {
		log.FromContext(ctx).Error(err, "list Nodes")
		return nil
	}
	return requestsFor(nodes.Items)
}

// +kubebuilder:rbac:groups=machineconfiguration.openshift.io,resources=machineconfignodes,verbs=get;list;watch;create;patch
// +kubebuilder:rbac:groups=machineconfiguration.openshift.io,resources=machineconfignodes/status,verbs=patch
// +kubebuilder:rbac:groups=apiextensions.k8s.io,resources=customresourcedefinitions,verbs=get;list;watch

// Reconcile shows one node.
func (r *viewReconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	node := &corev1.Node{}
	if err := r.client.Get(ctx, request.NamespacedName, node); err != nil {
		if apierrors.IsNotFound(err) {
			r.writes.forget(request.Name)
		}
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if wait := r.writes.untilDue(node.Name, viewInterval); wait > 0 {
		return reconcile.Result{RequeueAfter: wait}, nil
	}
	view, err := r.gather(ctx, node)
	if err != nil || view == nil {
		return result(err)
	}
	if err := r.show(ctx, view); err != nil {
		return result(err)
	}
	return result(r.annotate(ctx, view))
}

// gather reads what is shown of a node; nil: it belongs to no pool, or the pool
// has no config yet.
func (r *viewReconciler) gather(ctx context.Context, node *corev1.Node) (*nodeView, error) {
	pool, err := r.poolOf(ctx, node)
	if err != nil || pool == nil || pool.Spec.Configuration.Name == "" {
		return nil, err
	}
	image, err := get(ctx, r.client, node.Name, &v1alpha1.NodeImage{})
	if err != nil {
		return nil, err
	}
	rollout, err := get(ctx, r.client, pool.Name, &v1alpha1.ImageRollout{})
	if err != nil {
		return nil, err
	}
	builds, err := r.buildsFor(ctx, image, rollout)
	if err != nil {
		return nil, err
	}
	view := viewOf(node, pool, image, rollout, builds)
	if view.shown, err = get(ctx, r.client, node.Name, &mcfgv1.MachineConfigNode{}); err != nil {
		return nil, err
	}
	if view.withImages, err = r.schema.withImages(ctx); err != nil {
		return nil, err
	}
	view.recall()
	return &view, nil
}

// buildsFor lists the builds, unless what is shown needs none of them: a node that
// runs the image of its rollout, which says what it was built from. Most nodes do,
// and a cluster may have thousands of both.
func (r *viewReconciler) buildsFor(ctx context.Context, image *v1alpha1.NodeImage, rollout *v1alpha1.ImageRollout) ([]mcfgv1.MachineOSBuild, error) {
	isSaid := rollout != nil && rollout.Annotations[machineconfiguration.AnnotationRolloutConfig] != ""
	if isSaid && (image == nil || image.Status.Booted == nil || image.Status.Booted.Digest == digestOf(rollout.Spec.Image)) {
		return nil, nil
	}
	var builds mcfgv1.MachineOSBuildList
	if err := r.client.List(ctx, &builds, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list MachineOSBuilds: %w", err)
	}
	return builds.Items, nil
}

// poolOf returns the pool that a node's label names; nil: there is none.
func (r *viewReconciler) poolOf(ctx context.Context, node *corev1.Node) (*mcfgv1.MachineConfigPool, error) {
	label := node.Labels[machineconfiguration.LabelNodePool]
	if label == "" {
		return nil, nil
	}
	// The label is the name, unless the name is too long for one.
	pool, err := get(ctx, r.client, label, &mcfgv1.MachineConfigPool{})
	if err != nil || (pool != nil && machineconfiguration.PoolLabelValue(pool.Name) == label) {
		return pool, err
	}
	var pools mcfgv1.MachineConfigPoolList
	if err := r.client.List(ctx, &pools, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list MachineConfigPools: %w", err)
	}
	for i := range pools.Items {
		if machineconfiguration.PoolLabelValue(pools.Items[i].Name) == label {
			return &pools.Items[i], nil
		}
	}
	return nil, nil
}

// show writes the MachineConfigNode where it differs.
func (r *viewReconciler) show(ctx context.Context, view *nodeView) error {
	if r.off.MachineConfigNodes {
		return nil
	}
	shown := view.shown
	if shown == nil {
		shown = &mcfgv1.MachineConfigNode{ObjectMeta: metav1.ObjectMeta{
			Name:            view.node.Name,
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: view.node.Name, UID: view.node.UID}},
		}, Spec: view.spec()}
		if err := r.client.Create(ctx, shown); err != nil {
			return fmt.Errorf("create MachineConfigNode %s: %w", shown.Name, err)
		}
		r.writes.note(shown.Name)
	}
	if before := shown.DeepCopy(); !equality.Semantic.DeepEqual(shown.Spec, view.spec()) {
		shown.Spec = view.spec()
		if err := r.client.Patch(ctx, shown, client.MergeFrom(before)); err != nil {
			return fmt.Errorf("write MachineConfigNode %s: %w", shown.Name, err)
		}
		r.writes.note(shown.Name)
	}
	before := shown.DeepCopy()
	shown.Status = view.status(before.Status, shown.Generation, metav1.NewTime(r.clock.Now()))
	if equality.Semantic.DeepEqual(before.Status, shown.Status) {
		return nil
	}
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if err := r.client.Status().Patch(ctx, shown, patch); err != nil {
		return fmt.Errorf("write the status of MachineConfigNode %s: %w", shown.Name, err)
	}
	r.writes.note(shown.Name)
	return nil
}

// annotate writes the Node's annotations where they differ, unless a
// machine-config-daemon writes them.
func (r *viewReconciler) annotate(ctx context.Context, view *nodeView) error {
	wanted := view.annotations()
	if r.off.NodeAnnotations || hasAnnotations(view.node, wanted) {
		return nil
	}
	found, err := r.rivals.Look(ctx)
	if err != nil || found.Daemon {
		return err
	}
	before := view.node.DeepCopy()
	for key, value := range wanted {
		if value == "" {
			delete(view.node.Annotations, key)
			continue
		}
		metav1.SetMetaDataAnnotation(&view.node.ObjectMeta, key, value)
	}
	if err := r.client.Patch(ctx, view.node, client.MergeFrom(before)); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("annotate Node %s: %w", view.node.Name, err)
	}
	return nil
}

func hasAnnotations(node *corev1.Node, wanted map[string]string) bool {
	for key, value := range wanted {
		if node.Annotations[key] != value {
			return false
		}
	}
	return true
}
