package osimagestream

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/imagemode/imagemode/api/machineconfiguration"
	"github.com/imagemode/imagemode/builder/request"
	"github.com/imagemode/imagemode/controllers/osimagestream/streams"
	"github.com/imagemode/imagemode/registry"
)

// asked is an ImageReader that notes what it is asked. Images in broken cannot be read.
type asked struct {
	mutex  sync.Mutex
	images []string
	broken map[string]error
}

func (a *asked) note(image string) error {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	a.images = append(a.images, image)
	return a.broken[image]
}

func (a *asked) Labels(_ context.Context, image string) (map[string]string, error) {
	return map[string]string{streams.LabelStream: "of-" + image[len(image)-2:]}, a.note(image)
}

func (a *asked) File(_ context.Context, image, _ string, _ int64) ([]byte, error) {
	return []byte(payload("5.0.0")), a.note(image)
}

// said gives, sorted, what was asked since the last call.
func (a *asked) said() []string {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	images := slices.Sorted(slices.Values(a.images))
	a.images = nil
	return images
}

func TestWhatIsKnownIsNotAskedAgain(t *testing.T) {
	images := numbered(4)
	gone := &registry.Error{Class: request.Image, Image: images[3], Err: errors.New("no such manifest")}
	reads := &asked{broken: map[string]error{images[3]: gone}}
	reader := &inspector{images: reads, cache: newImageCache(time.Now), backoff: quick}
	for _, step := range []struct {
		name         string
		images, want []string
		failures     int
	}{
		{"nothing is known", images[:2], images[:2], 0},
		{"all is known", images[:2], nil, 0},
		{"some is known", images[:3], images[2:3], 0},
		{"an image that is named twice is asked once, and a failure takes nothing from the others", []string{images[3], images[0], images[3]}, images[3:], 1},
		{"a failure is not kept", images, images[3:], 1},
	} {
		results := reader.labels(t.Context(), step.images)
		if diff := cmp.Diff(step.want, reads.said()); diff != "" {
			t.Errorf("%s: %s", step.name, diff)
		}
		failures := 0
		for image, result := range results {
			if result.err != nil {
				failures++
			} else if result.labels[streams.LabelStream] != "of-"+image[len(image)-2:] {
				t.Errorf("%s: %s has %v", step.name, image, result.labels)
			}
		}
		if failures != step.failures {
			t.Errorf("%s: %d failures, want %d", step.name, failures, step.failures)
		}
	}
	reads.broken = nil
	if results := reader.labels(t.Context(), images[3:]); results[images[3]].err != nil {
		t.Error("an image that came later is not read:", results[images[3]].err)
	}
}

func TestATagIsAskedEachTime(t *testing.T) {
	const tag = "registry.example.com/release:5.0"
	reads := &asked{}
	reader := &inspector{images: reads, cache: newImageCache(time.Now), backoff: quick}
	for range 2 {
		if payload, err := reader.payload(t.Context(), tag); err != nil || payload.Version != "5.0.0" {
			t.Fatal(payload, err)
		}
		if result := reader.labels(t.Context(), []string{tag})[tag]; result.err != nil {
			t.Fatal(result.err)
		}
		if said := reads.said(); len(said) != 2 {
			t.Errorf("asked for %v", said)
		}
	}
	if kept := reader.cache.encode(); len(kept) > 0 {
		t.Errorf("kept %v", kept)
	}
}

// A release image has labels and a payload: one entry holds both.
func TestAnEntryTakesInWhatIsReadLater(t *testing.T) {
	image := numbered(1)[0]
	reads := &asked{}
	reader := &inspector{images: reads, cache: newImageCache(time.Now), backoff: quick}
	reader.labels(t.Context(), []string{image})
	if _, err := reader.payload(t.Context(), image); err != nil {
		t.Fatal(err)
	}
	reads.said()
	restarted := &inspector{images: reads, cache: newImageCache(time.Now), backoff: quick}
	restarted.cache.load(reader.cache.encode())
	labels := restarted.labels(t.Context(), []string{image})[image].labels
	payload, err := restarted.payload(t.Context(), image)
	if labels[streams.LabelStream] == "" || err != nil || payload.Version != "5.0.0" || len(reads.said()) > 0 {
		t.Errorf("labels %v, payload %+v, error %v", labels, payload, err)
	}
}

// A payload that makes no sense is not kept: it may have been cut off on the way.
func TestABrokenPayloadIsNotKept(t *testing.T) {
	w := newWorld(t)
	image := w.pushReferences("{")
	w.create(clusterVersion("5.0.0", "5.0.0", image))
	w.create(configMap(machineconfiguration.ConfigMapStreams, "good", entryOf(w.pushStream("good"))))
	w.mustReconcile()
	if _, isKept := w.cache.payload(image); isKept {
		t.Error("it is kept")
	}
}

func TestTheCacheKeepsWhatWasUsedLast(t *testing.T) {
	clock := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	cache := newImageCache(func() time.Time { clock = clock.Add(time.Second); return clock })
	images := numbered(maxCacheEntries + 5)
	for _, image := range images {
		cache.putLabels(image, map[string]string{streams.LabelStream: "a"})
	}
	cache.labels(images[0])
	data := cache.encode()
	if len(data) != maxCacheEntries {
		t.Fatalf("%d entries", len(data))
	}
	other := newImageCache(time.Now)
	other.load(data)
	for i, wanted := range map[int]bool{0: true, 1: false, 5: false, 6: true} {
		if _, found := other.labels(images[i]); found != wanted {
			t.Errorf("image %d: kept %t", i, found)
		}
	}
	if !isKept(data, other.encode()) || isKept(data, nil) {
		t.Error("a use alone is a reason to write, or a loss is none")
	}
}

func TestTheCacheTakesNoTagsAndNoNonsense(t *testing.T) {
	cache := newImageCache(time.Now)
	cache.putLabels("registry.example.com/os:1", map[string]string{"a": "b"})
	cache.load(map[string]string{
		"sha256-1": "{", "sha256-2": `{"version":1,"labels":{"a":"b"},"hasLabels":true}`, "sha256-3": `{"version":7,"hasLabels":true}`,
		"sha256-4": `{"hasLabels":true}`, "sha256-5": "", "sha256-6": `[]`,
	})
	if _, found := cache.labels("registry.example.com/os:1"); found {
		t.Error("a tag was kept")
	}
	if len(cache.encode()) != 1 {
		t.Errorf("entries %v", cache.encode())
	}
}

// What another version of this program kept is read anew, once.
func TestWhatAnotherVersionKeptIsReadAnew(t *testing.T) {
	w := newWorld(t)
	set := w.pushStream("debian-13", streams.LabelRuntimes, "crun")
	w.create(configMap(machineconfiguration.ConfigMapStreams, "debian-13", entryOf(set)))
	w.create(configMap(machineconfiguration.ConfigMapImageLabels, cacheKey(string(set.OSImage)), `{"hasLabels":true,"labels":{}}`))
	object := w.mustReconcile()
	if got := streams.RuntimesOf(object, "debian-13"); len(got) != 1 {
		t.Errorf("runtimes %v", got)
	}
	w.restart()
	w.registry.Requests()
	w.writes = 0
	w.mustReconcile()
	if asked := w.registry.Requests(); len(asked) > 0 || w.writes > 0 {
		t.Errorf("after a restart: requests %v, %d writes", asked, w.writes)
	}
}

// All that can be in use at a time fits in.
func TestTheCacheHoldsAllThatIsInUse(t *testing.T) {
	cache := newImageCache(time.Now)
	labels := map[string]string{streams.LabelStream: strings.Repeat("s", 60), streams.LabelBootc: "1", streams.LabelRuntimes: "crun,runc"}
	const payloads, imagesOfOne = 2, 200
	images := numbered(payloads*imagesOfOne + 100 + streams.MaxOverrides + payloads)
	for _, image := range images[payloads:] {
		cache.putLabels(image, labels)
	}
	for _, image := range images[:payloads] {
		big := &streams.Payload{Version: "5.0.0"}
		for _, named := range numbered(imagesOfOne) {
			big.Images = append(big.Images, streams.PayloadImage{Tag: "rhel-coreos-10-extensions", Image: named})
		}
		cache.putPayload(image, big)
	}
	if kept := len(cache.encode()); kept != len(images) {
		t.Errorf("%d of %d are kept", kept, len(images))
	}
}
