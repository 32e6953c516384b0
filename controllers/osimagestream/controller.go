package osimagestream

import (
	"context"
	"fmt"
	"sync"
	"time"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/imagemode/imagemode/api/machineconfiguration"
	"github.com/imagemode/imagemode/controllers/osimagestream/streams"
)

// conflictDelay is how long a write that met another writer waits before it
// starts over. The cache has the newer object within milliseconds.
const conflictDelay = 200 * time.Millisecond

// Options of the controller.
type Options struct {
	// Namespace of the ConfigMap imagemode-streams. Required.
	Namespace string
	// DefaultStream is the stream that becomes the default of a cluster that
	// has not chosen one, if it exists. Empty: the only stream, else the first by name.
	DefaultStream string
}

// Add adds the controller to mgr. The manager's cache must hold ConfigMaps of
// options.Namespace.
func Add(mgr ctrl.Manager, options Options) error {
	r := &reconciler{
		client:  mgr.GetClient(),
		events:  mgr.GetEventRecorder("imagemode-osimagestream"),
		options: options,
	}
	err := ctrl.NewControllerManagedBy(mgr).
		Named("osimagestream").
		For(&mcfgv1.OSImageStream{}).
		Watches(&corev1.ConfigMap{}, handler.EnqueueRequestsFromMapFunc(r.requestFor)).
		WatchesRawSource(source.Func(enqueueOnce)).
		Complete(r)
	if err != nil {
		return fmt.Errorf("add controller osimagestream: %w", err)
	}
	return nil
}

// object is the one object of this controller.
var object = reconcile.Request{NamespacedName: types.NamespacedName{Name: machineconfiguration.OSImageStreamName}}

// enqueueOnce runs one reconcile at the start, so that a cluster without any
// source is told so.
func enqueueOnce(_ context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
	queue.Add(object)
	return nil
}

// requestFor enqueues the object for the ConfigMap of streams and nothing else.
func (r *reconciler) requestFor(_ context.Context, changed client.Object) []reconcile.Request {
	if changed.GetNamespace() != r.options.Namespace || changed.GetName() != machineconfiguration.ConfigMapStreams {
		return nil
	}
	return []reconcile.Request{object}
}

type reconciler struct {
	client  client.Client
	events  events.EventRecorder
	options Options

	// reportAbsence logs once that there is no source: it is a state to be in,
	// not an error.
	reportAbsence sync.Once
	// lastDefault outlives a deletion of the object, which must not move pools
	// to another default. One reconcile runs at a time.
	lastDefault string
}

// +kubebuilder:rbac:groups=machineconfiguration.openshift.io,resources=osimagestreams,verbs=get;list;watch;create;patch
// +kubebuilder:rbac:groups=machineconfiguration.openshift.io,resources=osimagestreams/status,verbs=patch
// +kubebuilder:rbac:groups="",namespace=openshift-machine-config-operator,resources=configmaps,verbs=get;list;watch
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch
// +kubebuilder:rbac:groups="",resources=events,verbs=create;patch

// Reconcile brings OSImageStream cluster to what the sources say: gather,
// decide, write what differs.
func (r *reconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	if request != object {
		return reconcile.Result{}, nil
	}
	scope, err := r.gather(ctx)
	if err != nil {
		return reconcile.Result{}, err
	}
	if scope.existing != nil && scope.existing.DeletionTimestamp != nil {
		// The object is made again when it is gone.
		return reconcile.Result{}, nil
	}
	if len(scope.sources) == 0 && scope.existing == nil {
		r.reportAbsence.Do(func() {
			log.FromContext(ctx).Info("no OS image streams: ConfigMap does not exist, so no pool can be rendered until it does",
				"namespace", r.options.Namespace, "configMap", machineconfiguration.ConfigMapStreams)
		})
		return reconcile.Result{}, nil
	}
	err = r.publish(ctx, scope, r.decide(scope))
	if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) {
		return reconcile.Result{RequeueAfter: conflictDelay}, nil
	}
	return reconcile.Result{}, err
}

// decide turns what was gathered into what the object should say.
func (r *reconciler) decide(scope *scope) outcome {
	merged, problems := streams.Merge(scope.sources...)
	if len(merged) == 0 {
		return outcome{problems: append(problems, streams.Problem{
			Source: "all sources",
			Reason: "no stream is left; what was known before is kept, and new streams come from ConfigMap " + machineconfiguration.ConfigMapStreams,
		})}
	}
	candidates := streams.Candidates{Option: r.options.DefaultStream, Status: r.lastDefault}
	if scope.existing != nil {
		candidates.Spec = scope.existing.Spec.DefaultStream
		if scope.existing.Status.DefaultStream != "" {
			candidates.Status = scope.existing.Status.DefaultStream
		}
	}
	chosen := streams.ResolveDefault(merged, candidates)
	if chosen.Gone != "" {
		problems = append(problems, streams.Problem{
			Source: "OSImageStream cluster", Stream: chosen.Gone,
			Reason: "spec.defaultStream names a stream that no source has; pools that inherit the default stay as they are until it names one that exists",
		})
	}
	return outcome{streams: merged, chosen: chosen, problems: problems}
}
