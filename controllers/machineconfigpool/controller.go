package machineconfigpool

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

const (
	// conflictDelay is how long a write that met another writer waits before it
	// starts over. The cache has the newer object within milliseconds.
	conflictDelay = 200 * time.Millisecond
	// maxConcurrentPools is how many pools are worked on at once. Each waits for
	// the API server most of its time.
	maxConcurrentPools = 4
	// unversioned stands in for a version: what reads it needs some value.
	unversioned = "unversioned"
)

// Options of the controllers.
type Options struct {
	// Namespace of the Secrets. Required.
	Namespace string
	// NodePullSecret names the Secret in Namespace that nodes pull their images
	// with, unless a MachineOSConfig names its own. Empty: without credentials.
	NodePullSecret string
	// DefaultBuild is the MachineOSConfig of pools that have none.
	DefaultBuild DefaultBuild
	// Settle is how long a pool's next config has to stay the same before it is
	// taken. Zero: it is taken at once.
	Settle time.Duration
	// Version of this program, written to rendered MachineConfigs. It is no part
	// of their names. Empty: "unversioned".
	Version string
	// Clock tells the time of transitions. nil: the real one.
	Clock clock.PassiveClock
}

// Add adds the reconcilers of pools and of their nodes to mgr.
func Add(mgr ctrl.Manager, options Options) error {
	if options.Version == "" {
		options.Version = unversioned
	}
	if options.Clock == nil {
		options.Clock = clock.RealClock{}
	}
	pools := &poolReconciler{
		client:  mgr.GetClient(),
		events:  mgr.GetEventRecorder("imagemode-machineconfigpool"),
		options: options,
		settler: &settler{wait: options.Settle, clock: options.Clock},
	}
	if err := pools.add(mgr); err != nil {
		return fmt.Errorf("add controller machineconfigpool: %w", err)
	}
	nodes := &nodeReconciler{client: mgr.GetClient()}
	if err := nodes.add(mgr); err != nil {
		return fmt.Errorf("add controller node-membership: %w", err)
	}
	views := &viewReconciler{client: mgr.GetClient(), live: mgr.GetAPIReader(), namespace: options.Namespace, clock: options.Clock}
	if err := views.add(mgr); err != nil {
		return fmt.Errorf("add controller machineconfignode: %w", err)
	}
	return nil
}

// poolReconciler renders pools, hands their images off and keeps their status.
type poolReconciler struct {
	client  client.Client
	events  events.EventRecorder
	options Options
	settler *settler
}

func (r *poolReconciler) add(mgr ctrl.Manager) error {
	return r.watch(ctrl.NewControllerManagedBy(mgr).
		Named("machineconfigpool").
		WithOptions(controller.Options{MaxConcurrentReconciles: maxConcurrentPools})).
		Complete(r)
}

// +kubebuilder:rbac:groups=machineconfiguration.openshift.io,resources=machineconfigpools,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=machineconfiguration.openshift.io,resources=machineconfigpools/status,verbs=patch
// +kubebuilder:rbac:groups=machineconfiguration.openshift.io,resources=machineconfigpools/finalizers,verbs=update
// +kubebuilder:rbac:groups=machineconfiguration.openshift.io,resources=machineconfigs,verbs=get;list;watch;create;delete
// +kubebuilder:rbac:groups=machineconfiguration.openshift.io,resources=osimagestreams;machineosconfigs;machineosbuilds,verbs=get;list;watch
// +kubebuilder:rbac:groups=imagemode.dev,resources=nodeimages,verbs=get;list;watch
// +kubebuilder:rbac:groups=imagemode.dev,resources=imagerollouts,verbs=get;list;watch;create;patch
// +kubebuilder:rbac:groups="",resources=nodes,verbs=get;list;watch
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch
// +kubebuilder:rbac:groups="",resources=events,verbs=create;patch

// Reconcile brings one pool up to date: gather, render, hand off, status.
func (r *poolReconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	scope, err := r.gather(ctx, request.Name)
	if apierrors.IsNotFound(err) {
		return reconcile.Result{}, nil
	}
	if err != nil {
		return reconcile.Result{}, err
	}
	if scope.pool.DeletionTimestamp != nil {
		return reconcile.Result{}, nil
	}
	return result(r.act(ctx, scope))
}

// act does what the scope asks for. The status is written at the end and after
// a failure, too: it is where the user looks.
func (r *poolReconciler) act(ctx context.Context, scope *scope) error {
	wanted, renderErr := scope.render()
	var problem *renderError
	if renderErr != nil {
		if wanted = nil; !errors.As(renderErr, &problem) {
			return renderErr
		}
	}
	if renderErr == nil {
		if wait := r.settler.remaining(scope.pool.Name, scope.pool.Spec.Configuration.Name, wanted.name); wait > 0 {
			return unsettled(wait)
		}
	}
	var failures []error
	if renderErr == nil {
		failures = append(failures, r.publish(ctx, scope, wanted))
	}
	target := scope.target()
	if errors.Join(failures...) == nil {
		// Only once the pool says which config it wants is it known whose image
		// that is.
		failures = append(failures, r.handOff(ctx, scope, target, wanted), r.prune(ctx, scope), r.buildByDefault(ctx, scope))
	}
	failures = append(failures, r.writeStatus(ctx, scope, scope.observe(wanted, renderErr, target, metav1.NewTime(r.options.Clock.Now()))))
	return errors.Join(failures...)
}

// writeStatus writes the pool's status where it differs.
func (r *poolReconciler) writeStatus(ctx context.Context, scope *scope, observed observation) error {
	status := computeStatus(observed)
	if equality.Semantic.DeepEqual(scope.pool.Status, status) {
		return nil
	}
	before := scope.pool.DeepCopy()
	scope.pool.Status = status
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	// A pool that is gone by now needs no status.
	if err := r.client.Status().Patch(ctx, scope.pool, patch); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("write status of MachineConfigPool %s: %w", scope.pool.Name, err)
	}
	r.announce(before, &mcfgv1.MachineConfigPool{ObjectMeta: before.ObjectMeta, Status: status})
	return nil
}

// result turns an error into what happens next: where another writer was
// faster the next look is soon and quiet; anything else is tried again with
// growing delays.
func result(err error) (reconcile.Result, error) {
	if err == nil {
		return reconcile.Result{}, nil
	}
	if wait := unsettled(0); errors.As(err, &wait) {
		return reconcile.Result{RequeueAfter: time.Duration(wait)}, nil
	}
	if isConflict(err) {
		return reconcile.Result{RequeueAfter: conflictDelay}, nil
	}
	return reconcile.Result{}, err
}

// isConflict reports whether all that went wrong is that something else wrote
// in the meantime.
func isConflict(err error) bool {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		return !slices.ContainsFunc(joined.Unwrap(), func(each error) bool { return !isConflict(each) })
	}
	return apierrors.IsConflict(err)
}
