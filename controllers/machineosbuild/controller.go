package machineosbuild

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"

	keys "github.com/imagemode/imagemode/api/machineconfiguration"
	imagemodev1alpha1 "github.com/imagemode/imagemode/api/v1alpha1"
	"github.com/imagemode/imagemode/controllers/optional"
	"github.com/imagemode/imagemode/controllers/readback"
	"github.com/imagemode/imagemode/controllers/rivals"
)

const (
	// defaultDeadline is more than any build seen takes, and ends one that hangs
	// within a working day.
	defaultDeadline = 2 * time.Hour
	// defaultPendingDeadline is more than an autoscaler takes for a node.
	defaultPendingDeadline = 30 * time.Minute
	// defaultConcurrentBuilds is a load that a registry and a few builder nodes
	// bear.
	defaultConcurrentBuilds = 5
	// defaultGlobalPullSecret is the copy of the cluster's pull secret that
	// OpenShift keeps in the namespace.
	defaultGlobalPullSecret = "global-pull-secret-copy"
	// conflictDelay is how long a write that met another writer, or an object
	// that is not in the cache yet, waits before it starts over.
	conflictDelay = 200 * time.Millisecond
	// defaultWorkers reconcile at the same time, of each kind: one more than wait, up
	// to readTimeout, for a registry that does not answer, and few enough that they do
	// not get into each other's way: with four, hundreds of builds at once take longer,
	// and each reconcile twice as long (make bench-controllers).
	defaultWorkers = 2
)

// DefaultHistory is how many builds are kept besides those in use.
var DefaultHistory = HistoryLimits{Succeeded: 5, Unsuccessful: 3}

// Options of the controllers.
type Options struct {
	// Namespace of Secrets, ConfigMaps and Jobs. Required.
	Namespace string
	// BuilderImage is the image with imagemode-builder. Required.
	BuilderImage string
	// AgentImage is an image, by digest, whose layers every image built gets: with
	// imagemode-agent as a service of the host. Empty: agents are pods.
	AgentImage string
	// BuilderPod is what the cluster wants otherwise in builder pods.
	BuilderPod BuilderPod
	// BuilderDeadline ends a build, all its attempts together. Zero: two hours.
	BuilderDeadline time.Duration
	// BuilderPendingDeadline ends a build whose pod cannot start. Zero: 30 minutes.
	BuilderPendingDeadline time.Duration
	// MaxConcurrentBuilds is how many builds run at a time. Zero: five.
	MaxConcurrentBuilds int
	// History is how many builds of a MachineOSConfig are kept. Nil: DefaultHistory.
	History *HistoryLimits
	// Prune says what happens to images that nothing refers to. Empty: they are
	// kept.
	Prune PruneMode
	// ClusterID tells this cluster's tags in shared repositories from others', at
	// most 63 of [a-z0-9]. Required where images are pruned.
	ClusterID string
	// NodePullSecret is the Secret that the nodes of all pools pull with. Empty:
	// GlobalPullSecret, where it exists.
	NodePullSecret string
	// GlobalPullSecret is the Secret with the cluster's own pull credentials. It
	// need not exist. Empty: global-pull-secret-copy.
	GlobalPullSecret string
	// Architecture of the images, by Go's name. Empty: the controller's own; a
	// cluster whose nodes are of several is not supported yet.
	Architecture string
	// BuildsOnly: something else takes nodes to the images.
	BuildsOnly bool
	// Workers reconcile at the same time, of each kind. Zero: two.
	Workers int
	// Images asks registries. Nil: the real ones.
	Images Images
}

// withDefaults fills in what may be left out.
func (o Options) withDefaults() (Options, error) {
	if o.Namespace == "" || o.BuilderImage == "" {
		return o, errors.New("controller machineosbuild: Namespace and BuilderImage are required")
	}
	o.Architecture = cmp.Or(o.Architecture, runtime.GOARCH)
	o.BuilderDeadline = cmp.Or(o.BuilderDeadline, defaultDeadline)
	o.BuilderPendingDeadline = cmp.Or(o.BuilderPendingDeadline, defaultPendingDeadline)
	o.MaxConcurrentBuilds = cmp.Or(o.MaxConcurrentBuilds, defaultConcurrentBuilds)
	o.Workers = cmp.Or(o.Workers, defaultWorkers)
	o.GlobalPullSecret = cmp.Or(o.GlobalPullSecret, defaultGlobalPullSecret)
	o.Prune = cmp.Or(o.Prune, KeepImages)
	if o.History == nil {
		o.History = &DefaultHistory
	}
	if o.Images == nil {
		o.Images = registries{architecture: o.Architecture}
	}
	if o.Prune != KeepImages && o.ClusterID == "" {
		return o, errors.New("controller machineosbuild: pruning images needs ClusterID")
	}
	return o, nil
}

// Add adds both controllers, and the pruner, to mgr. The manager's cache must
// hold the Secrets, ConfigMaps, Jobs and builder pods of options.Namespace.
func Add(mgr ctrl.Manager, options Options) error {
	options, err := options.withDefaults()
	if err != nil {
		return err
	}
	if err := addMetrics(mgr); err != nil {
		return fmt.Errorf("add the metrics of builds: %w", err)
	}
	platform := &platform{live: mgr.GetAPIReader()}
	configs, builds := newReconcilers(mgr, options, platform)
	if err := configs.addTo(mgr); err != nil {
		return fmt.Errorf("add controller machineosconfig: %w", err)
	}
	if err := builds.addTo(mgr); err != nil {
		return fmt.Errorf("add controller machineosbuild: %w", err)
	}
	if options.Prune == KeepImages {
		return nil
	}
	return mgr.Add(&pruner{client: mgr.GetClient(), images: options.Images, platform: platform, events: configs.events, options: options, now: time.Now})
}

func newReconcilers(mgr ctrl.Manager, options Options, platform *platform) (*configReconciler, *buildReconciler) {
	events := reporter{mgr.GetEventRecorder("imagemode-machineosbuild")}
	rivals := rivals.NewWatch(mgr.GetAPIReader(), options.Namespace, clock.RealClock{})
	cached := readback.New(mgr.GetClient())
	gatherer := gatherer{reader: cached, platform: platform, rivals: rivals, options: options, now: time.Now}
	configs := &configReconciler{
		client: cached, gatherer: gatherer, events: events, options: options, now: time.Now,
		watch: &imageWatch{images: options.Images, now: time.Now},
	}
	builds := &buildReconciler{
		client: cached, live: mgr.GetAPIReader(), gatherer: gatherer, events: events,
		images: options.Images, absent: &absence{}, queue: newQueue(options.MaxConcurrentBuilds), options: options, now: time.Now,
	}
	return configs, builds
}

// addMetrics registers what is counted, and what is read when it is scraped.
func addMetrics(mgr ctrl.Manager) error {
	if err := registerOnce(); err != nil {
		return err
	}
	var known prometheus.AlreadyRegisteredError
	if err := metrics.Registry.Register(collector{mgr.GetClient()}); err != nil && !errors.As(err, &known) {
		return err
	}
	return nil
}

// addTo watches everything that a plan depends on.
func (r *configReconciler) addTo(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).
		Named("machineosconfig").
		For(&mcfgv1.MachineOSConfig{}).
		Owns(&mcfgv1.MachineOSBuild{}).
		Watches(&mcfgv1.MachineConfigPool{}, r.enqueueWhere(func(config *mcfgv1.MachineOSConfig, pool client.Object) bool {
			return config.Spec.MachineConfigPool.Name == pool.GetName()
		})).
		Watches(&mcfgv1.MachineConfig{}, handler.EnqueueRequestsFromMapFunc(r.requestsForMachineConfig)).
		Watches(&corev1.Secret{}, r.enqueueWhere(func(config *mcfgv1.MachineOSConfig, secret client.Object) bool {
			return r.options.dependsOn(config, secret.GetName())
		})).
		Watches(&corev1.ConfigMap{}, r.enqueueWhere(func(_ *mcfgv1.MachineOSConfig, found client.Object) bool {
			return found.GetName() == keys.ConfigMapTrustBundle || found.GetName() == keys.ConfigMapYumRepos
		})).
		Watches(&corev1.Node{}, handler.EnqueueRequestsFromMapFunc(r.requestsForNode), builder.WithPredicates(predicate.LabelChangedPredicate{})).
		Watches(&imagemodev1alpha1.ImageRollout{}, r.enqueueWhere(func(config *mcfgv1.MachineOSConfig, rollout client.Object) bool {
			// Only a MachineOSConfig that is being deleted waits for it.
			return config.DeletionTimestamp != nil && config.Spec.MachineConfigPool.Name == rollout.GetName()
		})).
		WatchesRawSource(optional.Kind(mgr, kindControllerConfig, func(client.Object) []reconcile.Request {
			r.gatherer.platform.changed()
			return r.allConfigs(context.Background())
		})).
		WithOptions(controller.Options{MaxConcurrentReconciles: r.options.Workers}).
		Complete(r)
}

// allConfigs enqueues every MachineOSConfig. Their builds follow.
func (r *configReconciler) allConfigs(ctx context.Context) []reconcile.Request {
	var list mcfgv1.MachineOSConfigList
	if err := r.client.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return nil
	}
	var requests []reconcile.Request
	for i := range list.Items {
		requests = append(requests, requestFor(list.Items[i].Name))
	}
	return requests
}

// dependsOn reports whether a plan of the MachineOSConfig looks at a Secret.
func (o *Options) dependsOn(config *mcfgv1.MachineOSConfig, secret string) bool {
	s := scope{config: config, nodePullSecret: o.NodePullSecret, globalPullSecret: o.GlobalPullSecret}
	return slices.Contains(s.secretNames(), secret) || secret == keys.SecretGPGKeys ||
		slices.Contains(entitlementNames(config.Spec.MachineConfigPool.Name), secret)
}

// enqueueWhere enqueues the MachineOSConfigs that an object concerns.
func (r *configReconciler) enqueueWhere(concerns func(*mcfgv1.MachineOSConfig, client.Object) bool) handler.EventHandler {
	return handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, object client.Object) []reconcile.Request {
		var list mcfgv1.MachineOSConfigList
		if err := r.client.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
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

// requestsForMachineConfig enqueues the MachineOSConfigs of the pools that want this
// rendered config, or one that this MachineConfig is a part of.
func (r *configReconciler) requestsForMachineConfig(ctx context.Context, changed client.Object) []reconcile.Request {
	var configs mcfgv1.MachineOSConfigList
	if err := r.client.List(ctx, &configs, client.UnsafeDisableDeepCopy); err != nil {
		return nil
	}
	var requests []reconcile.Request
	for i := range configs.Items {
		pool, err := find[mcfgv1.MachineConfigPool](ctx, r.client, "", configs.Items[i].Spec.MachineConfigPool.Name)
		if err == nil && pool != nil && isMadeOf(&pool.Spec.Configuration, changed.GetName()) {
			requests = append(requests, requestFor(configs.Items[i].Name))
		}
	}
	return requests
}

// isMadeOf reports whether a MachineConfig is a pool's rendered config or part of it.
func isMadeOf(configuration *mcfgv1.MachineConfigPoolStatusConfiguration, name string) bool {
	return configuration.Name == name ||
		slices.ContainsFunc(configuration.Source, func(source corev1.ObjectReference) bool { return source.Name == name })
}

// addTo watches a build's Job, its pods, and what a build may wait for.
func (r *buildReconciler) addTo(mgr ctrl.Manager) error {
	// A build that ended wakes those that wait for a turn.
	turns := make(chan event.GenericEvent)
	r.queue.wake = func(builds ...string) {
		go func() {
			for _, name := range builds {
				turns <- event.GenericEvent{Object: &mcfgv1.MachineOSBuild{ObjectMeta: metav1.ObjectMeta{Name: name}}}
			}
		}()
	}
	return ctrl.NewControllerManagedBy(mgr).
		Named("machineosbuild").
		For(&mcfgv1.MachineOSBuild{}).
		Owns(&batchv1.Job{}).
		Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(r.requestsForPod)).
		Watches(&mcfgv1.MachineOSConfig{}, handler.EnqueueRequestsFromMapFunc(r.requestsForConfig)).
		Watches(&corev1.Secret{}, handler.EnqueueRequestsFromMapFunc(r.requestsForSecret)).
		Watches(&corev1.ConfigMap{}, handler.EnqueueRequestsFromMapFunc(r.requestsForConfigMap)).
		Watches(&mcfgv1.MachineOSBuild{}, handler.EnqueueRequestsFromMapFunc(r.requestsForTwin)).
		WatchesRawSource(source.Channel(turns, &handler.EnqueueRequestForObject{})).
		WithOptions(controller.Options{MaxConcurrentReconciles: r.options.Workers}).
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
	builds, err := r.gatherer.buildsOf(ctx, config.Name, config.UID)
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

// requestsForTwin enqueues the builds that wait for another one of the same
// image, when that has ended.
func (r *buildReconciler) requestsForTwin(ctx context.Context, object client.Object) []reconcile.Request {
	ended, ok := object.(*mcfgv1.MachineOSBuild)
	if !ok || !isTerminal(ended) {
		return nil
	}
	var list mcfgv1.MachineOSBuildList
	if err := r.client.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return nil
	}
	var requests []reconcile.Request
	for i := range list.Items {
		if isTwin(ended, &list.Items[i]) {
			requests = append(requests, requestFor(list.Items[i].Name))
		}
	}
	return requests
}

// requestsForSecret enqueues the builds that may wait for a Secret, or fail for want
// of another content.
func (r *buildReconciler) requestsForSecret(ctx context.Context, secret client.Object) []reconcile.Request {
	return r.requestsWhere(ctx, func(config *mcfgv1.MachineOSConfig) bool { return r.options.dependsOn(config, secret.GetName()) })
}

// requestsForConfigMap enqueues the builds that may fail for want of a certificate.
func (r *buildReconciler) requestsForConfigMap(ctx context.Context, found client.Object) []reconcile.Request {
	if found.GetName() != keys.ConfigMapTrustBundle {
		return nil
	}
	return r.requestsWhere(ctx, func(*mcfgv1.MachineOSConfig) bool { return true })
}

// requestsWhere enqueues the builds, of some MachineOSConfigs, that have not ended.
func (r *buildReconciler) requestsWhere(ctx context.Context, concerns func(*mcfgv1.MachineOSConfig) bool) []reconcile.Request {
	var configs mcfgv1.MachineOSConfigList
	if err := r.client.List(ctx, &configs, client.UnsafeDisableDeepCopy); err != nil {
		return nil
	}
	var requests []reconcile.Request
	for i := range configs.Items {
		if concerns(&configs.Items[i]) {
			requests = append(requests, r.requestsForConfig(ctx, &configs.Items[i])...)
		}
	}
	return requests
}

func requestFor(name string) reconcile.Request {
	return reconcile.Request{NamespacedName: types.NamespacedName{Name: name}}
}

// resultFor turns an error into what happens next: a conflict, an object of the
// same name, or a cache that is late is a quiet second try; everything else is
// retried with backoff, and logged.
func resultFor(err error) (ctrl.Result, error) {
	if apierrors.IsConflict(err) || errors.Is(err, errLeftover) || errors.Is(err, readback.ErrLate) {
		return ctrl.Result{RequeueAfter: conflictDelay}, nil
	}
	return ctrl.Result{}, err
}
