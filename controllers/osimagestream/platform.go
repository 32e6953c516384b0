package osimagestream

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	configv1 "github.com/openshift/api/config/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"

	"github.com/imagemode/imagemode/controllers/osimagestream/streams"
)

// Kinds of a platform that a cluster may lack.
var (
	kindClusterVersion   = configv1.GroupVersion.WithKind("ClusterVersion")
	kindInfrastructure   = configv1.GroupVersion.WithKind("Infrastructure")
	kindProxy            = configv1.GroupVersion.WithKind("Proxy")
	kindDigestMirrors    = configv1.GroupVersion.WithKind("ImageDigestMirrorSet")
	kindTagMirrors       = configv1.GroupVersion.WithKind("ImageTagMirrorSet")
	kindContentSources   = schema.GroupVersionKind{Group: "operator.openshift.io", Version: "v1alpha1", Kind: "ImageContentSourcePolicy"}
	kindControllerConfig = mcfgv1.GroupVersion.WithKind("ControllerConfig")

	optionalKinds = []schema.GroupVersionKind{
		kindClusterVersion, kindInfrastructure, kindProxy,
		kindDigestMirrors, kindTagMirrors, kindContentSources, kindControllerConfig,
	}
)

// platform is what the objects of a platform say; the zero value is a cluster
// that has none of them.
type platform struct {
	// releaseImage and version are those the cluster is to run; installed is the
	// version it was installed with. Empty: there is no ClusterVersion.
	releaseImage, version, installed string
	// nextRelease is the release image of the last update offered that has another
	// minor version; empty: none.
	nextRelease string
	// isExternal: the control plane runs outside of the cluster, which may not
	// be able to reach what the cluster's nodes reach.
	isExternal bool
	// proxy of the cluster; nil: it says nothing, and the environment holds.
	proxy   *proxySettings
	mirrors []mirrorSet
	// trustBundle is PEM for all registries, hostBundles for one each, by
	// host[:port].
	trustBundle string
	hostBundles map[string][]byte
	// pair and requested are ControllerConfig's.
	pair      streams.Pair
	requested string
}

// proxySettings are in Proxy and in ControllerConfig the same.
type proxySettings struct {
	HTTPProxy  string `json:"httpProxy"`
	HTTPSProxy string `json:"httpsProxy"`
	NoProxy    string `json:"noProxy"`
}

// readPlatform reads the objects that exist, from the API server: they are
// read seldom, and some of them are large.
func readPlatform(ctx context.Context, reader client.Reader) (platform, error) {
	var p platform
	for _, read := range []func(context.Context, client.Reader) error{
		p.readVersion, p.readInfrastructure, p.readProxy, p.readControllerConfig, p.readMirrors,
	} {
		if err := read(ctx, reader); err != nil {
			return platform{}, err
		}
	}
	return p, nil
}

func (p *platform) readVersion(ctx context.Context, reader client.Reader) error {
	var version configv1.ClusterVersion
	found, err := readOptional(ctx, reader, kindClusterVersion, "version", &version)
	if err != nil || !found {
		return err
	}
	var history []streams.HistoryEntry
	for _, entry := range version.Status.History {
		history = append(history, streams.HistoryEntry{Version: entry.Version, IsCompleted: entry.State == configv1.CompletedUpdate})
	}
	p.releaseImage, p.version = version.Status.Desired.Image, version.Status.Desired.Version
	p.installed = streams.InstallVersion(history, p.version)
	offered := map[string]string{}
	for _, update := range version.Status.AvailableUpdates {
		offered[update.Version] = update.Image
	}
	p.nextRelease = offered[streams.NextMinor(p.version, slices.Collect(maps.Keys(offered)))]
	return nil
}

func (p *platform) readInfrastructure(ctx context.Context, reader client.Reader) error {
	var infrastructure configv1.Infrastructure
	_, err := readOptional(ctx, reader, kindInfrastructure, "cluster", &infrastructure)
	p.isExternal = infrastructure.Status.ControlPlaneTopology == configv1.ExternalTopologyMode
	return err
}

func (p *platform) readProxy(ctx context.Context, reader client.Reader) error {
	var proxy struct {
		Status proxySettings `json:"status"`
	}
	found, err := readOptional(ctx, reader, kindProxy, "cluster", &proxy)
	if found && proxy.Status != (proxySettings{}) {
		p.proxy = &proxy.Status
	}
	return err
}

// controllerConfig is the part that is read. The Go type of the API lacks
// defaultStream.
type controllerConfig struct {
	Spec struct {
		DefaultStream                  string         `json:"defaultStream"`
		BaseOSContainerImage           string         `json:"baseOSContainerImage"`
		BaseOSExtensionsContainerImage string         `json:"baseOSExtensionsContainerImage"`
		AdditionalTrustBundle          []byte         `json:"additionalTrustBundle"`
		ImageRegistryBundleData        []hostBundle   `json:"imageRegistryBundleData"`
		ImageRegistryBundleUserData    []hostBundle   `json:"imageRegistryBundleUserData"`
		Proxy                          *proxySettings `json:"proxy"`
	} `json:"spec"`
}

// hostBundle is the certificates for one registry.
type hostBundle struct {
	// File is the registry's host, with two dots for the colon before the port.
	File string `json:"file"`
	Data []byte `json:"data"`
}

// hostBundles gives the certificates by host[:port]. A user's come after those
// of the cluster.
func (c controllerConfig) hostBundles() map[string][]byte {
	bundles := map[string][]byte{}
	for _, bundle := range append(c.Spec.ImageRegistryBundleData, c.Spec.ImageRegistryBundleUserData...) {
		host := strings.Replace(bundle.File, "..", ":", 1)
		bundles[host] = append(append(bundles[host], bundle.Data...), '\n')
	}
	return bundles
}

func (c controllerConfig) pair() streams.Pair {
	return streams.Pair{OSImage: c.Spec.BaseOSContainerImage, ExtensionsImage: c.Spec.BaseOSExtensionsContainerImage}
}

func (p *platform) readControllerConfig(ctx context.Context, reader client.Reader) error {
	var config controllerConfig
	found, err := readOptional(ctx, reader, kindControllerConfig, "machine-config-controller", &config)
	if err != nil || !found {
		return err
	}
	p.pair, p.requested = config.pair(), config.Spec.DefaultStream
	p.trustBundle, p.hostBundles = string(config.Spec.AdditionalTrustBundle), config.hostBundles()
	if config.Spec.Proxy != nil {
		p.proxy = config.Spec.Proxy
	}
	return nil
}

// mirrorObject holds the rules of each of the three kinds.
type mirrorObject struct {
	Spec struct {
		Digest  []mirrorSet `json:"imageDigestMirrors"`
		Tag     []mirrorSet `json:"imageTagMirrors"`
		Content []mirrorSet `json:"repositoryDigestMirrors"`
	} `json:"spec"`
}

func (p *platform) readMirrors(ctx context.Context, reader client.Reader) error {
	for _, kind := range []schema.GroupVersionKind{kindDigestMirrors, kindTagMirrors, kindContentSources} {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
		if err := reader.List(ctx, list); isAbsent(err) {
			continue
		} else if err != nil {
			return fmt.Errorf("list %ss: %w", kind.Kind, err)
		}
		for i := range list.Items {
			var object mirrorObject
			if err := decode(&list.Items[i], &object); err != nil {
				return err
			}
			p.addMirrors(object.Spec.Digest, byDigestOnly)
			p.addMirrors(object.Spec.Content, byDigestOnly)
			p.addMirrors(object.Spec.Tag, byTagOnly)
		}
	}
	return nil
}

func (p *platform) addMirrors(sets []mirrorSet, pull string) {
	for _, set := range sets {
		set.pull = pull
		p.mirrors = append(p.mirrors, set)
	}
}

// readOptional reads an object into a struct with its JSON names. It reports
// false where the object, or its kind, does not exist.
func readOptional(ctx context.Context, reader client.Reader, kind schema.GroupVersionKind, name string, into any) (bool, error) {
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(kind)
	err := reader.Get(ctx, client.ObjectKey{Name: name}, object)
	switch {
	case isAbsent(err):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("read %s %s: %w", kind.Kind, name, err)
	}
	return true, decode(object, into)
}

func decode(object *unstructured.Unstructured, into any) error {
	raw, err := object.MarshalJSON()
	if err == nil {
		err = json.Unmarshal(raw, into)
	}
	if err != nil {
		return fmt.Errorf("read %s %s: %w", object.GetKind(), object.GetName(), err)
	}
	return nil
}

// isAbsent reports whether an object, or its kind, does not exist.
func isAbsent(err error) bool { return apierrors.IsNotFound(err) || meta.IsNoMatchError(err) }
