package osimagestream

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/imagemode/imagemode/builder/request"
	"github.com/imagemode/imagemode/controllers/osimagestream/streams"
	"github.com/imagemode/imagemode/registry"
	"github.com/imagemode/imagemode/registry/registrytest"
)

// reads is an ImageReader whose Labels is a function.
type reads func(ctx context.Context, image string) (map[string]string, error)

func (r reads) Labels(ctx context.Context, image string) (map[string]string, error) {
	return r(ctx, image)
}
func (r reads) File(context.Context, string, string, int64) ([]byte, error) {
	return nil, errors.New("no file is read here")
}

func numbered(count int) []string {
	var images []string
	for i := range count {
		images = append(images, fmt.Sprintf("registry.example.com/os@sha256:%064d", i))
	}
	return images
}

func TestFiveImagesAreReadAtATime(t *testing.T) {
	var now, most atomic.Int32
	full := make(chan struct{})
	var once sync.Once
	reader := newInspector(reads(func(context.Context, string) (map[string]string, error) {
		n := now.Add(1)
		defer now.Add(-1)
		for old := most.Load(); n > old && !most.CompareAndSwap(old, n); old = most.Load() {
		}
		if n == parallelInspections {
			once.Do(func() { close(full) })
		}
		<-full // the first ones wait until five are there
		return nil, nil
	}), newImageCache(time.Now), quick)
	// Two who ask at the same time share the five.
	var group sync.WaitGroup
	group.Go(func() { reader.labels(t.Context(), numbered(40)[20:]) })
	results := reader.labels(t.Context(), append(numbered(20), numbered(20)...))
	group.Wait()
	if len(results) != 20 || most.Load() != parallelInspections {
		t.Errorf("%d results, %d at a time", len(results), most.Load())
	}
}

func TestAttempts(t *testing.T) {
	failure := func(class request.FailureClass, text string) error {
		return &registry.Error{Class: class, Image: "i", Err: errors.New(text)}
	}
	for name, tc := range map[string]struct {
		errs        []error
		attempts    int
		isTransient bool
		class       request.FailureClass
	}{
		"works at once":                      {errs: []error{nil}, attempts: 1},
		"works at the second attempt":        {errs: []error{failure(request.Network, "refused"), nil}, attempts: 2},
		"a network that stays away":          {errs: []error{failure(request.Network, "1"), failure(request.Network, "2"), failure(request.Network, "3")}, attempts: 3, isTransient: true},
		"an attempt that takes too long":     {errs: []error{context.DeadlineExceeded, nil}, attempts: 2},
		"a registry with trouble":            {errs: []error{failure(request.Registry, "StatusCode: 503"), nil}, attempts: 2},
		"a registry that limits its clients": {errs: []error{failure(request.Registry, "StatusCode: 429"), nil}, attempts: 2},
		"credentials do not mend themselves": {errs: []error{failure(request.Authentication, "no")}, attempts: 1, class: request.Authentication},
		"an image that is not there":         {errs: []error{failure(request.Image, "no")}, attempts: 1, class: request.Image},
		"an answer that nobody foresaw":      {errs: []error{failure(request.Registry, "StatusCode: 400")}, attempts: 1, class: request.Registry},
	} {
		t.Run(name, func(t *testing.T) {
			tried := 0
			_, err := attempts(t.Context(), quick, time.Minute, "i", func(context.Context) (string, error) {
				tried++
				return "", tc.errs[tried-1]
			})
			var transient *TransientError
			var permanent *PermanentError
			if tried != tc.attempts || errors.As(err, &transient) != tc.isTransient || errors.As(err, &permanent) != (tc.class != "") {
				t.Fatalf("%d attempts, error %v", tried, err)
			}
			if permanent != nil && permanent.Class != tc.class {
				t.Errorf("class %s", permanent.Class)
			}
		})
	}
}

func TestAnAttemptThatHangsIsEnded(t *testing.T) {
	tried := 0
	got, err := attempts(t.Context(), quick, 10*time.Millisecond, "i", func(ctx context.Context) (string, error) {
		tried++
		if tried == 1 {
			<-ctx.Done()
			return "", ctx.Err()
		}
		return "answer", nil
	})
	if err != nil || got != "answer" || tried != 2 {
		t.Errorf("%q, %v after %d attempts", got, err, tried)
	}
}

func TestAttemptsEndWithTheirContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	tried := 0
	slow := wait.Backoff{Duration: time.Hour, Factor: 1, Steps: 3}
	_, err := attempts(ctx, slow, time.Minute, "i", func(context.Context) (string, error) {
		tried++
		cancel()
		return "", context.DeadlineExceeded
	})
	var transient *TransientError
	if tried != 1 || !errors.As(err, &transient) {
		t.Errorf("%d attempts, error %v", tried, err)
	}
}

func TestAPartialResultIsLookedAtSoonAndThenLessOften(t *testing.T) {
	clock := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	r := &reconciler{cache: newImageCache(func() time.Time { return clock })}
	partial := outcome{hasUnknownTraits: true}
	var waits []time.Duration
	for range 8 {
		next := r.nextLook(partial)
		clock = clock.Add(next / 2)
		if again := r.nextLook(partial); again != next-next/2 {
			t.Errorf("a look in between changes the next one from %v to %v", next-next/2, again)
		}
		clock = clock.Add(next - next/2)
		waits = append(waits, next)
	}
	for i, least := range []time.Duration{10, 20, 40, 80, 160, 320, 600, 600} {
		if least *= time.Second; waits[i] < least || waits[i] > least*12/10 {
			t.Errorf("wait %d is %v, want %v and a fifth at most", i, waits[i], least)
		}
	}
	if next := r.nextLook(outcome{}); next != 0 {
		t.Errorf("a complete result is looked at in %v", next)
	}
	if next := r.nextLook(partial); next > firstRetry*12/10 {
		t.Errorf("after a complete result the next look is in %v", next)
	}
}

func TestOnlyLabelsOfStreamsAreKept(t *testing.T) {
	server := registrytest.New(t)
	image := server.Push(t, "os", registrytest.ImageSpec{Labels: map[string]string{
		streams.LabelStream: "a", "vendor": "x", streams.LabelRuntimes: strings.Repeat("r", maxLabel+1),
	}})
	long := server.Push(t, "os", registrytest.ImageSpec{Labels: map[string]string{streams.LabelStream: strings.Repeat("s", 5000)}})
	got, err := registryImages{registry.Access{AuthFile: server.NoAuth, TrustBundle: server.CAFile}}.Labels(t.Context(), image)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]string{streams.LabelStream: "a"}, got); diff != "" {
		t.Error(diff)
	}
	// A name that is too long is kept as far as it shows what is wrong.
	got, err = registryImages{registry.Access{AuthFile: server.NoAuth, TrustBundle: server.CAFile}}.Labels(t.Context(), long)
	if name := got[streams.LabelStream]; err != nil || len(name) > maxLabel || !strings.HasPrefix(name, "sss") {
		t.Errorf("label %q, error %v", name, err)
	}
}

func TestADirectoryIsNoImage(t *testing.T) {
	const image = "oci:/etc:os@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	_, labelsErr := registryImages{}.Labels(t.Context(), image)
	_, fileErr := registryImages{}.File(t.Context(), image, "passwd", 100)
	for _, err := range []error{labelsErr, fileErr} {
		if err == nil || !strings.Contains(err.Error(), "it is a directory") {
			t.Errorf("error %v", err)
		}
	}
}

// BenchmarkDiscovery reads 20 images from a registry that takes 50 ms for every
// request, without and with what an earlier discovery kept.
func BenchmarkDiscovery(b *testing.B) {
	server := registrytest.New(b)
	var images []string
	for i := range 20 {
		images = append(images, server.Push(b, fmt.Sprintf("os/%d", i), registrytest.ImageSpec{Labels: map[string]string{streams.LabelStream: fmt.Sprint(i)}}))
	}
	server.Fail(func(*http.Request) int { time.Sleep(50 * time.Millisecond); return 0 })
	ca, err := os.ReadFile(server.CAFile)
	if err != nil {
		b.Fatal(err)
	}
	access, cleanUp, err := wayIn{trustBundle: string(ca)}.open()
	if err != nil {
		b.Fatal(err)
	}
	defer cleanUp()
	kept := newImageCache(time.Now)
	for name, start := range map[string]func() *imageCache{
		"cold": func() *imageCache { return newImageCache(time.Now) },
		"warm": func() *imageCache {
			restarted := newImageCache(time.Now)
			restarted.load(kept.encode())
			return restarted
		},
	} {
		b.Run(name, func(b *testing.B) {
			server.Requests()
			for b.Loop() {
				reader := &inspector{images: registryImages{access}, cache: start(), backoff: attemptBackoff}
				for image, result := range reader.labels(b.Context(), images) {
					if result.err != nil {
						b.Fatal(image, result.err)
					}
					kept.putLabels(image, result.labels)
				}
			}
			b.ReportMetric(float64(len(server.Requests()))/float64(b.N), "requests/op")
		})
	}
}
