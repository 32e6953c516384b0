package machineosbuild

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"

	keys "github.com/imagemode/imagemode/api/machineconfiguration"
)

const (
	// defaultDeadline is more than any build seen takes, and ends one that hangs
	// within a working day.
	defaultDeadline = 2 * time.Hour
	// defaultGlobalPullSecret is the copy of the cluster's pull secret that
	// OpenShift keeps in the namespace.
	defaultGlobalPullSecret = "global-pull-secret-copy"
	// conflictDelay is how long a write that met another writer, or an object
	// that is not in the cache yet, waits before it starts over.
	conflictDelay = 200 * time.Millisecond
	// registryDelay is how long a registry that refuses or does not answer is
	// left alone.
	registryDelay = time.Minute
	// workers reconcile at the same time. A look-up in a registry keeps one busy,
	// up to readTimeout.
	workers = 4
)

// Options of the controllers.
type Options struct {
	// Namespace of Secrets, ConfigMaps and Jobs. Required.
	Namespace string
	// BuilderImage is the image with imagemode-builder. Required.
	BuilderImage string
	// BuilderNodeSelector and BuilderTolerations say where builder pods may run,
	// besides nodes of Architecture.
	BuilderNodeSelector map[string]string
	BuilderTolerations  []corev1.Toleration
	// BuilderDeadline ends a build, all its attempts together. Zero: two hours.
	BuilderDeadline time.Duration
	// NodePullSecret is the Secret that the nodes of all pools pull with. Empty:
	// GlobalPullSecret, where it exists.
	NodePullSecret string
	// GlobalPullSecret is the Secret with the cluster's own pull credentials. It
	// need not exist. Empty: global-pull-secret-copy.
	GlobalPullSecret string
	// Architecture of the images, by Go's name. Empty: the controller's own; a
	// cluster whose nodes are of several is not supported yet.
	Architecture string
	// Images looks images up. Nil: in the registries.
	Images ImageReader
}

// withDefaults fills in what may be left out.
func (o Options) withDefaults() (Options, error) {
	if o.Namespace == "" || o.BuilderImage == "" {
		return o, errors.New("controller machineosbuild: Namespace and BuilderImage are required")
	}
	if o.Architecture == "" {
		o.Architecture = runtime.GOARCH
	}
	if o.BuilderDeadline == 0 {
		o.BuilderDeadline = defaultDeadline
	}
	if o.GlobalPullSecret == "" {
		o.GlobalPullSecret = defaultGlobalPullSecret
	}
	if o.Images == nil {
		o.Images = registryReader{architecture: o.Architecture}
	}
	return o, nil
}

// Add adds both controllers to mgr. The manager's cache must hold the Secrets,
// ConfigMaps, Jobs and builder pods of options.Namespace.
func Add(mgr ctrl.Manager, options Options) error {
	options, err := options.withDefaults()
	if err != nil {
		return err
	}
	events := reporter{mgr.GetEventRecorder("imagemode-machineosbuild")}
	gatherer := gatherer{reader: mgr.GetClient(), options: options}
	configs := &configReconciler{
		client: mgr.GetClient(), gatherer: gatherer, events: events,
		pulls: pullChecker{images: options.Images}, now: time.Now,
	}
	builds := &buildReconciler{
		client: mgr.GetClient(), live: mgr.GetAPIReader(), gatherer: gatherer, events: events,
		images: options.Images, options: options, now: time.Now,
	}
	if err := configs.addTo(mgr, options); err != nil {
		return fmt.Errorf("add controller machineosconfig: %w", err)
	}
	if err := builds.addTo(mgr); err != nil {
		return fmt.Errorf("add controller machineosbuild: %w", err)
	}
	return nil
}

// addTo watches everything that a plan depends on.
func (r *configReconciler) addTo(mgr ctrl.Manager, options Options) error {
	return ctrl.NewControllerManagedBy(mgr).
		Named("machineosconfig").
		For(&mcfgv1.MachineOSConfig{}).
		Owns(&mcfgv1.MachineOSBuild{}).
		Watches(&mcfgv1.MachineConfigPool{}, r.enqueueWhere(func(config *mcfgv1.MachineOSConfig, pool client.Object) bool {
			return config.Spec.MachineConfigPool.Name == pool.GetName()
		})).
		Watches(&mcfgv1.MachineConfig{}, handler.EnqueueRequestsFromMapFunc(r.requestsForRendered)).
		Watches(&corev1.Secret{}, r.enqueueWhere(func(config *mcfgv1.MachineOSConfig, secret client.Object) bool {
			s := scope{config: config, nodePullSecret: options.NodePullSecret, globalPullSecret: options.GlobalPullSecret}
			return slices.Contains(s.secretNames(), secret.GetName())
		})).
		Watches(&corev1.ConfigMap{}, r.enqueueWhere(func(_ *mcfgv1.MachineOSConfig, bundle client.Object) bool {
			return bundle.GetName() == keys.ConfigMapTrustBundle
		})).
		WithOptions(controller.Options{MaxConcurrentReconciles: workers}).
		Complete(r)
}

// enqueueWhere enqueues the MachineOSConfigs that an object concerns.
func (r *configReconciler) enqueueWhere(concerns func(*mcfgv1.MachineOSConfig, client.Object) bool) handler.EventHandler {
	return handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, object client.Object) []reconcile.Request {
		var list mcfgv1.MachineOSConfigList
		if err := r.client.List(ctx, &list); err != nil {
			// The cache is read: this does not happen once it has started.
			return nil
		}
		var requests []reconcile.Request
		for i := range list.Items {
			if concerns(&list.Items[i], object) {
				requests = append(requests, requestFor(list.Items[i].Name))
			}
		}
		return requests
	})
}

// requestsForRendered enqueues the MachineOSConfigs of the pools that want this
// MachineConfig.
func (r *configReconciler) requestsForRendered(ctx context.Context, rendered client.Object) []reconcile.Request {
	var configs mcfgv1.MachineOSConfigList
	if err := r.client.List(ctx, &configs); err != nil {
		return nil
	}
	var requests []reconcile.Request
	for i := range configs.Items {
		pool, err := find[mcfgv1.MachineConfigPool](ctx, r.client, "", configs.Items[i].Spec.MachineConfigPool.Name)
		if err == nil && pool != nil && pool.Spec.Configuration.Name == rendered.GetName() {
			requests = append(requests, requestFor(configs.Items[i].Name))
		}
	}
	return requests
}

// addTo watches a build's Job, its pods, and what a build may wait for.
func (r *buildReconciler) addTo(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).
		Named("machineosbuild").
		For(&mcfgv1.MachineOSBuild{}).
		Owns(&batchv1.Job{}).
		Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(r.requestsForPod)).
		Watches(&mcfgv1.MachineOSConfig{}, handler.EnqueueRequestsFromMapFunc(r.requestsForConfig)).
		Watches(&corev1.Secret{}, handler.EnqueueRequestsFromMapFunc(r.requestsForSecret)).
		WithOptions(controller.Options{MaxConcurrentReconciles: workers}).
		Complete(r)
}

// requestsForPod enqueues the build that a builder pod works for.
func (r *buildReconciler) requestsForPod(ctx context.Context, pod client.Object) []reconcile.Request {
	owner := metav1.GetControllerOf(pod)
	if owner == nil || owner.Kind != "Job" || pod.GetNamespace() != r.options.Namespace {
		return nil
	}
	job, err := find[batchv1.Job](ctx, r.client, pod.GetNamespace(), owner.Name)
	if err != nil || job == nil || job.UID != owner.UID {
		return nil
	}
	if build := metav1.GetControllerOf(job); build != nil && build.Kind == "MachineOSBuild" {
		return []reconcile.Request{requestFor(build.Name)}
	}
	return nil
}

// requestsForConfig enqueues the builds of a MachineOSConfig that have not
// ended.
func (r *buildReconciler) requestsForConfig(ctx context.Context, object client.Object) []reconcile.Request {
	config, ok := object.(*mcfgv1.MachineOSConfig)
	if !ok {
		return nil
	}
	builds, err := r.gatherer.buildsOf(ctx, config)
	if err != nil {
		return nil
	}
	var requests []reconcile.Request
	for i := range builds {
		if !isTerminal(&builds[i]) {
			requests = append(requests, requestFor(builds[i].Name))
		}
	}
	return requests
}

// requestsForSecret enqueues the builds that may wait for a Secret.
func (r *buildReconciler) requestsForSecret(ctx context.Context, secret client.Object) []reconcile.Request {
	var configs mcfgv1.MachineOSConfigList
	if err := r.client.List(ctx, &configs); err != nil {
		return nil
	}
	var requests []reconcile.Request
	for i := range configs.Items {
		if s := (scope{config: &configs.Items[i]}); slices.Contains(s.secretNames(), secret.GetName()) {
			requests = append(requests, r.requestsForConfig(ctx, &configs.Items[i])...)
		}
	}
	return requests
}

func requestFor(name string) reconcile.Request {
	return reconcile.Request{NamespacedName: types.NamespacedName{Name: name}}
}

// resultFor turns an error into what happens next: a conflict, or an object of
// the same name, is a quiet second try; everything else is retried with
// backoff, and logged.
func resultFor(err error) (ctrl.Result, error) {
	if apierrors.IsConflict(err) || errors.Is(err, errLeftover) {
		return ctrl.Result{RequeueAfter: conflictDelay}, nil
	}
	return ctrl.Result{}, err
}
