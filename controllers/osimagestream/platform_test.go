package osimagestream

import (
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	configv1 "github.com/openshift/api/config/v1"
	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	operatorv1alpha1 "github.com/openshift/api/operator/v1alpha1"
	"go.podman.io/image/v5/pkg/sysregistriesv2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/imagemode/imagemode/api/machineconfiguration"
	"github.com/imagemode/imagemode/controllers/osimagestream/streams"
	"github.com/imagemode/imagemode/test/builders"
)

func TestImagesAreReadThroughTheMirrorsOfTheCluster(t *testing.T) {
	w := newWorld(t)
	set := w.pushStream("rhel-9")
	atSource := set
	for _, image := range []*mcfgv1.ImageDigestFormat{&atSource.OSImage, &atSource.OSExtensionsImage} {
		*image = mcfgv1.ImageDigestFormat(strings.Replace(string(*image), w.registry.Host+"/os", "registry.invalid/release", 1))
	}
	w.create(&configv1.ImageDigestMirrorSet{
		ObjectMeta: metav1.ObjectMeta{Name: "mirrors"},
		Spec: configv1.ImageDigestMirrorSetSpec{ImageDigestMirrors: []configv1.ImageDigestMirrors{{
			Source: "registry.invalid/release", Mirrors: []configv1.ImageMirror{configv1.ImageMirror(w.registry.Host + "/os")}, MirrorSourcePolicy: configv1.NeverContactSource,
		}}},
	})
	w.create(configMap(machineconfiguration.ConfigMapPayload, machineconfiguration.KeyPayload, payload("4.21.0", atSource)))
	object := w.mustReconcile()
	if diff := cmp.Diff([]streams.Set{atSource}, object.Status.AvailableStreams); diff != "" || problems(object) != "" {
		t.Error(diff, problems(object))
	}
}

// Every kind of mirror set that a cluster may have is read, and written as the
// nodes get it.
func TestMirrorSetsOfEveryKindAreRead(t *testing.T) {
	w := newWorld(t)
	for _, set := range []client.Object{
		&configv1.ImageDigestMirrorSet{
			ObjectMeta: metav1.ObjectMeta{Name: "by-digest"},
			Spec: configv1.ImageDigestMirrorSetSpec{ImageDigestMirrors: []configv1.ImageDigestMirrors{{
				Source: "a.example.com", Mirrors: []configv1.ImageMirror{"m.example.com/a"}, MirrorSourcePolicy: configv1.NeverContactSource,
			}}},
		},
		&configv1.ImageTagMirrorSet{
			ObjectMeta: metav1.ObjectMeta{Name: "by-tag"},
			Spec: configv1.ImageTagMirrorSetSpec{ImageTagMirrors: []configv1.ImageTagMirrors{{
				Source: "b.example.com", Mirrors: []configv1.ImageMirror{"m.example.com/b"},
			}}},
		},
		&operatorv1alpha1.ImageContentSourcePolicy{
			ObjectMeta: metav1.ObjectMeta{Name: "of-old"},
			Spec: operatorv1alpha1.ImageContentSourcePolicySpec{RepositoryDigestMirrors: []operatorv1alpha1.RepositoryDigestMirrors{{
				Source: "c.example.com", Mirrors: []string{"m.example.com/c"},
			}}},
		},
	} {
		w.create(set)
	}
	found, err := readPlatform(t.Context(), w.client)
	if err != nil {
		t.Fatal(err)
	}
	want := []mirrorSet{
		{Source: "a.example.com", Mirrors: []string{"m.example.com/a"}, Policy: neverContactSource, pull: byDigestOnly},
		{Source: "b.example.com", Mirrors: []string{"m.example.com/b"}, pull: byTagOnly},
		{Source: "c.example.com", Mirrors: []string{"m.example.com/c"}, pull: byDigestOnly},
	}
	if diff := cmp.Diff(want, found.mirrors, cmp.AllowUnexported(mirrorSet{})); diff != "" {
		t.Error(diff)
	}
}

// Without mirror sets the registries.conf of the controller's own host counts.
func TestWithoutMirrorSetsTheHostsRegistriesConfCounts(t *testing.T) {
	w := newWorld(t)
	set := w.pushStream("rhel-9")
	atSource := set
	for _, image := range []*mcfgv1.ImageDigestFormat{&atSource.OSImage, &atSource.OSExtensionsImage} {
		*image = mcfgv1.ImageDigestFormat(strings.Replace(string(*image), w.registry.Host+"/os", "registry.invalid/release", 1))
	}
	conf := filepath.Join(t.TempDir(), "registries.conf")
	text := "[[registry]]\nlocation = \"registry.invalid/release\"\nblocked = true\n[[registry.mirror]]\nlocation = \"" + w.registry.Host + "/os\"\n"
	if err := os.WriteFile(conf, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	sysregistriesv2.InvalidateCache()
	t.Setenv("CONTAINERS_REGISTRIES_CONF", conf)
	w.create(configMap(machineconfiguration.ConfigMapPayload, machineconfiguration.KeyPayload, payload("4.21.0", atSource)))
	object := w.mustReconcile()
	if diff := cmp.Diff([]streams.Set{atSource}, object.Status.AvailableStreams); diff != "" || problems(object) != "" {
		t.Error(diff, problems(object))
	}
}

// The proxy of the cluster is asked, unless its noProxy exempts the registry. The
// certificate of a test's server has the name example.com, which leads nowhere.
func TestImagesAreReadThroughTheProxyOfTheCluster(t *testing.T) {
	for name, tc := range map[string]struct {
		noProxy   string
		isProxied bool
	}{
		"through the proxy":      {"other.example.com", true},
		"exempt, and so not":     {"example.com", false},
		"exempt with its domain": {".com", false},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			_, port, _ := net.SplitHostPort(w.registry.Host)
			proxy := &tunnel{to: w.registry.Host}
			server := httptest.NewServer(proxy)
			defer server.Close()
			set := w.pushStream("rhel-9")
			for _, image := range []*mcfgv1.ImageDigestFormat{&set.OSImage, &set.OSExtensionsImage} {
				*image = mcfgv1.ImageDigestFormat(strings.Replace(string(*image), w.registry.Host, "example.com:"+port, 1))
			}
			w.create(&configv1.Proxy{ObjectMeta: metav1.ObjectMeta{Name: "cluster"}, Status: configv1.ProxyStatus{HTTPSProxy: server.URL, NoProxy: tc.noProxy}})
			w.create(configMap(machineconfiguration.ConfigMapPayload, machineconfiguration.KeyPayload, payload("4.21.0", set)))
			if !tc.isProxied {
				w.options.Backoff.Steps = 1
			}
			w.mustReconcile()
			if isRead := w.object() != nil; isRead != tc.isProxied || (len(proxy.asked) > 0) != tc.isProxied {
				t.Errorf("read %t, the proxy was asked for %v", isRead, proxy.asked)
			}
		})
	}
}

func TestControllerConfigBringsCertificatesForOneRegistry(t *testing.T) {
	w := newWorld(t)
	ca, err := os.ReadFile(w.registry.CAFile)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.client.Delete(t.Context(), configMap(machineconfiguration.ConfigMapTrustBundle)); err != nil {
		t.Fatal(err)
	}
	set := w.pushStream("rhel-9")
	w.create(configMap(machineconfiguration.ConfigMapPayload, machineconfiguration.KeyPayload, payload("4.21.0", set)))
	w.mustReconcile()
	if w.object() != nil || !strings.Contains(w.said(), "certificate of its registry is not accepted") {
		t.Fatal("without the certificate it should not work")
	}
	w.create(&mcfgv1.ControllerConfig{
		ObjectMeta: metav1.ObjectMeta{Name: "machine-config-controller"},
		Spec: mcfgv1.ControllerConfigSpec{ImageRegistryBundleUserData: []mcfgv1.ImageRegistryBundle{
			{File: strings.Replace(w.registry.Host, ":", "..", 1), Data: ca}, {File: "../../etc", Data: ca},
		}},
	})
	if object := w.mustReconcile(); len(object.Status.AvailableStreams) != 1 {
		t.Errorf("%+v, problems %s", object.Status, problems(object))
	}
}

func TestTheNextReleaseIsTheOneThatClusterVersionOffers(t *testing.T) {
	w := newWorld(t, &mcfgv1.MachineConfigPool{ObjectMeta: metav1.ObjectMeta{Name: "worker"}})
	nine, ten := w.pushStream("rhel-9"), w.pushStream("rhel-10")
	version := clusterVersion("4.20.0", "4.22.0", w.pushRelease("4.22.0", nine, ten))
	version.Status.AvailableUpdates = []configv1.Release{{Version: "4.22.9", Image: "registry.invalid/never-read"}, {Version: "5.0.0", Image: w.pushRelease("5.0.0", ten)}}
	w.create(version)
	if object := w.mustReconcile(); !strings.Contains(problems(object), "the next release has no OS image stream rhel-9") {
		t.Errorf("problems %s", problems(object))
	}
	operator := &configv1.ClusterOperator{}
	if err := w.client.Get(t.Context(), client.ObjectKey{Name: clusterOperator}, operator); err != nil || operator.Status.Conditions[0].Status != configv1.ConditionFalse {
		t.Errorf("error %v, conditions %+v", err, operator.Status.Conditions)
	}
}

func TestWhatAStreamCanDoIsRemembered(t *testing.T) {
	w := newWorld(t)
	set := w.pushStream("debian-13", streams.LabelRuntimes, "crun")
	w.create(configMap(machineconfiguration.ConfigMapStreams, "debian-13", entryOf(set)))
	w.mustReconcile()
	if err := w.client.Delete(t.Context(), configMap(machineconfiguration.ConfigMapImageLabels)); err != nil {
		t.Fatal(err)
	}
	w.restart()
	w.registry.Fail(func(*http.Request) int { return http.StatusBadGateway })
	if object := w.mustReconcile(); len(streams.DecodeTraits(object)["debian-13"].Runtimes) != 1 {
		t.Errorf("annotations %v", object.Annotations)
	}
	t.Run("and when all sources are gone", func(t *testing.T) {
		if err := w.client.Delete(t.Context(), configMap(machineconfiguration.ConfigMapStreams)); err != nil {
			t.Fatal(err)
		}
		if object := w.mustReconcile(); len(streams.DecodeTraits(object)) != 1 || len(object.Status.AvailableStreams) != 1 {
			t.Errorf("%+v", object)
		}
	})
}

func TestImagesThatMachineConfigsNameTellWhatTheyAre(t *testing.T) {
	w := newWorld(t)
	set := w.pushStream("debian-12", streams.LabelRuntimes, "crun,runc")
	mine := w.pushImage("mine", streams.LabelStream, "rhel-10")
	w.create(configMap(machineconfiguration.ConfigMapStreams, "debian-12", entryOf(set)))
	generated := builders.MachineConfig("rendered-worker-1", "worker", builders.OSImageURL(w.registry.Host+"/os/other@sha256:"+strings.Repeat("1", 64)))
	generated.Annotations = map[string]string{machineconfiguration.AnnotationGeneratedByControllerVersion: "1"}
	w.create(generated)
	override := builders.MachineConfig("50-mine", "worker", builders.OSImageURL(mine))
	w.create(override)
	w.create(builders.MachineConfig("50-tag", "worker", builders.OSImageURL(w.registry.Host+"/mine:1")))
	object := w.mustReconcile()
	want := map[string]streams.Override{streams.DigestOf(mine): {Stream: "rhel-10", Read: true}}
	if diff := cmp.Diff(want, streams.DecodeOverrides(object)); diff != "" || problems(object) != "" {
		t.Error(diff, problems(object))
	}
	t.Run("what was known stays while the registry is away", func(t *testing.T) {
		if err := w.client.Delete(t.Context(), configMap(machineconfiguration.ConfigMapImageLabels)); err != nil {
			t.Fatal(err)
		}
		w.restart()
		w.registry.Fail(func(*http.Request) int { return http.StatusBadGateway })
		result, err := w.reconcile()
		if diff := cmp.Diff(want, streams.DecodeOverrides(w.object())); diff != "" || err != nil || result.RequeueAfter == 0 {
			t.Error(diff, err, result)
		}
	})
	t.Run("and goes with the MachineConfig", func(t *testing.T) {
		w.registry.Fail(nil)
		if err := w.client.Delete(t.Context(), override); err != nil {
			t.Fatal(err)
		}
		if object := w.mustReconcile(); len(streams.DecodeOverrides(object)) > 0 {
			t.Errorf("annotations %v", object.Annotations)
		}
	})
}

func TestAnImageByTagIsNotLookedAt(t *testing.T) {
	w := newWorld(t)
	byTag := streams.Set{Name: "a", OSImage: mcfgv1.ImageDigestFormat(w.registry.Host + "/os/a:1"), OSExtensionsImage: mcfgv1.ImageDigestFormat(w.registry.Host + "/os/b:1")}
	good := w.pushStream("good")
	w.create(configMap(machineconfiguration.ConfigMapPayload, machineconfiguration.KeyPayload, payload("5.0.0", byTag, good)))
	w.registry.Requests()
	result, err := w.reconcile()
	object := w.object()
	if err != nil || len(object.Status.AvailableStreams) != 1 || !strings.Contains(problems(object), "has no digest") {
		t.Errorf("error %v, object %+v", err, object)
	}
	for _, request := range w.registry.Requests() {
		if strings.Contains(request, "/os/a/") || strings.Contains(request, "/os/b/") {
			t.Errorf("request %s", request)
		}
	}
	if result.RequeueAfter < lastRetry {
		t.Errorf("next look in %v: nothing of this mends itself soon", result.RequeueAfter)
	}
}
