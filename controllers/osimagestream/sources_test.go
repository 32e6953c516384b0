package osimagestream

import (
	"context"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	configv1 "github.com/openshift/api/config/v1"
	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/imagemode/imagemode/api/machineconfiguration"
	"github.com/imagemode/imagemode/controllers/osimagestream/streams"
	"github.com/imagemode/imagemode/test/builders"
)

// pairOf is ConfigMap machine-config-osimageurl with the images of a stream.
func pairOf(set streams.Set, version string) []string {
	return []string{streams.KeyBaseImage, string(set.OSImage), streams.KeyExtensionsImage, string(set.OSExtensionsImage), streams.KeyReleaseVersion, version}
}

// The same stream in every source: those that come later win, as a whole.
func TestEachSourceOverrulesThoseBefore(t *testing.T) {
	w := newWorld(t)
	of := map[string]streams.Set{}
	for _, source := range []string{"options", "pair", "map", "payload"} {
		of[source] = w.pushStream("rhel-9", "from", source)
	}
	only := w.pushStream("rhel-10")
	for _, step := range []struct {
		source string
		add    func()
		want   []streams.Set
	}{
		{"the command line", func() {
			w.options.Pair = streams.Pair{OSImage: string(of["options"].OSImage), ExtensionsImage: string(of["options"].OSExtensionsImage)}
		}, []streams.Set{of["options"]}},
		{"ConfigMap machine-config-osimageurl", func() {
			w.create(configMap(machineconfiguration.ConfigMapOSImageURL, pairOf(of["pair"], "5.0.0")...))
		}, []streams.Set{of["pair"]}},
		{"ConfigMap imagemode-streams", func() {
			w.create(configMap(machineconfiguration.ConfigMapStreams, "rhel-9", entryOf(of["map"]), "rhel-10", entryOf(only)))
		}, []streams.Set{only, of["map"]}},
		{"the payload", func() {
			w.create(configMap(machineconfiguration.ConfigMapPayload, machineconfiguration.KeyPayload, payload("5.0.0", of["payload"])))
		}, []streams.Set{only, of["payload"]}},
	} {
		step.add()
		object := w.mustReconcile()
		if diff := cmp.Diff(step.want, object.Status.AvailableStreams); diff != "" || problems(object) != "" {
			t.Errorf("%s: %s, problems %s", step.source, diff, problems(object))
		}
	}
}

// What somebody has named by hand is never passed over without a word.
func TestAPairThatMakesNoStreamSaysWhy(t *testing.T) {
	for name, tc := range map[string]struct {
		pair    func(w *world) []string
		problem string
	}{
		"images without labels": {func(w *world) []string {
			return []string{streams.KeyBaseImage, w.pushImage("a", "x", "y"), streams.KeyExtensionsImage, w.pushImage("b", "x", "y")}
		}, "neither image has the label " + streams.LabelStream},
		"only the OS image is one of a stream": {func(w *world) []string {
			return []string{streams.KeyBaseImage, string(w.pushStream("half").OSImage), streams.KeyExtensionsImage, w.pushImage("b", "x", "y")}
		}, "is its OS image, and no image has the labels"},
		"only the extensions image is": {func(w *world) []string {
			return []string{streams.KeyBaseImage, w.pushImage("a", "x", "y"), streams.KeyExtensionsImage, string(w.pushStream("half").OSExtensionsImage)}
		}, "is its extensions image, and no image has the labels"},
		"images of two streams": {func(w *world) []string {
			return []string{streams.KeyBaseImage, string(w.pushStream("half").OSImage), streams.KeyExtensionsImage, string(w.pushStream("other").OSExtensionsImage)}
		}, "is its extensions image"},
		"an image that does not exist": {func(w *world) []string {
			set := w.pushStream("half")
			return []string{streams.KeyBaseImage, w.registry.Host + "/os/half" + manifestDigest, streams.KeyExtensionsImage, string(set.OSExtensionsImage)}
		}, "does not exist"},
		"half of it": {func(w *world) []string { return []string{streams.KeyBaseImage, string(w.pushStream("half").OSImage)} }, "baseOSExtensionsContainerImage is missing"},
		"the other half": {func(w *world) []string {
			return []string{streams.KeyExtensionsImage, string(w.pushStream("half").OSImage)}
		}, "baseOSContainerImage is missing"},
		"of another release": {func(w *world) []string { return pairOf(w.pushStream("half"), "4.20.0") }, "releaseVersion is 4.20.0 and the cluster's release is 5.0.0"},
		"a name too long": {func(w *world) []string {
			name := strings.Repeat("s", 300)
			return []string{streams.KeyBaseImage, w.pushImage("a", streams.LabelStream, name, streams.LabelBootc, "1"),
				streams.KeyExtensionsImage, w.pushImage("b", streams.LabelStream, name, streams.LabelExtensions, "true")}
		}, "cannot be the name of a stream"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			good := w.pushStream("good")
			w.create(configMap(machineconfiguration.ConfigMapStreams, "good", entryOf(good)))
			w.create(clusterVersion("5.0.0", "5.0.0", ""))
			w.create(configMap(machineconfiguration.ConfigMapOSImageURL, tc.pair(w)...))
			object := w.mustReconcile()
			if diff := cmp.Diff([]streams.Set{good}, object.Status.AvailableStreams); diff != "" {
				t.Error(diff)
			}
			if !strings.Contains(problems(object), tc.problem) || !strings.Contains(problems(object), "machine-config-osimageurl") {
				t.Errorf("problems %s", problems(object))
			}
		})
	}
	t.Run("half of it on the command line", func(t *testing.T) {
		w := newWorld(t)
		w.options.Pair = streams.Pair{OSImage: string(w.pushStream("half").OSImage)}
		w.mustReconcile()
		if said := w.said(); w.object() != nil || !strings.Contains(said, "--base-os-extensions-image is missing") {
			t.Errorf("object %+v, events %s", w.object(), said)
		}
	})
}

func TestWithoutAnySourceThereIsNoObject(t *testing.T) {
	w := newWorld(t)
	result, err := w.reconcile()
	if w.object() != nil || err != nil || result.RequeueAfter != 0 || w.writes > 0 || w.said() != "" {
		t.Errorf("object %+v, error %v, next look in %v, %d writes", w.object(), err, result.RequeueAfter, w.writes)
	}
}

func TestWhenEverySourceFailsThatIsSaidAndTriedAgain(t *testing.T) {
	w := newWorld(t)
	nine := w.pushStream("rhel-9")
	w.create(clusterVersion("4.20.0", "5.0.0", w.pushRelease("5.0.0", nine)))
	w.create(configMap(machineconfiguration.ConfigMapOSImageURL, pairOf(nine, "5.0.0")...))
	w.registry.Fail(func(*http.Request) int { return http.StatusServiceUnavailable })
	result, err := w.reconcile()
	if said := w.said(); w.object() != nil || err != nil || result.RequeueAfter == 0 || !strings.Contains(said, "release image") || !strings.Contains(said, "machine-config-osimageurl") {
		t.Errorf("object %+v, error %v, next look in %v, events %s", w.object(), err, result.RequeueAfter, said)
	}
	if _, err := w.reconcile(); err != nil || w.said() != "" {
		t.Error("it is said twice", err)
	}
	w.registry.Fail(nil)
	if object := w.mustReconcile(); len(object.Status.AvailableStreams) != 1 || object.Spec.DefaultStream != "rhel-9" {
		t.Errorf("%+v", object)
	}
}

// A pair whose registry hangs, for as long as may be, takes nothing from the payload.
func TestASourceThatHangsTakesNoTimeFromOthers(t *testing.T) {
	w := newWorld(t)
	nine, hung := w.pushStream("rhel-9"), w.pushStream("hung")
	w.create(clusterVersion("4.20.0", "5.0.0", w.pushRelease("5.0.0", nine)))
	w.create(configMap(machineconfiguration.ConfigMapOSImageURL, pairOf(hung, "5.0.0")...))
	w.options.Pair = streams.Pair{OSImage: string(hung.OSImage), ExtensionsImage: string(hung.OSExtensionsImage)}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	w.registry.Fail(func(request *http.Request) int {
		if strings.Contains(request.URL.Path, "/os/hung") {
			select {
			case <-request.Context().Done():
			case <-ctx.Done():
			}
		}
		return 0
	})
	scope, err := w.gather(ctx)
	if err != nil {
		t.Fatal(err)
	}
	access, cleanUp, err := scope.wayIn.open()
	if err != nil {
		t.Fatal(err)
	}
	defer cleanUp()
	found := w.discover(ctx, scope, newInspector(w.options.Images(access), w.cache, quick))
	if merged := streams.Merge(found.sources...); len(merged.Streams) != 1 || merged.Streams[0] != nine || len(found.gaps.Unread) != 4 {
		t.Errorf("%+v, gaps %+v", merged, found.gaps)
	}
}

func TestAnUpgradeBringsNewImagesAndLeavesTheDefault(t *testing.T) {
	w := newWorld(t)
	nine, ten := w.pushStream("rhel-9"), w.pushStream("rhel-10")
	w.create(clusterVersion("4.20.0", "5.0.0", w.pushRelease("5.0.0", nine, ten)))
	w.mustReconcile()
	chosen := w.object()
	chosen.Spec.DefaultStream = "rhel-10"
	if err := w.client.Update(t.Context(), chosen); err != nil {
		t.Fatal(err)
	}
	newNine, newTen, eleven := w.pushStream("rhel-9", "v", "5.1"), w.pushStream("rhel-10", "v", "5.1"), w.pushStream("rhel-11")
	if err := w.client.Delete(t.Context(), &configv1.ClusterVersion{ObjectMeta: metav1.ObjectMeta{Name: "version"}}); err != nil {
		t.Fatal(err)
	}
	w.create(clusterVersion("4.20.0", "5.1.0", w.pushRelease("5.1.0", newNine, newTen, eleven)))
	object := w.mustReconcile()
	want := mcfgv1.OSImageStreamStatus{AvailableStreams: []streams.Set{newTen, eleven, newNine}, DefaultStream: "rhel-10"}
	if diff := cmp.Diff(want, object.Status); diff != "" || object.Spec.DefaultStream != "rhel-10" {
		t.Errorf("default %q: %s", object.Spec.DefaultStream, diff)
	}
}

// The next release counts also where no release image names the present one.
func TestTheNextPayloadNeedsNoPresentOne(t *testing.T) {
	w := newWorld(t, builders.MachineConfigPool("worker"))
	nine, ten := w.pushStream("rhel-9"), w.pushStream("rhel-10")
	w.create(configMap(machineconfiguration.ConfigMapStreams, "rhel-9", entryOf(nine)))
	w.create(configMap(machineconfiguration.ConfigMapPayload, machineconfiguration.KeyNextPayload, payload("5.0.0", ten)))
	if object := w.mustReconcile(); !strings.Contains(problems(object), "the next release has no OS image stream rhel-9") {
		t.Errorf("problems %s", problems(object))
	}
}

// A next release whose images cannot be read, or are not mirrored yet, is not one
// that lacks the stream.
func TestANextReleaseThatIsNotThereYetHoldsNothingBack(t *testing.T) {
	for name, spoil := range map[string]func(w *world, set streams.Set) streams.Set{
		"not mirrored yet": func(w *world, set streams.Set) streams.Set {
			set.OSImage = mcfgv1.ImageDigestFormat(w.registry.Host + "/os/rhel-9" + manifestDigest)
			return set
		},
		"not to be read": func(w *world, set streams.Set) streams.Set {
			set.OSImage = mcfgv1.ImageDigestFormat(w.pushImage("os/rhel-9-next", streams.LabelStream, "rhel-9", streams.LabelBootc, "1"))
			w.registry.Fail(func(request *http.Request) int {
				if strings.Contains(request.URL.Path, "/os/rhel-9-next/") {
					return http.StatusServiceUnavailable
				}
				return 0
			})
			return set
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, builders.MachineConfigPool("worker"))
			nine, ten := w.pushStream("rhel-9"), w.pushStream("rhel-10")
			w.create(configMap(machineconfiguration.ConfigMapPayload, machineconfiguration.KeyPayload, payload("4.22.0", nine),
				machineconfiguration.KeyNextPayload, payload("5.0.0", spoil(w, nine), ten)))
			if object := w.mustReconcile(); problems(object) != "" {
				t.Errorf("problems %s", problems(object))
			}
		})
	}
}

// The files that registries are reached with hold credentials.
func TestNothingIsLeftOfTheWayToRegistries(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	w := newWorld(t)
	w.create(dockerSecret(pullSecret, w.registry.AddUser("puller", "secret")))
	w.create(configMap(machineconfiguration.ConfigMapPayload, machineconfiguration.KeyPayload, payload("5.0.0", w.pushStream("rhel-9"))))
	if object := w.mustReconcile(); len(object.Status.AvailableStreams) != 1 {
		t.Fatalf("%+v", object)
	}
	left, err := os.ReadDir(os.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range left {
		if strings.HasPrefix(entry.Name(), "streams-") {
			t.Errorf("%s is left", entry.Name())
		}
	}
}
