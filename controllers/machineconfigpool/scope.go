package machineconfigpool

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/coreos/ignition/v2/config/v3_6/types"
	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	apitypes "k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/imagemode/imagemode/api/machineconfiguration"
	"github.com/imagemode/imagemode/api/v1alpha1"
	"github.com/imagemode/imagemode/controllers/osimagestream/streams"
	"github.com/imagemode/imagemode/ignition"
)

// scope is everything that one reconcile of a pool looks at.
type scope struct {
	pool *mcfgv1.MachineConfigPool
	// inherited is the worker pool, for a custom pool; else nil, and nil where
	// there is no worker pool.
	inherited *mcfgv1.MachineConfigPool
	configs   []mcfgv1.MachineConfig
	// streams is OSImageStream cluster; nil: it does not exist.
	streams *mcfgv1.OSImageStream
	// isUnlabelled: nobody reads the labels of OS images here. isWithoutStreams: OS
	// images come from MachineConfigs alone, and what a pool says of streams is
	// passed over.
	isUnlabelled, isWithoutStreams bool
	// osConfig is the pool's MachineOSConfig; nil: none.
	osConfig *mcfgv1.MachineOSConfig
	// builds of all pools: any of them may keep a rendered config.
	builds   []mcfgv1.MachineOSBuild
	members  []*corev1.Node
	contests []contest
	images   map[string]*v1alpha1.NodeImage
	// leftover names, by node, the rendered config in an image that a node still
	// runs although no rollout takes it anywhere.
	leftover map[string]string
	// trustBundle is that of the site, in PEM; empty: there is none.
	trustBundle string
	// rollout is ImageRollout/<pool>; nil: it does not exist.
	rollout *v1alpha1.ImageRollout
}

// gather reads it from the cache, without copies but for the pool: with hundreds
// of pools, each with its rendered configs, copying everything for each of them
// would take minutes. What is read must not be changed. The error of a pool that
// does not exist is the client's NotFound.
func (r *poolReconciler) gather(ctx context.Context, name string) (*scope, error) {
	var pools mcfgv1.MachineConfigPoolList
	var configs mcfgv1.MachineConfigList
	var osConfigs mcfgv1.MachineOSConfigList
	var builds mcfgv1.MachineOSBuildList
	for kind, list := range map[string]client.ObjectList{
		"MachineConfigPools": &pools, "MachineConfigs": &configs, "MachineOSConfigs": &osConfigs,
		"MachineOSBuilds": &builds,
	} {
		if err := r.client.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
			return nil, fmt.Errorf("list %s: %w", kind, err)
		}
	}
	pool := findPool(pools.Items, name)
	if pool == nil {
		return nil, apierrors.NewNotFound(mcfgv1.Resource("machineconfigpools"), name)
	}
	s := &scope{
		pool: pool.DeepCopy(), configs: configs.Items, builds: builds.Items, osConfig: osConfigOf(name, osConfigs.Items),
		isUnlabelled: r.options.WithoutStreams || r.options.StreamsElsewhere, isWithoutStreams: r.options.WithoutStreams,
	}
	if roleOf(pool) == custom {
		s.inherited = findPool(pools.Items, workerPool)
	}
	nodes, err := r.candidates(ctx, pool)
	if err != nil {
		return nil, err
	}
	s.members, s.contests = r.claims.of(pools.Items).membersOf(name, nodes)
	return s, r.gatherTarget(ctx, s)
}

// candidates are the nodes that a pool selects, or that have its label.
func (r *poolReconciler) candidates(ctx context.Context, pool *mcfgv1.MachineConfigPool) ([]corev1.Node, error) {
	selectors := []labels.Selector{labels.SelectorFromSet(nodesOf(pool.Name).MatchLabels)}
	if claim, isOne := claimOf(pool); isOne {
		selectors = append(selectors, claim.selector)
	}
	var found []corev1.Node
	isThere := map[string]bool{}
	for _, selector := range selectors {
		var nodes corev1.NodeList
		if err := r.client.List(ctx, &nodes, client.MatchingLabelsSelector{Selector: selector}, client.UnsafeDisableDeepCopy); err != nil {
			return nil, fmt.Errorf("list Nodes: %w", err)
		}
		for i := range nodes.Items {
			if !isThere[nodes.Items[i].Name] {
				isThere[nodes.Items[i].Name] = true
				found = append(found, nodes.Items[i])
			}
		}
	}
	// The same facts give the same messages.
	slices.SortFunc(found, func(a, b corev1.Node) int { return strings.Compare(a.Name, b.Name) })
	return found, nil
}

// gatherTarget reads the single objects: stream, rollout and node images.
func (r *poolReconciler) gatherTarget(ctx context.Context, s *scope) error {
	var err error
	if !r.options.WithoutStreams {
		if s.streams, err = get(ctx, r.client, machineconfiguration.OSImageStreamName, &mcfgv1.OSImageStream{}); err != nil {
			return err
		}
	}
	if s.rollout, err = get(ctx, r.client, s.pool.Name, &v1alpha1.ImageRollout{}); err != nil {
		return err
	}
	bundle := &corev1.ConfigMap{}
	key := client.ObjectKey{Namespace: r.options.Namespace, Name: machineconfiguration.ConfigMapTrustBundle}
	if err := r.client.Get(ctx, key, bundle); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("read ConfigMap %s: %w", key.Name, err)
	}
	s.trustBundle = bundle.Data[machineconfiguration.KeyTrustBundle]
	s.images = map[string]*v1alpha1.NodeImage{}
	for _, node := range s.members {
		if s.images[node.Name], err = get(ctx, r.client, node.Name, &v1alpha1.NodeImage{}); err != nil {
			return err
		}
	}
	return r.gatherLeftovers(ctx, s)
}

// gatherLeftovers looks, where the pool has no image, at what its nodes were last
// known to run.
func (r *poolReconciler) gatherLeftovers(ctx context.Context, s *scope) error {
	if s.rollout != nil && s.rollout.Spec.Image != "" {
		return nil
	}
	s.leftover = map[string]string{}
	for _, node := range s.members {
		shown, err := get(ctx, r.client, node.Name, &mcfgv1.MachineConfigNode{})
		if err != nil {
			return err
		}
		if shown != nil && shown.Status.ConfigVersion != nil {
			s.leftover[node.Name] = shown.Status.ConfigVersion.Current
		}
	}
	return nil
}

// get reads a cluster-scoped object; nil where there is none.
func get[T client.Object](ctx context.Context, reader client.Reader, name string, object T) (T, error) {
	var none T
	err := reader.Get(ctx, apitypes.NamespacedName{Name: name}, object)
	switch {
	case apierrors.IsNotFound(err):
		return none, nil
	case err != nil:
		return none, fmt.Errorf("read %T %s: %w", object, name, err)
	}
	return object, nil
}

func findPool(pools []mcfgv1.MachineConfigPool, name string) *mcfgv1.MachineConfigPool {
	i := slices.IndexFunc(pools, func(pool mcfgv1.MachineConfigPool) bool { return pool.Name == name })
	if i < 0 {
		return nil
	}
	return &pools[i]
}

// osConfigOf returns the MachineOSConfig of a pool. The API allows one of the
// pool's name; objects from before that rule may have another, and then the
// first by name counts.
func osConfigOf(pool string, osConfigs []mcfgv1.MachineOSConfig) *mcfgv1.MachineOSConfig {
	var found *mcfgv1.MachineOSConfig
	for i := range osConfigs {
		osConfig := &osConfigs[i]
		if osConfig.Spec.MachineConfigPool.Name != pool {
			continue
		}
		if osConfig.Name == pool {
			return osConfig
		}
		if found == nil || osConfig.Name < found.Name {
			found = osConfig
		}
	}
	return found
}

// resolveStream returns the pool's stream.
func (s *scope) resolveStream() (streams.Resolution, error) {
	request := streams.Request{Explicit: s.pool.Spec.OSImageStream.Name}
	if s.inherited != nil {
		request.Worker = s.inherited.Spec.OSImageStream.Name
	}
	return streams.Resolve(s.streams, request)
}

// render works out the pool's wanted config from the scope.
func (s *scope) render() (*rendered, error) { return s.renderWith(&memo{}) }

// renderWith takes it from memory where nothing has changed.
func (s *scope) renderWith(memory *memo) (*rendered, error) {
	sources, err := selectConfigs(s.pool, s.inherited, s.configs)
	if err == nil {
		err = checkNodeSelector(s.pool)
	}
	if err != nil {
		return nil, err
	}
	return memory.get(s.pool.Name, s.renderKey(sources), func() (*rendered, error) { return s.renderSources(sources) })
}

func (s *scope) renderSources(sources []*mcfgv1.MachineConfig) (*rendered, error) {
	stream, streamErr := s.resolveStream()
	explicit := s.pool.Spec.OSImageStream.Name
	if s.isWithoutStreams {
		explicit = ""
	}
	if err := checkFields(sources); err != nil {
		return nil, err
	}
	images, err := chooseImages(sources, explicit, stream, streamErr)
	if err != nil {
		return nil, err
	}
	wanted, err := render(s.pool.Name, apart(sources), images)
	if err != nil {
		return nil, err
	}
	if wanted.live, err = liveOf(wanted, s.trustBundle); err != nil {
		return nil, err
	}
	if err := s.checkRuntime(wanted); err != nil {
		return nil, err
	}
	wanted.ignition = types.Config{} // read, and large
	return wanted, nil
}

// apart copies MachineConfigs out of the list of all, which would else be kept as
// long as any of them.
func apart(sources []*mcfgv1.MachineConfig) []*mcfgv1.MachineConfig {
	own := make([]*mcfgv1.MachineConfig, len(sources))
	for i, source := range sources {
		copied := *source
		own[i] = &copied
	}
	return own
}

// presentConfig is what spec.configuration names, whoever rendered it; nil while
// that is not there.
func (s *scope) presentConfig() (*rendered, error) {
	name := s.pool.Spec.Configuration.Name
	config := findConfig(s.configs, name)
	if config == nil {
		return nil, nil
	}
	wanted := &rendered{name: name, spec: config.Spec}
	for _, source := range s.pool.Spec.Configuration.Source {
		if found := findConfig(s.configs, source.Name); found != nil {
			wanted.sources = append(wanted.sources, found)
		}
	}
	var err error
	if wanted.ignition, err = ignition.Parse(config.Spec.Config.Raw); err != nil {
		return nil, &renderError{reason: reasonInvalidConfig, message: fmt.Sprintf("MachineConfig %s: spec.config: %v", name, err)}
	}
	wanted.live, err = liveOf(wanted, s.trustBundle)
	return wanted, err
}

func findConfig(configs []mcfgv1.MachineConfig, name string) *mcfgv1.MachineConfig {
	i := slices.IndexFunc(configs, func(config mcfgv1.MachineConfig) bool { return config.Name == name })
	if i < 0 {
		return nil
	}
	return &configs[i]
}

// isOnPresentImage says whether a config has the OS image of the one that the pool
// wants now.
func (s *scope) isOnPresentImage(wanted *rendered) bool {
	present := findConfig(s.configs, s.pool.Spec.Configuration.Name)
	return present != nil && present.Spec.OSImageURL == wanted.spec.OSImageURL
}

// target is the image that the pool's nodes are to run.
func (s *scope) target() target {
	if s.osConfig == nil {
		return targetLeft(s.rollout, s.builds, s.pool.Spec.Configuration.Name)
	}
	target := targetOf(s.osConfig, s.builds, s.pool.Spec.Configuration.Name)
	target.last = s.lastImage()
	return target
}

// observe collects what the status is made of.
func (s *scope) observe(wanted *rendered, renderErr error, target target, now metav1.Time) observation {
	observed := observation{
		pool: s.pool, rendered: wanted, renderErr: renderErr, streams: s.streams,
		target: target, contests: s.contests, rollout: s.rollout, isForgotten: s.isForgotten(), now: now,
	}
	stream, err := s.resolveStream()
	var unknown *streams.UnknownStreamError
	if observed.stream = stream.Name; errors.As(err, &unknown) {
		observed.stream = unknown.Stream // its problems tell why it does not exist
	}
	var wait *waitError
	if errors.As(renderErr, &wait) {
		observed.renderErr, observed.isUnsettled, observed.awaits = nil, true, wait.message
	}
	for _, node := range s.members {
		state := stateOf(node, s.images[node.Name], s.rollout, target)
		state.leftover = s.leftover[node.Name]
		observed.nodes = append(observed.nodes, state)
	}
	return observed
}
