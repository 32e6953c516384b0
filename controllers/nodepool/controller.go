package nodepool

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/imagemode/imagemode/controllers/optional"
	"github.com/imagemode/imagemode/controllers/osimagestream/streams"
)

const (
	// conflictDelay is how long a write that met another writer waits.
	conflictDelay = 200 * time.Millisecond
	// resyncInterval is how soon a change of a ConfigMap of spec.config is seen:
	// they are in namespaces that are not watched.
	resyncInterval = 5 * time.Minute
	// maxConcurrentPools is how many node pools are worked on at once: the registry of
	// one may hang for minutes, and they belong to different people.
	maxConcurrentPools = 5
)

// PayloadReader reads the payload of a release image.
type PayloadReader interface {
	Read(ctx context.Context, image string) (*streams.Payload, error)
}

// Options of the controller.
type Options struct {
	// Payloads reads release images. Required.
	Payloads PayloadReader
	// Clock tells the time of transitions. nil: the real one.
	Clock clock.PassiveClock
}

// Add adds the controller to mgr. It sleeps where no NodePools are served.
func Add(mgr ctrl.Manager, options Options) error {
	if options.Clock == nil {
		options.Clock = clock.RealClock{}
	}
	r := &reconciler{client: mgr.GetClient(), live: mgr.GetAPIReader(), options: options}
	err := ctrl.NewControllerManagedBy(mgr).
		Named("nodepool").
		WithOptions(controller.Options{MaxConcurrentReconciles: maxConcurrentPools}).
		WatchesRawSource(optional.Kind(mgr, kind, func(changed client.Object) []reconcile.Request {
			return []reconcile.Request{{NamespacedName: client.ObjectKeyFromObject(changed)}}
		})).
		Complete(r)
	if err != nil {
		return fmt.Errorf("add controller nodepool: %w", err)
	}
	return nil
}

type reconciler struct {
	client client.Client
	// live reads what the cache does not hold: objects in NodePools' namespaces.
	live    client.Reader
	options Options
}

// +kubebuilder:rbac:groups=hypershift.openshift.io,resources=nodepools,verbs=get;list;watch
// +kubebuilder:rbac:groups=hypershift.openshift.io,resources=nodepools/status,verbs=patch
// +kubebuilder:rbac:groups=apps,resources=deployments,resourceNames=operator,verbs=get

// Reconcile brings one NodePool up to date: gather, decide, Secret, status.
func (r *reconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(kind)
	if err := r.live.Get(ctx, request.NamespacedName, object); apierrors.IsNotFound(err) || meta.IsNoMatchError(err) {
		return reconcile.Result{}, nil
	} else if err != nil {
		return reconcile.Result{}, fmt.Errorf("read NodePool %s: %w", request, err)
	}
	pool, err := decode(object)
	if err != nil || object.GetDeletionTimestamp() != nil {
		return reconcile.Result{}, err
	}
	decided, waiting := r.judge(ctx, pool)
	err = r.publish(ctx, object, pool, decided, waiting)
	if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) {
		return reconcile.Result{RequeueAfter: conflictDelay}, nil
	}
	if err != nil {
		// What could not be read or written is tried again with growing delays.
		return reconcile.Result{}, err
	}
	return reconcile.Result{RequeueAfter: resyncInterval}, nil
}

// judge gathers and decides. The error says what could not be read for now.
func (r *reconciler) judge(ctx context.Context, pool *nodePool) (answer, error) {
	texts, problem, err := r.readConfig(ctx, pool)
	if err != nil || problem != "" {
		return answer{problem: problem}, err
	}
	payload, err := r.options.Payloads.Read(ctx, pool.Spec.Release.Image)
	if err != nil {
		return answer{}, fmt.Errorf("spec.release.image of NodePool %s/%s: %w", pool.Metadata.Namespace, pool.Metadata.Name, err)
	}
	return decide(facts{explicit: pool.Spec.OSImageStream.Name, payload: payload, texts: texts}), nil
}

// readConfig reads the ConfigMaps of spec.config, in its order. The problem is
// one that the user has to mend.
func (r *reconciler) readConfig(ctx context.Context, pool *nodePool) (texts []configText, problem string, err error) {
	for _, ref := range pool.Spec.Config {
		configMap := &corev1.ConfigMap{}
		key := client.ObjectKey{Namespace: pool.Metadata.Namespace, Name: ref.Name}
		if err := r.live.Get(ctx, key, configMap); apierrors.IsNotFound(err) {
			return nil, fmt.Sprintf("ConfigMap %s of spec.config does not exist; create it, or take it off the list", ref.Name), nil
		} else if err != nil {
			return nil, "", fmt.Errorf("read ConfigMap %s: %w", key, err)
		}
		texts = append(texts, configText{Name: ref.Name, Text: configMap.Data[keyConfig]})
	}
	return texts, "", nil
}

// kindDeployment is read unstructured, and so not kept in a cache.
var kindDeployment = schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Deployment"}

// hasOwner reports whether a hypershift-operator runs, whose the status is then.
func (r *reconciler) hasOwner(ctx context.Context) (bool, error) {
	deployment := &unstructured.Unstructured{}
	deployment.SetGroupVersionKind(kindDeployment)
	err := r.live.Get(ctx, client.ObjectKey{Namespace: "hypershift", Name: "operator"}, deployment)
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("look for the hypershift-operator: %w", err)
	}
	replicas, found, err := unstructured.NestedInt64(deployment.Object, "spec", "replicas")
	return err == nil && (!found || replicas > 0), nil
}
