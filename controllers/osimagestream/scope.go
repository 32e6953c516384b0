package osimagestream

import (
	"context"
	"fmt"
	"slices"
	"strings"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
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
	// overrides are images by digest that MachineConfigs name, sorted.
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
	s.overrides = overridesOf(configs.Items)
	if s.wishes, err = r.readWishes(ctx, configs.Items); err != nil {
		return nil, err
	}
	return s, r.gatherWayIn(ctx, s)
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

// readWishes returns which stream each pool asks for. A pool whose OS image a
// MachineConfig names has no use for one.
func (r *reconciler) readWishes(ctx context.Context, configs []mcfgv1.MachineConfig) (map[string]streams.Request, error) {
	var pools mcfgv1.MachineConfigPoolList
	if err := r.client.List(ctx, &pools); err != nil {
		return nil, fmt.Errorf("list MachineConfigPools: %w", err)
	}
	isOverridden := map[string]bool{}
	for i := range configs {
		isOverridden[configs[i].Name] = configs[i].Annotations[machineconfiguration.AnnotationOSImageURLOverridden] == "true"
	}
	wishes := streams.Requests(pools.Items)
	for i := range pools.Items {
		if isOverridden[pools.Items[i].Spec.Configuration.Name] {
			delete(wishes, pools.Items[i].Name)
		}
	}
	return wishes, nil
}

// overridesOf lists the OS images that MachineConfigs name by digest.
func overridesOf(configs []mcfgv1.MachineConfig) []string {
	var images []string
	for i := range configs {
		if image := configs[i].Spec.OSImageURL; namesImage(&configs[i]) && streams.DigestOf(image) != "" {
			images = append(images, image)
		}
	}
	images = slices.Compact(slices.Sorted(slices.Values(images)))
	return images[:min(len(images), streams.MaxOverrides)]
}

// namesImage reports whether a MachineConfig names an OS image, and is no rendered
// one.
func namesImage(config *mcfgv1.MachineConfig) bool {
	_, isGenerated := config.Annotations[machineconfiguration.AnnotationGeneratedByControllerVersion]
	return config.Spec.OSImageURL != "" && !isGenerated
}
