//go:build envtest

package osimagestream

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	configv1 "github.com/openshift/api/config/v1"
	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/yaml"

	"github.com/imagemode/imagemode/api/machineconfiguration"
	"github.com/imagemode/imagemode/controllers/osimagestream/streams"
	"github.com/imagemode/imagemode/registry/registrytest"
	"github.com/imagemode/imagemode/test/builders"
	"github.com/imagemode/imagemode/test/envtest"
)

// digest is one of images that nobody has: what they can do stays unknown.
const digest = "@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

// patience is how long a test waits for the controller. It is done within
// milliseconds; the machine may be busy.
const patience = 90 * time.Second

func start(t *testing.T) client.Client {
	t.Helper()
	return startWith(t, interceptor.Funcs{})
}

// startWith starts the controller with faults in its writes.
func startWith(t *testing.T, faults interceptor.Funcs) client.Client {
	t.Helper()
	log.SetLogger(zap.New(zap.UseDevMode(true)))
	server := envtest.Start(t)
	scheme := newScheme(t)
	mgr, err := ctrl.NewManager(server, ctrl.Options{
		Scheme: scheme, Metrics: metricsserver.Options{BindAddress: "0"}, Controller: config.Controller{SkipNameValidation: new(true)},
		NewClient: func(config *rest.Config, options client.Options) (client.Client, error) {
			made, err := client.NewWithWatch(config, options)
			if err != nil {
				return nil, err
			}
			return interceptor.NewClient(made, faults), nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := Add(mgr, Options{Namespace: machineconfiguration.Namespace, GlobalPullSecret: pullSecret, Backoff: quick}); err != nil {
		t.Fatal(err)
	}
	stopped := make(chan error, 1)
	go func() { stopped <- mgr.Start(t.Context()) }()
	t.Cleanup(func() {
		if err := <-stopped; err != nil {
			t.Error(err)
		}
	})
	direct, err := client.New(server, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	if err := direct.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: machineconfiguration.Namespace}}); err != nil {
		t.Fatal(err)
	}
	return direct
}

// eventually waits until the object says what is wanted.
func eventually(t *testing.T, c client.Client, what string, isSo func(*mcfgv1.OSImageStream) bool) *mcfgv1.OSImageStream {
	t.Helper()
	object := &mcfgv1.OSImageStream{}
	var err error
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		object = &mcfgv1.OSImageStream{}
		if err = c.Get(t.Context(), client.ObjectKey{Name: "cluster"}, object); err == nil && isSo(object) {
			return object
		}
	}
	t.Fatalf("%s: not within %v; error %v, status %+v, annotations %v", what, patience, err, object.Status, object.Annotations)
	return nil
}

// A secret that is mended is enough: nobody restarts the controller.
func TestAPartialResultIsHealedThroughTheAPIServer(t *testing.T) {
	w := &world{T: t, registry: registrytest.New(t)}
	ca, err := os.ReadFile(w.registry.CAFile)
	if err != nil {
		t.Fatal(err)
	}
	nine, ten := w.pushStream("rhel-9", streams.LabelRuntimes, "runc,crun"), w.pushStream("rhel-10")
	config := w.registry.AddUser("puller", "secret")
	c := start(t)
	secret := dockerSecret(pullSecret, []byte(`{"auths":{}}`))
	for _, object := range []client.Object{
		secret, configMap(machineconfiguration.ConfigMapTrustBundle, machineconfiguration.KeyTrustBundle, string(ca)),
		configMap(machineconfiguration.ConfigMapStreams, "mine", entryOf(streams.Set{Name: "mine", OSImage: nine.OSImage, OSExtensionsImage: nine.OSExtensionsImage})),
		configMap(machineconfiguration.ConfigMapPayload, machineconfiguration.KeyPayload, payload("5.0.0", nine, ten)),
		&mcfgv1.OSImageStream{ObjectMeta: metav1.ObjectMeta{Name: "cluster"}, Spec: mcfgv1.OSImageStreamSpec{DefaultStream: "rhel-9"}},
	} {
		if err := c.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, c, "what is wrong", func(o *mcfgv1.OSImageStream) bool {
		return strings.Contains(problems(o), "refuses the credentials") && len(o.Status.AvailableStreams) == 1
	})
	secret.Data[corev1.DockerConfigJsonKey] = config
	if err := c.Update(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	healed := eventually(t, c, "all streams", func(o *mcfgv1.OSImageStream) bool {
		return len(o.Status.AvailableStreams) == 3 && problems(o) == "" && len(streams.RuntimesOf(o, "mine")) == 2
	})
	kept := &corev1.ConfigMap{}
	key := client.ObjectKey{Namespace: machineconfiguration.Namespace, Name: machineconfiguration.ConfigMapImageLabels}
	for deadline := time.Now().Add(patience); time.Now().Before(deadline) && len(kept.Data) < 4; time.Sleep(50 * time.Millisecond) {
		if err := c.Get(t.Context(), key, kept); client.IgnoreNotFound(err) != nil {
			t.Fatal(err)
		}
	}
	if len(kept.Data) != 4 {
		t.Errorf("%d images are kept", len(kept.Data))
	}
	time.Sleep(time.Second)
	if now := eventually(t, c, "rest", func(*mcfgv1.OSImageStream) bool { return true }); now.ResourceVersion != healed.ResourceVersion {
		t.Error("it is written when nothing changed")
	}
}

// platformCRDs are those of a platform, from the pinned module of its API.
func platformCRDs(t *testing.T) []client.Object {
	t.Helper()
	directory, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/openshift/api").Output()
	if err != nil {
		t.Fatal("the module of the platform's API: ", err)
	}
	var objects []client.Object
	for _, file := range []string{
		"0000_00_cluster-version-operator_01_clusteroperators.crd.yaml", "0000_00_cluster-version-operator_01_clusterversions-Default.crd.yaml",
		"0000_03_config-operator_01_proxies.crd.yaml", "0000_10_config-operator_01_imagedigestmirrorsets.crd.yaml",
	} {
		raw, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(directory)), "config", "v1", "zz_generated.crd-manifests", file))
		if err != nil {
			t.Fatal(err)
		}
		object := &unstructured.Unstructured{}
		if err := yaml.Unmarshal(raw, object); err != nil {
			t.Fatal(err)
		}
		objects = append(objects, object)
	}
	return objects
}

// createWhenServed creates an object of a kind whose CRD was created just now.
func createWhenServed(t *testing.T, c client.Client, object client.Object) {
	t.Helper()
	var err error
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(100 * time.Millisecond) {
		if err = c.Create(t.Context(), object); err == nil {
			return
		}
	}
	t.Fatal(err)
}

// A mirror set that comes later is enough: nobody restarts the controller.
func TestAMirrorSetHealsThroughTheAPIServer(t *testing.T) {
	w := &world{T: t, registry: registrytest.New(t)}
	ca, err := os.ReadFile(w.registry.CAFile)
	if err != nil {
		t.Fatal(err)
	}
	set := w.pushStream("rhel-9")
	for _, image := range []*mcfgv1.ImageDigestFormat{&set.OSImage, &set.OSExtensionsImage} {
		*image = mcfgv1.ImageDigestFormat(strings.Replace(string(*image), w.registry.Host+"/os", "registry.invalid/release", 1))
	}
	c := start(t)
	for _, object := range append(platformCRDs(t),
		configMap(machineconfiguration.ConfigMapTrustBundle, machineconfiguration.KeyTrustBundle, string(ca)),
		configMap(machineconfiguration.ConfigMapPayload, machineconfiguration.KeyPayload, payload("5.0.0", set)),
		&mcfgv1.OSImageStream{ObjectMeta: metav1.ObjectMeta{Name: "cluster"}, Spec: mcfgv1.OSImageStreamSpec{DefaultStream: "rhel-9"}},
	) {
		if err := c.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, c, "what is wrong", func(o *mcfgv1.OSImageStream) bool { return strings.Contains(problems(o), "is tried again") })
	createWhenServed(t, c, &configv1.ImageDigestMirrorSet{
		ObjectMeta: metav1.ObjectMeta{Name: "mirrors"},
		Spec: configv1.ImageDigestMirrorSetSpec{ImageDigestMirrors: []configv1.ImageDigestMirrors{{
			Source: "registry.invalid/release", Mirrors: []configv1.ImageMirror{configv1.ImageMirror(w.registry.Host + "/os")}, MirrorSourcePolicy: configv1.NeverContactSource,
		}}},
	})
	eventually(t, c, "the stream of the mirror", func(o *mcfgv1.OSImageStream) bool {
		return len(o.Status.AvailableStreams) == 1 && o.Status.AvailableStreams[0] == set && problems(o) == ""
	})
}

// The object is made and then its status cannot be written, twice: the stamp of a
// complete result comes only behind the status.
func TestAStatusThatIsNotWrittenIsNeverStamped(t *testing.T) {
	w := &world{T: t, registry: registrytest.New(t)}
	ca, err := os.ReadFile(w.registry.CAFile)
	if err != nil {
		t.Fatal(err)
	}
	release := w.pushRelease("5.0.0", w.pushStream("rhel-10"))
	var failures, stampedEarly atomic.Int32
	c := startWith(t, interceptor.Funcs{
		SubResourcePatch: func(ctx context.Context, next client.Client, kind string, object client.Object, patch client.Patch, options ...client.SubResourcePatchOption) error {
			if _, isStream := object.(*mcfgv1.OSImageStream); isStream && failures.Add(1) <= 2 {
				now := &mcfgv1.OSImageStream{}
				if err := next.Get(ctx, client.ObjectKeyFromObject(object), now); err == nil && len(now.Annotations) > 0 {
					stampedEarly.Add(1)
				}
				return errors.New("the API server is away")
			}
			return next.SubResource(kind).Patch(ctx, object, patch, options...)
		},
	})
	version := clusterVersion("5.0.0", "5.0.0", release)
	version.Spec.ClusterID = "11111111-2222-3333-4444-555555555555"
	for _, object := range append(platformCRDs(t), configMap(machineconfiguration.ConfigMapTrustBundle, machineconfiguration.KeyTrustBundle, string(ca))) {
		if err := c.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
	}
	createVersion(t, c, version)
	eventually(t, c, "streams and stamp", func(o *mcfgv1.OSImageStream) bool {
		return len(o.Status.AvailableStreams) == 1 && o.Annotations[machineconfiguration.AnnotationReleasePayloadImage] == release
	})
	if failures.Load() < 3 || stampedEarly.Load() > 0 {
		t.Errorf("%d writes of the status, %d stamps before it", failures.Load(), stampedEarly.Load())
	}
}

// An object that was made in v1alpha1, with an empty spec, which v1 refuses: the
// default is recorded in it.
func TestAnObjectOfV1alpha1WithAnEmptySpecGetsItsDefault(t *testing.T) {
	c := start(t)
	serveV1alpha1(t, c)
	old := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{}}}
	old.SetAPIVersion("machineconfiguration.openshift.io/v1alpha1")
	old.SetKind("OSImageStream")
	old.SetName("cluster")
	createWhenServed(t, c, old)
	err := c.Create(t.Context(), configMap(machineconfiguration.ConfigMapStreams,
		"b", "osImage: 127.0.0.1:10/os/b"+digest, "a", "osImage: 127.0.0.1:10/os/a"+digest))
	if err != nil {
		t.Fatal(err)
	}
	object := eventually(t, c, "the recorded default", func(o *mcfgv1.OSImageStream) bool { return o.Spec.DefaultStream != "" })
	if object.Spec.DefaultStream != "a" || object.Status.DefaultStream != "a" || object.UID != old.GetUID() {
		t.Errorf("spec %q, status %+v, UID %s, want that of %s", object.Spec.DefaultStream, object.Status, object.UID, old.GetUID())
	}
}

// serveV1alpha1 lets the API server take OSImageStreams of v1alpha1 too, as one
// that was updated does.
func serveV1alpha1(t *testing.T, c client.Client) {
	t.Helper()
	crd := &unstructured.Unstructured{}
	crd.SetAPIVersion("apiextensions.k8s.io/v1")
	crd.SetKind("CustomResourceDefinition")
	if err := c.Get(t.Context(), client.ObjectKey{Name: "osimagestreams.machineconfiguration.openshift.io"}, crd); err != nil {
		t.Fatal(err)
	}
	versions, _, err := unstructured.NestedSlice(crd.Object, "spec", "versions")
	if err != nil {
		t.Fatal(err)
	}
	versions = append(versions, map[string]any{
		"name": "v1alpha1", "served": true, "storage": false, "subresources": map[string]any{"status": map[string]any{}},
		"schema": map[string]any{"openAPIV3Schema": map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
	})
	if err := unstructured.SetNestedSlice(crd.Object, versions, "spec", "versions"); err != nil {
		t.Fatal(err)
	}
	if err := c.Update(t.Context(), crd); err != nil {
		t.Fatal(err)
	}
}

// createVersion makes the ClusterVersion with its status, with what the API
// requires besides.
func createVersion(t *testing.T, c client.Client, version *configv1.ClusterVersion) {
	t.Helper()
	status := version.Status
	createWhenServed(t, c, version)
	version.Status = status
	version.Status.History[0].StartedTime = metav1.Now()
	version.Status.History[0].CompletionTime = new(metav1.Now())
	version.Status.AvailableUpdates = []configv1.Release{}
	version.Status.VersionHash = "x"
	if err := c.Status().Update(t.Context(), version); err != nil {
		t.Fatal(err)
	}
}

// A standalone cluster that was installed with 4.x stays on RHEL 9 with 5.0. The
// platform's kinds come after the controller has started, and no restart is
// needed. That the next release lacks RHEL 9 holds an update back.
func TestAStandaloneUpgradeStaysOnRHEL9(t *testing.T) {
	w := &world{T: t, registry: registrytest.New(t)}
	ca, err := os.ReadFile(w.registry.CAFile)
	if err != nil {
		t.Fatal(err)
	}
	nine, ten := w.pushStream("rhel-9"), w.pushStream("rhel-10")
	version := clusterVersion("4.20.1", "5.0.0", w.pushRelease("5.0.0", nine, ten))
	version.Spec.ClusterID = "11111111-2222-3333-4444-555555555555"
	c := start(t)
	objects := append(platformCRDs(t),
		configMap(machineconfiguration.ConfigMapTrustBundle, machineconfiguration.KeyTrustBundle, string(ca)), builders.MachineConfigPool("worker"))
	for _, object := range objects {
		if err := c.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
	}
	createVersion(t, c, version)
	object := eventually(t, c, "streams of the release", func(o *mcfgv1.OSImageStream) bool { return len(o.Status.AvailableStreams) == 2 })
	if object.Spec.DefaultStream != "rhel-9" || object.Status.DefaultStream != "rhel-9" {
		t.Errorf("default: spec %q, status %q", object.Spec.DefaultStream, object.Status.DefaultStream)
	}
	version.Status.AvailableUpdates = []configv1.Release{{Version: "5.1.0", Image: w.pushRelease("5.1.0", ten)}}
	if err := c.Status().Update(t.Context(), version); err != nil {
		t.Fatal(err)
	}
	eventually(t, c, "the end of rhel-9", func(o *mcfgv1.OSImageStream) bool { return strings.Contains(problems(o), "no OS image stream rhel-9") })
	operator := &configv1.ClusterOperator{}
	for deadline := time.Now().Add(patience); time.Now().Before(deadline) && len(operator.Status.Conditions) == 0; time.Sleep(50 * time.Millisecond) {
		if err = c.Get(t.Context(), client.ObjectKey{Name: clusterOperator}, operator); client.IgnoreNotFound(err) != nil {
			t.Fatal(err)
		}
	}
	if len(operator.Status.Conditions) != 1 || operator.Status.Conditions[0].Status != configv1.ConditionFalse {
		t.Errorf("conditions %+v", operator.Status.Conditions)
	}
}

func TestStreamsFollowTheConfigMap(t *testing.T) {
	c := start(t)
	configMap := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: machineconfiguration.Namespace, Name: machineconfiguration.ConfigMapStreams},
		Data: map[string]string{
			"debian-13": "osImage: 127.0.0.1:10/os/debian-13" + digest,
			"debian-12": "osImage: 127.0.0.1:10/os/debian-12" + digest + "\nosExtensionsImage: 127.0.0.1:10/os/debian-12-extensions" + digest,
			"tagged":    "osImage: 127.0.0.1:10/os/tagged:1",
		},
	}
	if err := c.Create(t.Context(), configMap); err != nil {
		t.Fatal(err)
	}

	object := eventually(t, c, "status", func(o *mcfgv1.OSImageStream) bool {
		return len(o.Status.AvailableStreams) == 2 && o.Annotations[machineconfiguration.AnnotationProblems] != ""
	})
	if diff := cmp.Diff([]string{"debian-12", "debian-13"}, streams.Names(object.Status.AvailableStreams)); diff != "" {
		t.Error(diff)
	}
	if object.Status.DefaultStream != "debian-12" || object.Spec.DefaultStream != "debian-12" {
		t.Errorf("default: spec %q, status %q", object.Spec.DefaultStream, object.Status.DefaultStream)
	}
	if problems := object.Annotations[machineconfiguration.AnnotationProblems]; !strings.Contains(problems, "tagged") {
		t.Errorf("problems = %q", problems)
	}

	t.Run("a mended entry leaves no problem", func(t *testing.T) {
		delete(configMap.Data, "tagged")
		if err := c.Update(t.Context(), configMap); err != nil {
			t.Fatal(err)
		}
		object = eventually(t, c, "no problems", func(o *mcfgv1.OSImageStream) bool {
			return o.Annotations[machineconfiguration.AnnotationProblems] == ""
		})
	})
	t.Run("nothing is written when nothing changed", func(t *testing.T) {
		metav1.SetMetaDataAnnotation(&configMap.ObjectMeta, "touched", "yes")
		if err := c.Update(t.Context(), configMap); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		now := eventually(t, c, "object", func(*mcfgv1.OSImageStream) bool { return true })
		if now.ResourceVersion != object.ResourceVersion {
			t.Errorf("resourceVersion went from %s to %s", object.ResourceVersion, now.ResourceVersion)
		}
	})
	t.Run("the default that a user chose outlives a deletion", func(t *testing.T) {
		chosen := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"defaultStream":"debian-13"}}`))
		if err := c.Patch(t.Context(), object, chosen); err != nil {
			t.Fatal(err)
		}
		eventually(t, c, "chosen default", func(o *mcfgv1.OSImageStream) bool { return o.Status.DefaultStream == "debian-13" })
		if err := c.Delete(t.Context(), object); err != nil {
			t.Fatal(err)
		}
		eventually(t, c, "made again", func(o *mcfgv1.OSImageStream) bool {
			return o.UID != object.UID && o.Spec.DefaultStream == "debian-13" && o.Status.DefaultStream == "debian-13"
		})
	})
	t.Run("a default that is gone is reported and not replaced", func(t *testing.T) {
		delete(configMap.Data, "debian-13")
		if err := c.Update(t.Context(), configMap); err != nil {
			t.Fatal(err)
		}
		gone := eventually(t, c, "default gone", func(o *mcfgv1.OSImageStream) bool {
			return o.Status.DefaultStream == "debian-12" && strings.Contains(o.Annotations[machineconfiguration.AnnotationProblems], "debian-13")
		})
		if gone.Spec.DefaultStream != "debian-13" {
			t.Errorf("spec.defaultStream = %q", gone.Spec.DefaultStream)
		}
	})
	t.Run("without the ConfigMap the known streams stay", func(t *testing.T) {
		if err := c.Delete(t.Context(), configMap); err != nil {
			t.Fatal(err)
		}
		kept := eventually(t, c, "problem", func(o *mcfgv1.OSImageStream) bool {
			return strings.Contains(o.Annotations[machineconfiguration.AnnotationProblems], "no stream is left")
		})
		if len(kept.Status.AvailableStreams) != 1 {
			t.Errorf("streams = %v", streams.Names(kept.Status.AvailableStreams))
		}
	})
}
