package osimagestream

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/imagemode/imagemode/api/machineconfiguration"
	"github.com/imagemode/imagemode/controllers/osimagestream/streams"
	"github.com/imagemode/imagemode/registry"
	"github.com/imagemode/imagemode/test/builders"
)

func TestTheImagesOfPoolsComeFirst(t *testing.T) {
	image := func(name string) string { return "registry.example.com/" + name + manifestDigest }
	config := func(name, role, image string) mcfgv1.MachineConfig {
		return *builders.MachineConfig(name, role, builders.OSImageURL(image))
	}
	generated := config("00-worker", "worker", image("generated"))
	generated.Annotations = map[string]string{machineconfiguration.AnnotationGeneratedByControllerVersion: "1"}
	odd := builders.MachineConfigPool("odd")
	odd.Spec.MachineConfigSelector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "x", Operator: "odd"}}}
	got := overridesOf(
		[]mcfgv1.MachineConfigPool{*builders.MachineConfigPool("worker"), *builders.MachineConfigPool("infra"), *builders.MachineConfigPool("master"), *odd},
		[]mcfgv1.MachineConfig{
			generated, config("10-old", "worker", image("old")), config("50-z", "worker", image("z")), config("50-m", "infra", image("m")),
			config("50-a", "nobody", image("a")), config("60-tag", "master", "registry.example.com/tag:1"), config("70-none", "worker", ""),
		})
	want := []string{image("m"), image("z"), image("a"), image("old")}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// Images that do not answer, whatever their names, cost those before them nothing.
func TestImagesThatHangTakeNoTimeFromThoseBefore(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	needed := "registry.example.com/zzz@sha256:" + strings.Repeat("f", 64)
	reader := &inspector{cache: newImageCache(time.Now), backoff: quick, images: reads(func(ctx context.Context, image string) (map[string]string, error) {
		if image != needed {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		return map[string]string{streams.LabelStream: "a"}, nil
	})}
	results := reader.labels(ctx, append([]string{needed}, numbered(20)...))
	if result := results[needed]; result.err != nil || len(results) != 21 {
		t.Errorf("error %v, %d answers", result.err, len(results))
	}
}

// An image that a MachineConfig names and that hangs holds up the streams for half a
// minute, and it is known then that it hangs.
func TestAnImageThatHangsIsGivenUpSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hung := numbered(1)[0]
		reader := newInspector(reads(func(ctx context.Context, _ string) (map[string]string, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}), newImageCache(time.Now), attemptBackoff)
		decided := outcome{}
		began := time.Now()
		(&reconciler{}).learnTraits(t.Context(), &scope{overrides: []string{hung}}, &decided, reader)
		if took := time.Since(began); took > traitsTimeout {
			t.Errorf("it took %v", took)
		}
		if override := decided.overrides[streams.DigestOf(hung)]; !strings.Contains(override.Unread, "tried again") || decided.isComplete() {
			t.Errorf("%+v", override)
		}
	})
}

// More images than can be noted: that is said, and the pools' are among those read.
func TestMoreImagesThanAreReadAreSaid(t *testing.T) {
	w := newWorld(t, builders.MachineConfigPool("worker"))
	w.create(configMap(machineconfiguration.ConfigMapStreams, "a", "osImage: registry.example.com/os/a"+manifestDigest))
	images := numbered(streams.MaxOverrides + 5)
	for i, image := range images {
		w.create(builders.MachineConfig(fmt.Sprintf("50-junk-%03d", i), "nobody", builders.OSImageURL(image)))
	}
	last := "registry.example.com/zzz@sha256:" + strings.Repeat("f", 64)
	w.create(builders.MachineConfig("99-mine", "worker", builders.OSImageURL(last)))
	w.options.Images = func(registry.Access) ImageReader {
		return reads(func(context.Context, string) (map[string]string, error) { return nil, nil })
	}
	object := w.mustReconcile()
	known := streams.DecodeOverrides(object)
	if _, isKnown := known[streams.DigestOf(last)]; !isKnown || len(known) != streams.MaxOverrides {
		t.Errorf("%d are known, that of the pool: %t", len(known), isKnown)
	}
	if !strings.Contains(problems(object), fmt.Sprintf("they name %d OS images", len(images)+1)) {
		t.Errorf("problems %s", problems(object))
	}
}

// Why an image was not read stands beside those that were, for the pools that need
// to know, and the look is made again.
func TestWhyLabelsWereNotReadIsNoted(t *testing.T) {
	w := newWorld(t)
	set := w.pushStream("debian-13", streams.LabelRuntimes, "crun")
	mine := w.pushImage("mine", streams.LabelStream, "rhel-10")
	missing := w.registry.Host + "/mine" + manifestDigest
	w.create(configMap(machineconfiguration.ConfigMapStreams, "debian-13", entryOf(set)))
	w.create(builders.MachineConfig("50-mine", "worker", builders.OSImageURL(mine)))
	w.registry.Fail(func(*http.Request) int { return http.StatusServiceUnavailable })
	result, err := w.reconcile()
	if err != nil || result.RequeueAfter == 0 || result.RequeueAfter > lastRetry/2 {
		t.Errorf("error %v, next look in %v", err, result.RequeueAfter)
	}
	const away = "cannot be read now, and is tried again"
	traits, override := streams.DecodeTraits(w.object())["debian-13"], streams.DecodeOverrides(w.object())[streams.DigestOf(mine)]
	if !strings.Contains(traits.Unread, away) || traits.Image != "" || !strings.Contains(override.Unread, away) {
		t.Errorf("%+v, %+v", traits, override)
	}
	w.registry.Fail(nil)
	object := w.mustReconcile()
	if traits := streams.DecodeTraits(object)["debian-13"]; traits.Unread != "" || !slices.Equal(traits.Runtimes, []string{"crun"}) {
		t.Errorf("%+v", traits)
	}
	if diff := cmp.Diff(map[string]streams.Override{streams.DigestOf(mine): {Stream: "rhel-10", Read: true}}, streams.DecodeOverrides(object)); diff != "" {
		t.Error(diff)
	}
	t.Run("an image that does not exist is looked for now and then", func(t *testing.T) {
		w.create(builders.MachineConfig("60-missing", "worker", builders.OSImageURL(missing)))
		result, err := w.reconcile()
		override := streams.DecodeOverrides(w.object())[streams.DigestOf(missing)]
		if err != nil || result.RequeueAfter != lastRetry || !strings.Contains(override.Unread, "does not exist") {
			t.Errorf("error %v, next look in %v, %+v", err, result.RequeueAfter, override)
		}
	})
}

// The image of a stream that is replaced is not taken for the one before.
func TestWhatWasKnownOfAnotherImageDoesNotCount(t *testing.T) {
	w := newWorld(t)
	before, after := w.pushStream("debian-13", streams.LabelRuntimes, "crun,runc"), w.pushStream("debian-13", streams.LabelRuntimes, "crun")
	streamsMap := configMap(machineconfiguration.ConfigMapStreams, "debian-13", entryOf(before))
	w.create(streamsMap)
	if got := streams.RuntimesOf(w.mustReconcile(), "debian-13"); len(got) != 2 {
		t.Fatalf("runtimes %v", got)
	}
	w.registry.Fail(func(*http.Request) int { return http.StatusServiceUnavailable })
	streamsMap.Data["debian-13"] = entryOf(after)
	if err := w.client.Update(t.Context(), streamsMap); err != nil {
		t.Fatal(err)
	}
	object := w.mustReconcile()
	if traits := streams.DecodeTraits(object)["debian-13"]; len(streams.RuntimesOf(object, "debian-13")) > 0 || traits.Unread == "" {
		t.Errorf("%+v", traits)
	}
}

// Where no connection may be opened, nothing waits for labels.
func TestAnExternalControlPlaneWaitsForNoLabels(t *testing.T) {
	w := newWorld(t, external(), &mcfgv1.OSImageStream{ObjectMeta: metav1.ObjectMeta{Name: "cluster"}, Spec: mcfgv1.OSImageStreamSpec{DefaultStream: "rhel-10"}})
	w.create(configMap(machineconfiguration.ConfigMapPayload, machineconfiguration.KeyPayload, tagged("5.0.0", strings.Fields(bothTags)...)))
	mine := "registry.example.com/mine" + manifestDigest
	w.create(builders.MachineConfig("50-mine", "worker", builders.OSImageURL(mine)))
	w.options.Images = func(registry.Access) ImageReader { return noRegistry{t} }
	object := w.mustReconcile()
	for _, set := range object.Status.AvailableStreams {
		if traits := streams.DecodeTraits(object)[set.Name]; traits.Image != streams.DigestOf(string(set.OSImage)) {
			t.Errorf("%s: %+v", set.Name, traits)
		}
	}
	if diff := cmp.Diff(map[string]streams.Override{streams.DigestOf(mine): {Read: true}}, streams.DecodeOverrides(object)); diff != "" {
		t.Error(diff)
	}
	if got := streams.RuntimesOf(object, "rhel-10"); !slices.Equal(got, []string{"crun"}) {
		t.Errorf("runtimes %v", got)
	}
}
