package osimagestream

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	operatorv1alpha1 "github.com/openshift/api/operator/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/imagemode/imagemode/api/machineconfiguration"
	"github.com/imagemode/imagemode/controllers/osimagestream/streams"
	"github.com/imagemode/imagemode/registry"
	"github.com/imagemode/imagemode/registry/registrytest"
)

const pullSecret = "global-pull-secret-copy"

// quick makes attempts follow each other at once.
var quick = wait.Backoff{Duration: time.Millisecond, Factor: 1, Steps: 3}

// world is a registry, a cluster, and the controller in it.
type world struct {
	*testing.T
	registry *registrytest.Registry
	client   client.Client
	faults   interceptor.Funcs
	events   *events.FakeRecorder
	writes   int
	*reconciler
}

func newScheme(t testing.TB) *runtime.Scheme {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, mcfgv1.Install, configv1.Install, operatorv1alpha1.Install} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	return scheme
}

// newWorld has a registry whose certificate the cluster trusts, and objects.
func newWorld(t *testing.T, objects ...client.Object) *world {
	w := &world{T: t, registry: registrytest.New(t), events: events.NewFakeRecorder(100)}
	ca, err := os.ReadFile(w.registry.CAFile)
	if err != nil {
		t.Fatal(err)
	}
	objects = append(objects, configMap(machineconfiguration.ConfigMapTrustBundle, machineconfiguration.KeyTrustBundle, string(ca)))
	w.client = fake.NewClientBuilder().WithScheme(newScheme(t)).WithObjects(objects...).
		WithStatusSubresource(&mcfgv1.OSImageStream{}, &configv1.ClusterOperator{}).
		WithInterceptorFuncs(w.counting()).Build()
	w.restart()
	return w
}

// restart forgets what the controller has in memory.
func (w *world) restart() {
	w.reconciler = &reconciler{
		client: w.client, events: w.events, cache: newImageCache(time.Now),
		options: Options{
			Namespace: machineconfiguration.Namespace, GlobalPullSecret: pullSecret, Backoff: quick,
			Images: func(access registry.Access) ImageReader { return registryImages{access: access} },
		},
	}
}

// reconcile runs one reconcile.
func (w *world) reconcile() (ctrl.Result, error) {
	w.Helper()
	return w.Reconcile(w.Context(), object)
}

// mustReconcile runs one reconcile that has to work, and gives the object.
func (w *world) mustReconcile() *mcfgv1.OSImageStream {
	w.Helper()
	if _, err := w.reconcile(); err != nil {
		w.Fatal(err)
	}
	return w.object()
}

// object gives OSImageStream cluster, or nil.
func (w *world) object() *mcfgv1.OSImageStream {
	w.Helper()
	found, err := read(w.Context(), w.client, object.NamespacedName, &mcfgv1.OSImageStream{})
	if err != nil {
		w.Fatal(err)
	}
	return found
}

func (w *world) create(object client.Object) {
	w.Helper()
	if err := w.client.Create(w.Context(), object); err != nil {
		w.Fatal(err)
	}
}

// problems gives the object's annotation.
func problems(object *mcfgv1.OSImageStream) string {
	return object.Annotations[machineconfiguration.AnnotationProblems]
}

// pushStream pushes both images of a stream.
func (w *world) pushStream(name string, labels ...string) streams.Set {
	return streams.Set{
		Name:              name,
		OSImage:           mcfgv1.ImageDigestFormat(w.pushImage("os/"+name, append(labels, streams.LabelStream, name, streams.LabelBootc, "1")...)),
		OSExtensionsImage: mcfgv1.ImageDigestFormat(w.pushImage("os/"+name+"-extensions", streams.LabelStream, name, streams.LabelExtensions, "true")),
	}
}

// pushImage pushes an image with labels, name and value by turns.
func (w *world) pushImage(repository string, labels ...string) string {
	spec := registrytest.ImageSpec{Labels: map[string]string{}}
	for i := 0; i < len(labels); i += 2 {
		spec.Labels[labels[i]] = labels[i+1]
	}
	return w.registry.Push(w.T, repository, spec)
}

// payload gives the ImageStream of a release with the images of streams.
func payload(version string, sets ...streams.Set) string {
	tags := []map[string]any{{"name": "machine-config-operator", "from": map[string]string{"kind": "DockerImage", "name": "x"}}}
	for _, set := range sets {
		for suffix, image := range map[string]mcfgv1.ImageDigestFormat{"": set.OSImage, "-extensions": set.OSExtensionsImage} {
			tags = append(tags, map[string]any{"name": "rhel-coreos-" + set.Name + suffix, "from": map[string]string{"kind": "DockerImage", "name": string(image)}})
		}
	}
	raw, err := json.Marshal(map[string]any{
		"kind": "ImageStream", "apiVersion": "image.openshift.io/v1", "metadata": map[string]string{"name": version}, "spec": map[string]any{"tags": tags},
	})
	if err != nil {
		panic(err)
	}
	return string(raw)
}

// pushRelease pushes a release image whose payload has streams.
func (w *world) pushRelease(version string, sets ...streams.Set) string {
	return w.pushReferences(payload(version, sets...))
}

// pushReferences pushes a release image with a text for its payload.
func (w *world) pushReferences(text string) string {
	return w.registry.Push(w.T, "release", registrytest.ImageSpec{Files: map[string]string{
		"/release-manifests/": "", "/release-manifests/image-references": text,
	}})
}

// clusterVersion is a cluster that was installed with one version and is to
// run a release image.
func clusterVersion(installed, version, image string) *configv1.ClusterVersion {
	return &configv1.ClusterVersion{
		ObjectMeta: metav1.ObjectMeta{Name: "version"},
		Status: configv1.ClusterVersionStatus{
			Desired: configv1.Release{Version: version, Image: image},
			History: []configv1.UpdateHistory{{State: configv1.CompletedUpdate, Version: installed}},
		},
	}
}

func configMap(name string, pairs ...string) *corev1.ConfigMap {
	made := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: machineconfiguration.Namespace, Name: name}, Data: map[string]string{}}
	for i := 0; i < len(pairs); i += 2 {
		made.Data[pairs[i]] = pairs[i+1]
	}
	return made
}

func dockerSecret(name string, config []byte) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: machineconfiguration.Namespace, Name: name},
		Type:       corev1.SecretTypeDockerConfigJson, Data: map[string][]byte{corev1.DockerConfigJsonKey: config},
	}
}

// entryOf is a stream in ConfigMap imagemode-streams.
func entryOf(set streams.Set) string {
	return fmt.Sprintf("osImage: %s\nosExtensionsImage: %s\n", set.OSImage, set.OSExtensionsImage)
}

// said gives all events since the last call.
func (w *world) said() string {
	var all strings.Builder
	for {
		select {
		case event := <-w.events.Events:
			all.WriteString(event + "\n")
		default:
			return all.String()
		}
	}
}
