package osimagestream

import (
	"context"
	"fmt"
	"slices"
	"strings"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/imagemode/imagemode/api/machineconfiguration"
	"github.com/imagemode/imagemode/controllers/osimagestream/streams"
)

// scope is everything one reconcile looks at in the cluster.
type scope struct {
	// existing is OSImageStream cluster; nil where it does not exist.
	existing *mcfgv1.OSImageStream
	// configMaps by name: those of inputConfigMaps, and the cache; nil: absent.
	configMaps map[string]*corev1.ConfigMap
	platform   platform
	// wishes of the pools by name.
	wishes map[string]streams.Request
	// overrides are images by digest that MachineConfigs name, each once.
	overrides []string
	// wayIn to the registries, and what of it is not right.
	wayIn    wayIn
	problems []streams.Problem
}

// inputConfigMaps are read, and watched.
var inputConfigMaps = []string{
	machineconfiguration.ConfigMapStreams, machineconfiguration.ConfigMapOSImageURL,
	machineconfiguration.ConfigMapPayload, machineconfiguration.ConfigMapTrustBundle,
}

// gather reads the object, the sources and the way to registries.
func (r *reconciler) gather(ctx context.Context) (*scope, error) {
	s := &scope{configMaps: map[string]*corev1.ConfigMap{}}
	existing, err := read(ctx, r.client, object.NamespacedName, &mcfgv1.OSImageStream{})
	if err != nil {
		return nil, err
	}
	s.existing = existing
	for _, name := range append(slices.Clone(inputConfigMaps), machineconfiguration.ConfigMapImageLabels) {
		key := types.NamespacedName{Namespace: r.options.Namespace, Name: name}
		if s.configMaps[name], err = read(ctx, r.client, key, &corev1.ConfigMap{}); err != nil {
			return nil, err
		}
	}
	if s.platform, err = readPlatform(ctx, r.client); err != nil {
		return nil, err
	}
	var configs mcfgv1.MachineConfigList
	if err := r.client.List(ctx, &configs, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list MachineConfigs: %w", err)
	}
	var pools mcfgv1.MachineConfigPoolList
	if err := r.client.List(ctx, &pools); err != nil {
		return nil, fmt.Errorf("list MachineConfigPools: %w", err)
	}
	s.wishes = wishesOf(pools.Items, configs.Items)
	s.gatherOverrides(pools.Items, configs.Items)
	return s, r.gatherWayIn(ctx, s)
}

// gatherOverrides takes the images that MachineConfigs name, as many as may be.
func (s *scope) gatherOverrides(pools []mcfgv1.MachineConfigPool, configs []mcfgv1.MachineConfig) {
	s.overrides = overridesOf(pools, configs)
	if all := len(s.overrides); all > streams.MaxOverrides {
		s.overrides = s.overrides[:streams.MaxOverrides]
		s.report("MachineConfigs", fmt.Errorf("they name %d OS images, and the labels of %d are read, of those that pools run first", all, streams.MaxOverrides))
	}
}

// read reads an object; nil where it does not exist.
func read[T client.Object](ctx context.Context, reader client.Reader, key types.NamespacedName, object T) (T, error) {
	var none T
	err := reader.Get(ctx, key, object)
	switch {
	case apierrors.IsNotFound(err):
		return none, nil
	case err != nil:
		return none, fmt.Errorf("read %T %s: %w", object, key, err)
	}
	return object, nil
}

// gatherWayIn collects credentials, certificates, mirrors and proxy. What is
// not right becomes a problem: most images may be had without it.
func (r *reconciler) gatherWayIn(ctx context.Context, s *scope) error {
	secrets, err := r.pullSecrets(ctx)
	if err != nil {
		return err
	}
	credentials, err := readCredentials(secrets)
	if err != nil {
		s.report("credentials", err)
	}
	mirrors, err := writeRegistriesConf(s.platform.mirrors)
	if err != nil {
		s.report("mirrors", err)
	}
	trust := ""
	if bundle := s.configMaps[machineconfiguration.ConfigMapTrustBundle]; bundle != nil {
		trust = bundle.Data[machineconfiguration.KeyTrustBundle]
	}
	s.wayIn = wayIn{
		credentials:    credentials,
		trustBundle:    joinPEM(s.platform.trustBundle, trust),
		hostBundles:    s.platform.hostBundles,
		registriesConf: mirrors,
		proxy:          s.platform.proxy,
	}
	return nil
}

func (s *scope) report(source string, err error) {
	s.problems = append(s.problems, streams.Problem{Source: source, Reason: err.Error()})
}

// pullSecrets are the cluster's own pull secret, and those that MachineOSConfigs
// pull base images with: on a cluster without the former they are what the
// registry of the base images takes. Those that do not exist are left out.
func (r *reconciler) pullSecrets(ctx context.Context) ([]corev1.Secret, error) {
	names := []string{r.options.GlobalPullSecret}
	var osConfigs mcfgv1.MachineOSConfigList
	if err := r.client.List(ctx, &osConfigs); err != nil {
		return nil, fmt.Errorf("list MachineOSConfigs: %w", err)
	}
	slices.SortFunc(osConfigs.Items, func(a, b mcfgv1.MachineOSConfig) int { return strings.Compare(a.Name, b.Name) })
	for _, osConfig := range osConfigs.Items {
		if ref := osConfig.Spec.BaseImagePullSecret; ref != nil {
			names = append(names, ref.Name)
		}
	}
	var secrets []corev1.Secret
	taken := map[string]bool{"": true}
	for _, name := range names {
		if taken[name] {
			continue
		}
		taken[name] = true
		secret, err := read(ctx, r.client, types.NamespacedName{Namespace: r.options.Namespace, Name: name}, &corev1.Secret{})
		if err != nil {
			return nil, err
		}
		if secret != nil {
			secrets = append(secrets, *secret)
		}
	}
	return secrets, nil
}

// wishesOf returns which stream each pool asks for. A pool whose OS image a
// MachineConfig names has no use for one.
func wishesOf(pools []mcfgv1.MachineConfigPool, configs []mcfgv1.MachineConfig) map[string]streams.Request {
	isOverridden := map[string]bool{}
	for i := range configs {
		isOverridden[configs[i].Name] = configs[i].Annotations[machineconfiguration.AnnotationOSImageURLOverridden] == "true"
	}
	wishes := streams.Requests(pools)
	for i := range pools {
		if isOverridden[pools[i].Spec.Configuration.Name] {
			delete(wishes, pools[i].Name)
		}
	}
	return wishes
}

// overridesOf lists the OS images that MachineConfigs name by digest: those that
// count for pools, the last that each selects, before all others, so that
// MachineConfigs that nobody uses crowd none of them out.
func overridesOf(pools []mcfgv1.MachineConfigPool, configs []mcfgv1.MachineConfig) []string {
	var naming []*mcfgv1.MachineConfig
	for i := range configs {
		if streams.NamesImage(&configs[i]) && streams.DigestOf(configs[i].Spec.OSImageURL) != "" {
			naming = append(naming, &configs[i])
		}
	}
	slices.SortFunc(naming, func(a, b *mcfgv1.MachineConfig) int { return strings.Compare(b.Name, a.Name) })
	var first, others []string
	workers := selectorOf(pools, "worker")
	for _, pool := range pools {
		selector := selectorOf(pools, pool.Name)
		last := slices.IndexFunc(naming, func(config *mcfgv1.MachineConfig) bool {
			// What a custom pool takes over from worker comes before its own.
			isWorkers := pool.Name != "worker" && workers.Matches(labels.Set(config.Labels))
			return selector.Matches(labels.Set(config.Labels)) && !isWorkers
		})
		if last >= 0 {
			first = append(first, naming[last].Spec.OSImageURL)
		}
	}
	for _, config := range naming {
		others = append(others, config.Spec.OSImageURL)
	}
	slices.Sort(first)
	slices.Sort(others)
	return unique(append(first, others...))
}

// selectorOf is a pool's selector of MachineConfigs. One that does not parse selects
// none, as the pool says itself.
func selectorOf(pools []mcfgv1.MachineConfigPool, name string) labels.Selector {
	for i := range pools {
		if pools[i].Name != name {
			continue
		}
		if selector, err := metav1.LabelSelectorAsSelector(pools[i].Spec.MachineConfigSelector); err == nil {
			return selector
		}
	}
	return labels.Nothing()
}

// unique gives texts without those that stood before.
func unique(texts []string) []string {
	seen := map[string]bool{}
	return slices.DeleteFunc(slices.Clone(texts), func(text string) bool {
		isKnown := seen[text]
		seen[text] = true
		return isKnown
	})
}
