package machineconfigpool

import (
	"context"
	"fmt"
	"sync"
	"time"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/imagemode/imagemode/api/machineconfiguration"
	"github.com/imagemode/imagemode/api/v1alpha1"
)

const (
	// viewInterval is how often at most a node's MachineConfigNode is written: the
	// steps of an update come in bursts, and are written together.
	viewInterval = time.Second
	// rivalInterval is how long it is believed that no machine-config-daemon runs.
	rivalInterval = time.Minute
	// rivalDaemon is the DaemonSet that writes the annotations of Nodes itself.
	rivalDaemon = "machine-config-daemon"
)

// viewReconciler shows the state of each node on its MachineConfigNode and in
// annotations of the Node. Nothing here decides anything by what it shows.
type viewReconciler struct {
	client client.Client
	// live reads from the API server.
	live      client.Reader
	namespace string
	clock     clock.PassiveClock

	mutex sync.Mutex
	// written is when a node's MachineConfigNode was written last.
	written map[string]time.Time
	// rival is the last answer about a machine-config-daemon.
	rival   bool
	rivalAt time.Time
}

func (r *viewReconciler) add(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).
		Named("machineconfignode").
		For(&corev1.Node{}, builder.WithPredicates(nodeChanged)).
		Watches(&mcfgv1.MachineConfigNode{}, handler.EnqueueRequestsFromMapFunc(sameName)).
		Watches(&v1alpha1.NodeImage{}, handler.EnqueueRequestsFromMapFunc(sameName)).
		Watches(&v1alpha1.ImageRollout{}, handler.EnqueueRequestsFromMapFunc(r.nodesOfPool)).
		Watches(&mcfgv1.MachineConfigPool{}, handler.EnqueueRequestsFromMapFunc(r.nodesOfPool)).
		Complete(r)
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
// +kubebuilder:rbac:groups=apps,namespace=openshift-machine-config-operator,resources=daemonsets,verbs=get

// Reconcile shows one node.
func (r *viewReconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	node := &corev1.Node{}
	if err := r.client.Get(ctx, request.NamespacedName, node); err != nil {
		if apierrors.IsNotFound(err) {
			r.forget(request.Name)
		}
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if wait := r.untilDue(node.Name); wait > 0 {
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
	var pools mcfgv1.MachineConfigPoolList
	if err := r.client.List(ctx, &pools); err != nil {
		return nil, fmt.Errorf("list MachineConfigPools: %w", err)
	}
	var pool *mcfgv1.MachineConfigPool
	for i := range pools.Items {
		if label := machineconfiguration.PoolLabelValue(pools.Items[i].Name); label == node.Labels[machineconfiguration.LabelNodePool] {
			pool = &pools.Items[i]
		}
	}
	if pool == nil || pool.Spec.Configuration.Name == "" {
		return nil, nil
	}
	image, err := get(ctx, r.client, node.Name, &v1alpha1.NodeImage{})
	if err != nil {
		return nil, err
	}
	rollout, err := get(ctx, r.client, pool.Name, &v1alpha1.ImageRollout{})
	if err != nil {
		return nil, err
	}
	var builds mcfgv1.MachineOSBuildList
	if err := r.client.List(ctx, &builds, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list MachineOSBuilds: %w", err)
	}
	view := viewOf(node, pool, image, rollout, builds.Items)
	return &view, nil
}

// show writes the MachineConfigNode where it differs.
func (r *viewReconciler) show(ctx context.Context, view *nodeView) error {
	shown, err := get(ctx, r.client, view.node.Name, &mcfgv1.MachineConfigNode{})
	if err != nil {
		return err
	}
	if shown == nil {
		shown = &mcfgv1.MachineConfigNode{ObjectMeta: metav1.ObjectMeta{
			Name:            view.node.Name,
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: view.node.Name, UID: view.node.UID}},
		}, Spec: view.spec(true)}
		if err := r.client.Create(ctx, shown); err != nil {
			return fmt.Errorf("create MachineConfigNode %s: %w", shown.Name, err)
		}
		r.noteWrite(shown.Name)
	}
	if before := shown.DeepCopy(); !equality.Semantic.DeepEqual(shown.Spec, view.spec(true)) {
		shown.Spec = view.spec(true)
		if err := r.client.Patch(ctx, shown, client.MergeFrom(before)); err != nil {
			return fmt.Errorf("write MachineConfigNode %s: %w", shown.Name, err)
		}
		r.noteWrite(shown.Name)
	}
	before := shown.DeepCopy()
	shown.Status = view.status(before.Status, shown.Generation, true, metav1.NewTime(r.clock.Now()))
	if equality.Semantic.DeepEqual(before.Status, shown.Status) {
		return nil
	}
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if err := r.client.Status().Patch(ctx, shown, patch); err != nil {
		return fmt.Errorf("write the status of MachineConfigNode %s: %w", shown.Name, err)
	}
	r.noteWrite(shown.Name)
	return nil
}

// annotate writes the Node's annotations where they differ, unless a
// machine-config-daemon writes them.
func (r *viewReconciler) annotate(ctx context.Context, view *nodeView) error {
	wanted := view.annotations()
	if hasAnnotations(view.node, wanted) {
		return nil
	}
	isRival, err := r.hasRival(ctx)
	if err != nil || isRival {
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

// hasRival reports whether a machine-config-daemon runs, which owns the
// annotations of Nodes.
func (r *viewReconciler) hasRival(ctx context.Context) (bool, error) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	if now := r.clock.Now(); now.Sub(r.rivalAt) >= rivalInterval {
		err := r.live.Get(ctx, client.ObjectKey{Namespace: r.namespace, Name: rivalDaemon}, &appsv1.DaemonSet{})
		if client.IgnoreNotFound(err) != nil {
			return false, fmt.Errorf("look for DaemonSet %s: %w", rivalDaemon, err)
		}
		r.rival, r.rivalAt = err == nil, now
	}
	return r.rival, nil
}

// untilDue is how long a node that was written just now has to wait.
func (r *viewReconciler) untilDue(node string) time.Duration {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	return max(0, viewInterval-r.clock.Now().Sub(r.written[node]))
}

func (r *viewReconciler) noteWrite(node string) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	if r.written == nil {
		r.written = map[string]time.Time{}
	}
	r.written[node] = r.clock.Now()
}

func (r *viewReconciler) forget(node string) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	delete(r.written, node)
}
