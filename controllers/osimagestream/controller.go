package osimagestream

import (
	"context"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/imagemode/imagemode/api/machineconfiguration"
	"github.com/imagemode/imagemode/controllers/osimagestream/streams"
	"github.com/imagemode/imagemode/registry"
)

const (
	// conflictDelay is how long a write that met another writer waits before it
	// starts over. The cache has the newer object within milliseconds.
	conflictDelay = 200 * time.Millisecond
	// firstRetry and lastRetry bound the wait before a partial result is looked
	// at again; it doubles in between.
	firstRetry = 10 * time.Second
	lastRetry  = 10 * time.Minute
)

// Options of the controller.
type Options struct {
	// Namespace of the ConfigMaps and Secrets. Required.
	Namespace string
	// DefaultStream is the stream that becomes the default of a cluster that
	// has not chosen one and has no ClusterVersion, if it exists. Empty: the only
	// stream, else the first by name.
	DefaultStream string
	// ReleaseImage is read for its payload where there is no ClusterVersion.
	// Empty: none.
	ReleaseImage string
	// Pair of images of a cluster with one stream. Empty: none.
	Pair streams.Pair
	// GlobalPullSecret names the Secret in Namespace with the cluster's own
	// pull credentials. Empty: none.
	GlobalPullSecret string
	// Images makes the reader of images; nil: the one that asks registries.
	Images func(registry.Access) ImageReader
	// Backoff between attempts at one image; zero: about four seconds in all.
	Backoff wait.Backoff
}

func (o Options) withDefaults() Options {
	if o.Images == nil {
		o.Images = func(access registry.Access) ImageReader { return registryImages{access: access} }
	}
	if o.Backoff.Steps == 0 {
		o.Backoff = attemptBackoff
	}
	return o
}

// Add adds the controller to mgr. The manager's cache must hold ConfigMaps and
// Secrets of options.Namespace.
func Add(mgr ctrl.Manager, options Options) error {
	r := &reconciler{
		client:  mgr.GetClient(),
		events:  mgr.GetEventRecorder("imagemode-osimagestream"),
		options: options.withDefaults(),
		cache:   newImageCache(time.Now),
	}
	if err := r.watch(mgr).Complete(r); err != nil {
		return fmt.Errorf("add controller osimagestream: %w", err)
	}
	return nil
}

// object is the one object of this controller.
var object = reconcile.Request{NamespacedName: types.NamespacedName{Name: machineconfiguration.OSImageStreamName}}

// reconciler keeps OSImageStream cluster. One reconcile runs at a time.
type reconciler struct {
	client  client.Client
	events  events.EventRecorder
	options Options
	cache   *imageCache

	// reportAbsence logs once that there is no source: it is a state to be in,
	// not an error.
	reportAbsence sync.Once
	// lastDefault outlives a deletion of the object, which must not move pools
	// to another default.
	lastDefault string
	// retry is the wait before the next look at a partial result, due when it ends.
	retry time.Duration
	due   time.Time
	// announcedEnding is what was said in the last event about streams that will
	// go, announcedAbsence why there is no object.
	announcedEnding, announcedAbsence string
}

// +kubebuilder:rbac:groups=machineconfiguration.openshift.io,resources=osimagestreams,verbs=get;list;watch;create;patch
// +kubebuilder:rbac:groups=machineconfiguration.openshift.io,resources=osimagestreams/status,verbs=patch
// +kubebuilder:rbac:groups=machineconfiguration.openshift.io,resources=machineconfigs;machineconfigpools;machineosconfigs;controllerconfigs,verbs=get;list;watch
// +kubebuilder:rbac:groups=config.openshift.io,resources=clusterversions;infrastructures;proxies;imagedigestmirrorsets;imagetagmirrorsets,verbs=get;list;watch
// +kubebuilder:rbac:groups=config.openshift.io,resources=clusteroperators,verbs=get;create
// +kubebuilder:rbac:groups=config.openshift.io,resources=clusteroperators/status,verbs=patch
// +kubebuilder:rbac:groups=operator.openshift.io,resources=imagecontentsourcepolicies,verbs=get;list;watch
// +kubebuilder:rbac:groups="",namespace=openshift-machine-config-operator,resources=configmaps,verbs=get;list;watch;create;patch
// +kubebuilder:rbac:groups="",namespace=openshift-machine-config-operator,resources=secrets,verbs=get;list;watch
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch
// +kubebuilder:rbac:groups="",resources=events,verbs=create;patch

// Reconcile brings OSImageStream cluster to what the sources say: gather,
// discover, decide, write what differs.
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
	outcome, err := r.act(ctx, scope)
	if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) {
		return reconcile.Result{RequeueAfter: conflictDelay}, nil
	}
	if err != nil {
		return reconcile.Result{}, err
	}
	return reconcile.Result{RequeueAfter: r.nextLook(outcome)}, nil
}

// act reads the sources and writes what they say. The cache is written at the
// end and after a failure, too: it spares the next reconcile the registries.
func (r *reconciler) act(ctx context.Context, s *scope) (outcome, error) {
	access, cleanUp, err := s.wayIn.open()
	if err != nil {
		return outcome{}, err
	}
	defer cleanUp()
	r.loadCache(s)
	reader := newInspector(r.options.Images(access), r.cache, r.options.Backoff)
	found := r.discover(ctx, s, reader)
	if len(found.sources) == 0 && s.existing == nil {
		r.reportAbsence.Do(func() {
			log.FromContext(ctx).Info("no OS image streams: there is no source of them, so no pool can be rendered until there is one",
				"namespace", r.options.Namespace, "configMap", machineconfiguration.ConfigMapStreams)
		})
		return outcome{}, nil
	}
	decided := r.decide(s, found)
	err = r.publish(ctx, s, &decided, reader)
	observe(decided)
	if err == nil {
		err = r.writeCache(ctx, s)
	}
	return decided, err
}

// nextLook is when to look again: soon at first at what is not complete, seldom
// at what has problems, since an image may be pushed late. All else changes only
// when something does that is watched. Looks that came of such a change make the
// wait no longer.
func (r *reconciler) nextLook(outcome outcome) time.Duration {
	if outcome.isComplete() {
		r.retry = 0
		if len(outcome.Problems) > 0 || outcome.hasMissingImages {
			return lastRetry
		}
		return 0
	}
	now := r.cache.now()
	if r.retry == 0 || !now.Before(r.due) {
		r.retry = min(max(2*r.retry, firstRetry), lastRetry)
		r.due = now.Add(wait.Jitter(r.retry, 0.2))
	}
	return r.due.Sub(now)
}

// outcome is what the object should say. No streams: its status stays as it is.
type outcome struct {
	streams.Merged
	chosen streams.Default
	gaps   streams.Gaps
	next   *streams.Source
	// release is the release image that a complete result was made from.
	release string
	// overrides by digest: what MachineConfigs' images are.
	overrides map[string]streams.Override
	// hasUnknownTraits: images could not be asked what they can do.
	hasUnknownTraits bool
	// hasMissingImages: a MachineConfig names an image that does not exist.
	hasMissingImages bool
}

func (o outcome) isComplete() bool { return !o.gaps.IsPartial() && !o.hasUnknownTraits }

// decide turns what was gathered into what the object should say.
func (r *reconciler) decide(s *scope, found discovery) outcome {
	decided := outcome{Merged: streams.Merge(found.sources...), gaps: found.gaps, next: found.next}
	if s.existing != nil {
		decided.Merged = streams.KeepKnown(decided.Merged, s.existing.Status.AvailableStreams, streams.DecodeTraits(s.existing), found.gaps)
	}
	decided.Problems = append(decided.Problems, s.problems...)
	if found.hasPayload && !found.gaps.IsPartial() && !found.gaps.PayloadBroken {
		decided.release = r.releaseImage(s)
	}
	if len(decided.Streams) == 0 {
		decided.Problems = append(decided.Problems, streams.Problem{
			Source: "all sources",
			Reason: "no stream is left; what was known before is kept, and new streams come from ConfigMap " + machineconfiguration.ConfigMapStreams,
		})
		return decided
	}
	decided.chosen = streams.ResolveDefault(decided.Streams, r.candidates(s, found.gaps))
	if reason := decided.defaultProblem(); reason != "" {
		decided.Problems = append(decided.Problems, streams.Problem{Source: "OSImageStream cluster", Stream: decided.chosen.Gone, Reason: reason})
	}
	return decided
}

// defaultProblem says what is wrong with the default; empty: nothing.
func (o outcome) defaultProblem() string {
	const stay = "; pools that inherit the default stay as they are until "
	switch {
	case o.chosen.Gone != "" && o.gaps.IsPartial():
		return "spec.defaultStream names a stream that is not among those that could be read" + stay + "it can"
	case o.chosen.Gone != "":
		return "spec.defaultStream names a stream that no source has" + stay + "it names one that exists"
	case o.chosen.Name == "":
		return "no default can be chosen before all sources have been read; name one in spec.defaultStream, or with --default-stream"
	}
	return ""
}

// candidates for the default.
func (r *reconciler) candidates(s *scope, gaps streams.Gaps) streams.Candidates {
	candidates := streams.Candidates{
		Option: r.options.DefaultStream, Status: r.lastDefault, IsPartial: gaps.IsPartial(),
		Requested: s.platform.requested, Version: streams.BuiltinDefault(s.platform.installed),
	}
	if s.existing == nil {
		return candidates
	}
	candidates.Spec = s.existing.Spec.DefaultStream
	if s.existing.Status.DefaultStream != "" {
		candidates.Status = s.existing.Status.DefaultStream
	}
	return candidates
}
