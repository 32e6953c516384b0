package osimagestream

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	configv1 "github.com/openshift/api/config/v1"
	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/imagemode/imagemode/api/machineconfiguration"
	"github.com/imagemode/imagemode/controllers/osimagestream/streams"
	"github.com/imagemode/imagemode/registry"
	"github.com/imagemode/imagemode/test/builders"
)

func TestStreamsOfAReleaseImageAreFoundByTheirLabels(t *testing.T) {
	w := newWorld(t)
	nine, ten := w.pushStream("rhel-9"), w.pushStream("rhel-10")
	release := w.pushRelease("5.0.1", nine, ten)
	w.create(clusterVersion("4.20.1", "5.0.1", release))

	object := w.mustReconcile()
	want := mcfgv1.OSImageStreamStatus{AvailableStreams: []streams.Set{ten, nine}, DefaultStream: "rhel-9"}
	if diff := cmp.Diff(want, object.Status); diff != "" {
		t.Error(diff)
	}
	if object.Spec.DefaultStream != "rhel-9" {
		t.Errorf("spec.defaultStream %q: the cluster was installed with 4.20", object.Spec.DefaultStream)
	}
	if stamp := object.Annotations[machineconfiguration.AnnotationReleasePayloadImage]; stamp != release || problems(object) != "" {
		t.Errorf("release %q, problems %q", stamp, problems(object))
	}
	t.Run("nothing is asked or written again", func(t *testing.T) {
		w.registry.Requests()
		w.writes = 0
		w.mustReconcile()
		if asked := w.registry.Requests(); len(asked) > 0 || w.writes > 0 {
			t.Errorf("%d writes, requests %v", w.writes, asked)
		}
	})
	t.Run("not even after a restart", func(t *testing.T) {
		w.restart()
		w.mustReconcile()
		if asked := w.registry.Requests(); len(asked) > 0 || w.writes > 0 {
			t.Errorf("%d writes, requests %v", w.writes, asked)
		}
	})
}

func TestTheDemosStreamsTellWhatTheyCanDo(t *testing.T) {
	w := newWorld(t)
	twelve, thirteen := w.pushStream("debian-12", streams.LabelRuntimes, "crun,runc"), w.pushStream("debian-13", streams.LabelRuntimes, "crun")
	w.create(configMap(machineconfiguration.ConfigMapStreams, "debian-12", entryOf(twelve), "debian-13", entryOf(thirteen)))
	object := w.mustReconcile()
	if diff := cmp.Diff([]streams.Set{twelve, thirteen}, object.Status.AvailableStreams); diff != "" {
		t.Error(diff)
	}
	for stream, want := range map[string][]string{"debian-12": {"crun", "runc"}, "debian-13": {"crun"}} {
		if diff := cmp.Diff(want, streams.RuntimesOf(object, stream)); diff != "" {
			t.Errorf("%s: %s", stream, diff)
		}
	}
	if problems(object) != "" {
		t.Errorf("problems %s", problems(object))
	}
}

func TestTheDemosStreamsAreFoundByTheirLabels(t *testing.T) {
	w := newWorld(t)
	twelve, thirteen := w.pushStream("debian-12", streams.LabelRuntimes, "crun,runc"), w.pushStream("debian-13", streams.LabelRuntimes, "crun")
	w.create(configMap(machineconfiguration.ConfigMapPayload, machineconfiguration.KeyPayload, payload("demo", twelve, thirteen)))
	object := w.mustReconcile()
	if diff := cmp.Diff([]streams.Set{twelve, thirteen}, object.Status.AvailableStreams); diff != "" || problems(object) != "" {
		t.Error(diff, problems(object))
	}
	want := map[string]streams.Traits{
		"debian-12": {Runtimes: []string{"crun", "runc"}, Image: streams.DigestOf(string(twelve.OSImage))},
		"debian-13": {Runtimes: []string{"crun"}, Image: streams.DigestOf(string(thirteen.OSImage))},
	}
	if diff := cmp.Diff(want, streams.DecodeTraits(object)); diff != "" {
		t.Error(diff)
	}
}

func TestStreamsOfAConfigMapNeedNoRegistry(t *testing.T) {
	w := newWorld(t)
	set := w.pushStream("debian-12", streams.LabelRuntimes, "crun")
	w.create(configMap(machineconfiguration.ConfigMapStreams, "debian-12", entryOf(set)))
	w.registry.Fail(func(*http.Request) int { return http.StatusServiceUnavailable })
	result, err := w.reconcile()
	object := w.object()
	if err != nil || len(object.Status.AvailableStreams) != 1 || problems(object) != "" {
		t.Fatalf("error %v, object %+v", err, object)
	}
	if result.RequeueAfter == 0 {
		t.Error("what the stream can do is never asked again")
	}
	w.registry.Fail(nil)
	if object = w.mustReconcile(); len(streams.RuntimesOf(object, "debian-12")) != 1 {
		t.Errorf("annotations %v", object.Annotations)
	}
}

func TestARegistryThatIsDownForTheFirstAttempts(t *testing.T) {
	w := newWorld(t)
	nine := w.pushStream("rhel-9")
	w.create(clusterVersion("4.20.1", "4.21.0", w.pushRelease("4.21.0", nine)))
	var asked atomic.Int32
	w.registry.Fail(func(*http.Request) int {
		if asked.Add(1) <= 2 {
			return http.StatusServiceUnavailable
		}
		return 0
	})
	if object := w.mustReconcile(); len(object.Status.AvailableStreams) != 1 || problems(object) != "" {
		t.Errorf("status %+v, problems %s", object.Status, problems(object))
	}
}

func TestAPartialResultIsHealedByAFixedSecret(t *testing.T) {
	w := newWorld(t)
	nine, ten := w.pushStream("rhel-9"), w.pushStream("rhel-10")
	release := w.pushRelease("5.0.1", nine, ten)
	config := w.registry.AddUser("puller", "secret")
	w.create(clusterVersion("4.20.1", "5.0.1", release))
	w.create(dockerSecret(pullSecret, []byte(`{"auths":{}}`)))

	result, err := w.reconcile()
	if err != nil || w.object() != nil {
		t.Fatalf("error %v, object %v", err, w.object())
	}
	if said := w.said(); !strings.Contains(said, "refuses the credentials") || result.RequeueAfter == 0 {
		t.Errorf("events %q, next look in %v", said, result.RequeueAfter)
	}
	if err := w.client.Update(t.Context(), dockerSecret(pullSecret, config)); err != nil {
		t.Fatal(err)
	}
	if object := w.mustReconcile(); len(object.Status.AvailableStreams) != 2 || problems(object) != "" {
		t.Errorf("status %+v, problems %s", object.Status, problems(object))
	}
}

func TestAnImageThatIsNotReadKeepsTheStreamOfTheSamePayload(t *testing.T) {
	w := newWorld(t)
	nine, ten := w.pushStream("rhel-9"), w.pushStream("rhel-10")
	release := w.pushRelease("5.0.1", nine, ten)
	w.create(clusterVersion("4.20.1", "5.0.1", release))
	w.mustReconcile()
	newTen := w.pushStream("rhel-10", "x", "y")
	next := w.pushRelease("5.0.2", nine, newTen)
	// A restart that finds no cache, and a registry that lost one repository.
	if err := w.client.Delete(t.Context(), configMap(machineconfiguration.ConfigMapImageLabels)); err != nil {
		t.Fatal(err)
	}
	w.restart()
	w.registry.Fail(func(request *http.Request) int {
		if strings.Contains(request.URL.Path, "/os/rhel-10/") {
			return http.StatusBadGateway
		}
		return 0
	})
	result, err := w.reconcile()
	object := w.object()
	if err != nil || len(object.Status.AvailableStreams) != 2 || !strings.Contains(problems(object), "kept as it was") || result.RequeueAfter == 0 {
		t.Fatalf("error %v, streams %v, problems %s, next look in %v", err, streams.Names(object.Status.AvailableStreams), problems(object), result.RequeueAfter)
	}
	t.Run("a new payload is not stamped before it is complete", func(t *testing.T) {
		if err := w.client.Delete(t.Context(), &configv1.ClusterVersion{ObjectMeta: metav1.ObjectMeta{Name: "version"}}); err != nil {
			t.Fatal(err)
		}
		w.create(clusterVersion("4.20.1", "5.0.2", next))
		partial := w.mustReconcile()
		if stamp := partial.Annotations[machineconfiguration.AnnotationReleasePayloadImage]; stamp != release {
			t.Errorf("stamp %q", stamp)
		}
		w.registry.Fail(nil)
		whole := w.mustReconcile()
		if stamp := whole.Annotations[machineconfiguration.AnnotationReleasePayloadImage]; stamp != next || problems(whole) != "" {
			t.Errorf("stamp %q, problems %s", stamp, problems(whole))
		}
		if diff := cmp.Diff([]streams.Set{newTen, nine}, whole.Status.AvailableStreams); diff != "" {
			t.Error(diff)
		}
	})
}

func TestBadInputIsNamedAndTheRestWorks(t *testing.T) {
	for name, tc := range map[string]struct {
		payload  func(w *world) string
		problem  string
		isBroken bool
	}{
		"an OS image without its extensions": {func(w *world) string {
			half := w.pushStream("half")
			half.OSExtensionsImage = mcfgv1.ImageDigestFormat(w.pushImage("other", "a", "b"))
			return w.pushRelease("5.0.0", half)
		}, "half", false},
		"an image that is only half there": {func(w *world) string {
			half := w.pushStream("half")
			half.OSImage = mcfgv1.ImageDigestFormat(strings.Split(string(half.OSImage), "@")[0] + "@sha256:" + strings.Repeat("0", 64))
			return w.pushRelease("5.0.0", half)
		}, "does not exist", false},
		"a payload without streams": {func(w *world) string { return w.pushRelease("5.0.0") }, "has no OS image", false},
		"a release image that is none": {func(w *world) string {
			return w.pushImage("none", "a", "b")
		}, "file does not exist", true},
		"a broken image-references": {func(w *world) string { return w.pushReferences(`{"kind": "ImageStr`) }, "it is no ImageStream", true},
		"an image-references of something else": {func(w *world) string {
			return w.pushReferences(`{"kind":"ImageStream","apiVersion":"image.openshift.io/v1"}`)
		}, streams.ErrNotPayload.Error(), true},
		"an oversized image-references": {func(w *world) string {
			return w.pushReferences(strings.Repeat(" ", streams.MaxPayloadSize+1))
		}, "are read at most", true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			good := w.pushStream("good")
			w.create(configMap(machineconfiguration.ConfigMapStreams, "good", entryOf(good)))
			w.create(clusterVersion("4.20.1", "5.0.0", tc.payload(w)))
			object := w.mustReconcile()
			if diff := cmp.Diff([]streams.Set{good}, object.Status.AvailableStreams); diff != "" {
				t.Error(diff)
			}
			if object.Spec.DefaultStream != "good" || !strings.Contains(problems(object), tc.problem) {
				t.Errorf("default %q, problems %s", object.Spec.DefaultStream, problems(object))
			}
			_, isStamped := object.Annotations[machineconfiguration.AnnotationReleasePayloadImage]
			if isStamped == tc.isBroken {
				t.Errorf("stamped %t", isStamped)
			}
		})
	}
}

func TestBrokenPayloadsInTheConfigMap(t *testing.T) {
	for name, tc := range map[string]struct{ text, problem string }{
		"broken":       {"{", "no ImageStream"},
		"another kind": {`{"kind":"Pod"}`, "not an ImageStream"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, configMap(machineconfiguration.ConfigMapPayload, machineconfiguration.KeyPayload, tc.text))
			good := w.pushStream("good")
			w.create(configMap(machineconfiguration.ConfigMapStreams, "good", entryOf(good)))
			if object := w.mustReconcile(); len(object.Status.AvailableStreams) != 1 || !strings.Contains(problems(object), tc.problem) {
				t.Errorf("status %+v, problems %s", object.Status, problems(object))
			}
		})
	}
}

// The API takes a hundred: the one too many is named, and the object is written.
func TestTheHundredAndFirstStreamIsNamedAndTheRestPublished(t *testing.T) {
	w := newWorld(t)
	many := configMap(machineconfiguration.ConfigMapStreams)
	for i := range 101 {
		many.Data[fmt.Sprintf("s-%03d", i)] = "osImage: " + numbered(101)[i] + "\n"
	}
	w.create(many)
	w.options.Images = func(registry.Access) ImageReader {
		return reads(func(context.Context, string) (map[string]string, error) { return nil, nil })
	}
	object := w.mustReconcile()
	if names := streams.Names(object.Status.AvailableStreams); len(names) != 100 || slices.Contains(names, "s-100") {
		t.Errorf("%d streams", len(names))
	}
	if !strings.Contains(problems(object), `"stream":"s-100"`) || !strings.Contains(problems(object), "there are 101 streams, and 100 are allowed") {
		t.Errorf("problems %s", problems(object))
	}
}

func TestThePairIsOverruledByThePayload(t *testing.T) {
	w := newWorld(t)
	old, nine := w.pushStream("rhel-9", "age", "old"), w.pushStream("rhel-9")
	w.create(configMap(machineconfiguration.ConfigMapOSImageURL,
		streams.KeyBaseImage, string(old.OSImage), streams.KeyExtensionsImage, string(old.OSExtensionsImage), streams.KeyReleaseVersion, "4.21.0"))
	object := w.mustReconcile()
	if diff := cmp.Diff([]streams.Set{old}, object.Status.AvailableStreams); diff != "" {
		t.Error(diff)
	}
	w.create(configMap(machineconfiguration.ConfigMapPayload, machineconfiguration.KeyPayload, payload("4.21.0", nine)))
	object = w.mustReconcile()
	if diff := cmp.Diff([]streams.Set{nine}, object.Status.AvailableStreams); diff != "" {
		t.Error(diff)
	}
}

// noRegistry fails a test when an image is looked at.
type noRegistry struct{ *testing.T }

func (n noRegistry) Labels(_ context.Context, image string) (map[string]string, error) {
	n.Errorf("image %s was looked at", image)
	return nil, errors.New("no")
}

func (n noRegistry) File(_ context.Context, image, _ string, _ int64) ([]byte, error) {
	n.Errorf("image %s was looked at", image)
	return nil, errors.New("no")
}

func external() *configv1.Infrastructure {
	return &configv1.Infrastructure{
		ObjectMeta: metav1.ObjectMeta{Name: "cluster"},
		Status:     configv1.InfrastructureStatus{ControlPlaneTopology: configv1.ExternalTopologyMode},
	}
}

func TestAnExternalControlPlaneOpensNoConnection(t *testing.T) {
	w := newWorld(t)
	set := w.pushStream("rhel-9")
	release := w.pushRelease("5.0.0", set)
	config := &mcfgv1.ControllerConfig{
		ObjectMeta: metav1.ObjectMeta{Name: "machine-config-controller"},
		Spec:       mcfgv1.ControllerConfigSpec{BaseOSContainerImage: string(set.OSImage), BaseOSExtensionsContainerImage: string(set.OSExtensionsImage)},
	}
	for _, object := range []client.Object{external(), clusterVersion("5.0.0", "5.0.0", release), config} {
		w.create(object)
	}
	w.options.Images = func(registry.Access) ImageReader { return noRegistry{t} }
	w.registry.Requests()

	w.mustReconcile()
	if w.object() != nil || !strings.Contains(w.said(), "no requested default stream") {
		t.Errorf("object %v", w.object())
	}
	existing := &mcfgv1.OSImageStream{ObjectMeta: metav1.ObjectMeta{Name: "cluster"}, Spec: mcfgv1.OSImageStreamSpec{DefaultStream: "rhel-10"}}
	w.create(existing)
	object := w.mustReconcile()
	want := []streams.Set{{Name: "rhel-10", OSImage: set.OSImage, OSExtensionsImage: set.OSExtensionsImage}}
	if diff := cmp.Diff(want, object.Status.AvailableStreams); diff != "" {
		t.Errorf("one stream, with the name that was asked for: %s", diff)
	}
	if asked := w.registry.Requests(); len(asked) > 0 {
		t.Errorf("requests %v", asked)
	}
}

func TestAnExternalControlPlaneNamesStreamsByThePayloadsTags(t *testing.T) {
	image := func(tag string) mcfgv1.ImageDigestFormat {
		return mcfgv1.ImageDigestFormat("registry.example.com/ocp/" + tag + "@sha256:" + strings.Repeat("1", 64))
	}
	w := newWorld(t, external(), configMap(machineconfiguration.ConfigMapPayload, machineconfiguration.KeyPayload, tagged("5.0.0", strings.Fields(bothTags)...)))
	w.options.Images = func(registry.Access) ImageReader { return noRegistry{t} }
	w.create(&mcfgv1.ControllerConfig{
		ObjectMeta: metav1.ObjectMeta{Name: "machine-config-controller"},
		Spec: mcfgv1.ControllerConfigSpec{
			BaseOSContainerImage: string(image("rhel-coreos")), BaseOSExtensionsContainerImage: string(image("rhel-coreos-extensions")),
		},
	})
	w.create(&mcfgv1.OSImageStream{ObjectMeta: metav1.ObjectMeta{Name: "cluster"}, Spec: mcfgv1.OSImageStreamSpec{DefaultStream: "rhel-10"}})
	object := w.mustReconcile()
	if diff := cmp.Diff([]string{"rhel-10", "rhel-9"}, streams.Names(object.Status.AvailableStreams)); diff != "" {
		t.Error(diff)
	}
	for _, set := range object.Status.AvailableStreams {
		if isTen := strings.Contains(string(set.OSImage), "rhel-coreos-10"); isTen != (set.Name == "rhel-10") {
			t.Errorf("stream %s has the image %s", set.Name, set.OSImage)
		}
	}
	t.Run("a request that no tag has is an error that says so", func(t *testing.T) {
		if err := w.client.Update(t.Context(), configMap(machineconfiguration.ConfigMapPayload,
			machineconfiguration.KeyPayload, tagged("5.0.0", "rhel-coreos", "rhel-coreos-extensions"))); err != nil {
			t.Fatal(err)
		}
		object := w.mustReconcile()
		if !strings.Contains(problems(object), `requested default stream \"rhel-10\" is not in the payload 5.0.0`) || len(object.Status.AvailableStreams) != 2 {
			t.Errorf("streams %v, problems %s", streams.Names(object.Status.AvailableStreams), problems(object))
		}
	})
}

func TestAStreamThatGoesHoldsAnUpdateBack(t *testing.T) {
	w := newWorld(t, &mcfgv1.MachineConfigPool{ObjectMeta: metav1.ObjectMeta{Name: "worker"}})
	nine, ten := w.pushStream("rhel-9"), w.pushStream("rhel-10")
	w.create(configMap(machineconfiguration.ConfigMapPayload,
		machineconfiguration.KeyPayload, payload("4.22.0", nine, ten), machineconfiguration.KeyNextPayload, payload("5.0.0", ten)))
	w.create(clusterVersion("4.20.0", "4.22.0", "registry.example.com/release@sha256:"+strings.Repeat("1", 64)))
	object := w.mustReconcile()
	operator := &configv1.ClusterOperator{}
	if err := w.client.Get(t.Context(), client.ObjectKey{Name: "imagemode"}, operator); err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(operator.Status.Conditions, func(c configv1.ClusterOperatorStatusCondition) bool { return c.Type == "Upgradeable" })
	if i < 0 || operator.Status.Conditions[i].Status != configv1.ConditionFalse || !strings.Contains(operator.Status.Conditions[i].Message, "rhel-9, which is used by MachineConfigPools worker") {
		t.Fatalf("conditions %+v", operator.Status.Conditions)
	}
	if said := w.said(); !strings.Contains(said, "OSStreamRemovalPending") || !strings.Contains(problems(object), "rhel-9") {
		t.Errorf("events %s, problems %s", said, problems(object))
	}
	w.writes = 0
	w.mustReconcile()
	if w.writes > 0 || w.said() != "" {
		t.Errorf("%d writes when nothing changed", w.writes)
	}
	pool := &mcfgv1.MachineConfigPool{ObjectMeta: metav1.ObjectMeta{Name: "worker"}}
	if err := w.client.Patch(t.Context(), pool, client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"osImageStream":{"name":"rhel-10"}}}`))); err != nil {
		t.Fatal(err)
	}
	w.mustReconcile()
	if err := w.client.Get(t.Context(), client.ObjectKey{Name: "imagemode"}, operator); err != nil {
		t.Fatal(err)
	}
	if operator.Status.Conditions[i].Status != configv1.ConditionTrue {
		t.Errorf("conditions %+v", operator.Status.Conditions)
	}
}

func TestAPoolWithAnImageOfItsOwnUsesNoStream(t *testing.T) {
	w := newWorld(t, builders.MachineConfigPool("worker", builders.Rendered("rendered-worker-1")))
	nine, ten := w.pushStream("rhel-9"), w.pushStream("rhel-10")
	w.create(configMap(machineconfiguration.ConfigMapPayload,
		machineconfiguration.KeyPayload, payload("4.22.0", nine, ten), machineconfiguration.KeyNextPayload, payload("5.0.0", ten)))
	w.create(clusterVersion("4.20.0", "4.22.0", "registry.example.com/release@sha256:"+strings.Repeat("1", 64)))
	if object := w.mustReconcile(); !strings.Contains(problems(object), "rhel-9, which is used by MachineConfigPools worker") {
		t.Fatalf("problems %s", problems(object))
	}
	rendered := builders.MachineConfig("rendered-worker-1", "worker", builders.OSImageURL("registry.example.com/mine@sha256:"+strings.Repeat("2", 64)))
	rendered.Annotations = map[string]string{
		machineconfiguration.AnnotationGeneratedByControllerVersion: "1", machineconfiguration.AnnotationOSImageURLOverridden: "true",
	}
	w.create(rendered)
	if object := w.mustReconcile(); problems(object) != "" {
		t.Errorf("problems %s", problems(object))
	}
}

func TestAFailedWriteBetweenTwoIsMadeUpFor(t *testing.T) {
	for name, fail := range map[string]func(*world, *bool){
		"of the status": func(w *world, failed *bool) {
			w.faults.SubResourcePatch = func(ctx context.Context, next client.Client, kind string, object client.Object, patch client.Patch, options ...client.SubResourcePatchOption) error {
				if !*failed {
					*failed = true
					return errors.New("the API server is away")
				}
				return next.SubResource(kind).Patch(ctx, object, patch, options...)
			}
		},
		"of the annotations": func(w *world, failed *bool) {
			w.faults.Patch = func(ctx context.Context, next client.WithWatch, object client.Object, patch client.Patch, options ...client.PatchOption) error {
				if !*failed {
					*failed = true
					return errors.New("the API server is away")
				}
				return next.Patch(ctx, object, patch, options...)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			release := w.pushRelease("5.0.0", w.pushStream("rhel-10"))
			w.create(clusterVersion("5.0.0", "5.0.0", release))
			failed := false
			fail(w, &failed)
			if _, err := w.reconcile(); err == nil || !failed {
				t.Fatal("the write did not fail")
			}
			if stamp := w.object().Annotations[machineconfiguration.AnnotationReleasePayloadImage]; stamp != "" {
				t.Errorf("stamped %q before everything was written", stamp)
			}
			w.restart()
			object := w.mustReconcile()
			if len(object.Status.AvailableStreams) != 1 || object.Annotations[machineconfiguration.AnnotationReleasePayloadImage] != release {
				t.Errorf("status %+v, annotations %v", object.Status, object.Annotations)
			}
		})
	}
}

func TestAnObjectWithAnEmptySpecGetsItsDefaultRecorded(t *testing.T) {
	w := newWorld(t, &mcfgv1.OSImageStream{ObjectMeta: metav1.ObjectMeta{Name: "cluster"}})
	w.create(configMap(machineconfiguration.ConfigMapStreams, "b", entryOf(w.pushStream("b")), "a", entryOf(w.pushStream("a"))))
	object := w.mustReconcile()
	if object.Spec.DefaultStream != "a" || object.Status.DefaultStream != "a" || !strings.Contains(w.said(), "first by name") {
		t.Errorf("spec %q, status %q", object.Spec.DefaultStream, object.Status.DefaultStream)
	}
}

func TestABrokenSecretIsNamedAndTheOtherCounts(t *testing.T) {
	w := newWorld(t)
	set := w.pushStream("a")
	good := w.registry.AddUser("puller", "secret")
	w.create(configMap(machineconfiguration.ConfigMapPayload, machineconfiguration.KeyPayload, payload("x", set)))
	w.create(dockerSecret(pullSecret, []byte("{")))
	w.create(dockerSecret("base-pull", good))
	osConfig := &mcfgv1.MachineOSConfig{ObjectMeta: metav1.ObjectMeta{Name: "worker"}}
	osConfig.Spec.BaseImagePullSecret = &mcfgv1.ImageSecretObjectReference{Name: "base-pull"}
	w.create(osConfig)
	object := w.mustReconcile()
	if len(object.Status.AvailableStreams) != 1 || !strings.Contains(problems(object), pullSecret) || strings.Contains(problems(object), "secret\"") {
		t.Errorf("status %+v, problems %s", object.Status, problems(object))
	}
}

func TestADefaultOutlivesADeletionThatNobodySaw(t *testing.T) {
	w := newWorld(t)
	w.create(configMap(machineconfiguration.ConfigMapStreams, "b", entryOf(w.pushStream("b")), "a", entryOf(w.pushStream("a"))))
	w.mustReconcile()
	chosen := w.object()
	chosen.Spec.DefaultStream = "b"
	if err := w.client.Update(t.Context(), chosen); err != nil {
		t.Fatal(err)
	}
	w.mustReconcile()
	if err := w.client.Delete(t.Context(), chosen); err != nil {
		t.Fatal(err)
	}
	w.restart()
	if object := w.mustReconcile(); object.Spec.DefaultStream != "b" || object.Status.DefaultStream != "b" {
		t.Errorf("spec %q, status %q", object.Spec.DefaultStream, object.Status.DefaultStream)
	}
}

func TestPayloadsAreReadForOthersAndKept(t *testing.T) {
	w := newWorld(t)
	image := w.pushRelease("5.0.0", w.pushStream("rhel-10"))
	payloads := NewPayloads(w.client, w.options)
	for range 2 {
		payload, err := payloads.Read(t.Context(), image)
		if err != nil || payload.Version != "5.0.0" || len(payload.Images) != 2 {
			t.Fatalf("%+v, %v", payload, err)
		}
		w.registry.Fail(func(*http.Request) int { return http.StatusBadGateway })
	}
	var transient *TransientError
	if _, err := payloads.Read(t.Context(), w.registry.Host+"/other@sha256:"+strings.Repeat("1", 64)); !errors.As(err, &transient) {
		t.Errorf("error %v", err)
	}
}
