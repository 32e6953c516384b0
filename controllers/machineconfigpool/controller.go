package machineconfigpool

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/imagemode/imagemode/controllers/rivals"
)

const (
	// conflictDelay is how long a write that met another writer waits before it
	// starts over. The cache has the newer object within milliseconds.
	conflictDelay = 200 * time.Millisecond
	// maxConcurrentPools is how many pools are worked on at once. Each waits for
	// the API server most of its time.
	maxConcurrentPools = 10
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
	// taken; one on the same OS image waits for a third of it. Zero: it is taken at
	// once.
	Settle time.Duration
	// WithoutStreams: OS images come from MachineConfigs alone.
	WithoutStreams bool
	// StreamsElsewhere: something else keeps OSImageStream cluster, and says nothing
	// of what the images can do.
	StreamsElsewhere bool
	// Off are the parts that something else does.
	Off Parts
	// Version of this program, written to rendered MachineConfigs. It is no part
	// of their names. Empty: "unversioned".
	Version string
	// Clock tells the time of transitions. nil: the real one.
	Clock clock.PassiveClock
}

// Parts of what is done for pools and their nodes.
type Parts struct {
	// Render is rendering MachineConfigs and writing spec.configuration.
	Render bool
	// Status is all of a pool's status. Without it the condition ImageBuildDegraded
	// alone is put into it.
	Status bool
	// Membership is the label of Nodes that names their pool.
	Membership bool
	// MachineConfigNodes are those objects; NodeAnnotations those of
	// machineconfiguration.openshift.io on Nodes.
	MachineConfigNodes, NodeAnnotations bool
	// HandOff is the ImageRollouts of pools.
	HandOff bool
}

// Add adds the reconcilers of pools and of their nodes to mgr.
func Add(mgr ctrl.Manager, options Options) error {
	if options.Version == "" {
		options.Version = unversioned
	}
	if options.Clock == nil {
		options.Clock = clock.RealClock{}
	}
	rivals := rivals.NewWatch(mgr.GetAPIReader(), options.Namespace, options.Clock)
	claims := &claimBook{}
	pools := &poolReconciler{
		claims:  claims,
		client:  mgr.GetClient(),
		events:  mgr.GetEventRecorder("imagemode-machineconfigpool"),
		options: options,
		rivals:  rivals,
		settler: &settler{wait: options.Settle, clock: options.Clock},
		writes:  pacer{clock: options.Clock},
	}
	if err := pools.add(mgr); err != nil {
		return fmt.Errorf("add controller machineconfigpool: %w", err)
	}
	if !options.Off.Membership {
		nodes := &nodeReconciler{client: mgr.GetClient(), claims: claims}
		if err := nodes.add(mgr); err != nil {
			return fmt.Errorf("add controller node-membership: %w", err)
		}
	}
	if options.Off.MachineConfigNodes && options.Off.NodeAnnotations {
		return nil
	}
	views := &viewReconciler{
		client: mgr.GetClient(), off: options.Off, rivals: rivals, schema: &nodeSchema{live: mgr.GetAPIReader()},
		clock: options.Clock, writes: pacer{clock: options.Clock},
	}
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
	rivals  *rivals.Watch
	claims  *claimBook
	settler *settler
	// writes are those of the status of each pool; renders and rollouts are what is
	// known of each.
	writes   pacer
	renders  memo
	rollouts rolloutBook
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
		r.writes.forget(request.Name)
		r.renders.forget(request.Name)
		r.rollouts.forget(request.Name)
		return reconcile.Result{}, nil
	}
	if err != nil {
		return reconcile.Result{}, err
	}
	if scope.pool.DeletionTimestamp != nil {
		return reconcile.Result{}, nil
	}
	wait, err := r.act(ctx, scope)
	if err != nil || wait == 0 {
		return result(err)
	}
	return reconcile.Result{RequeueAfter: wait}, nil
}

// act does what the scope asks for. The status is written at the end and after
// a failure, too: it is where the user looks. The answer is how long it has to
// wait, if it was written just before.
func (r *poolReconciler) act(ctx context.Context, scope *scope) (time.Duration, error) {
	wanted, renderErr := r.wanted(scope)
	if renderErr != nil {
		if wanted = nil; !isOfUser(renderErr) {
			return 0, renderErr
		}
	}
	var failures []error
	unsettled := r.unsettled(scope, wanted)
	switch {
	case unsettled > 0:
		wanted = nil // what reaches nodes without an image waits, too
	case renderErr == nil && !r.options.Off.Render:
		failures = append(failures, r.publish(ctx, scope, wanted))
	}
	target := scope.target()
	if errors.Join(failures...) == nil {
		// Only once the pool says which config it wants is it known whose image
		// that is.
		failures = append(failures, r.handOff(ctx, scope, scope.offered(target, renderErr), wanted), r.prune(ctx, scope), r.buildByDefault(ctx, scope))
	}
	observed := scope.observe(wanted, renderErr, target, metav1.NewTime(r.options.Clock.Now()))
	observed.isRenderedElsewhere = r.options.Off.Render
	observed.isUnsettled = observed.isUnsettled || unsettled > 0
	unwritten, err := r.publishStatus(ctx, scope, observed)
	if unsettled == 0 || (unwritten > 0 && unwritten < unsettled) {
		return unwritten, errors.Join(append(failures, err)...)
	}
	return unsettled, errors.Join(append(failures, err)...)
}

// isOfUser reports whether a render failed, or waits, for what stands in the
// status: trying again does not help.
func isOfUser(err error) bool {
	var problem *renderError
	var wait *waitError
	return errors.As(err, &problem) || errors.As(err, &wait)
}

// unsettled is how long more changes to the pool's config may come, before it is
// taken. wanted is nil when there is none.
func (r *poolReconciler) unsettled(scope *scope, wanted *rendered) time.Duration {
	if wanted == nil || r.options.Off.Render {
		return 0
	}
	return r.settler.remaining(scope.pool.Name, scope.pool.Spec.Configuration.Name, wanted.name, scope.isOnPresentImage(wanted))
}

// wanted is the pool's config: rendered here, or by something else.
func (r *poolReconciler) wanted(scope *scope) (*rendered, error) {
	if r.options.Off.Render {
		return scope.presentConfig()
	}
	return scope.renderWith(&r.renders)
}

// result turns an error into what happens next: where another writer was
// faster the next look is soon and quiet; anything else is tried again with
// growing delays.
func result(err error) (reconcile.Result, error) {
	if err == nil {
		return reconcile.Result{}, nil
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
