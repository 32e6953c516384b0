package osimagestream

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/imagemode/imagemode/api/machineconfiguration"
	"github.com/imagemode/imagemode/controllers/osimagestream/streams"
)

// Twenty images, in ten streams of a payload, from a registry that takes 50 ms for
// every request: two seconds at most. After a restart nothing is asked at all.
func TestTwentyImagesAreReadInTwoSecondsAndNeverAgain(t *testing.T) {
	w := newWorld(t)
	var sets []streams.Set
	for i := range 10 {
		sets = append(sets, w.pushStream(fmt.Sprintf("s-%d", i)))
	}
	w.create(configMap(machineconfiguration.ConfigMapPayload, machineconfiguration.KeyPayload, payload("5.0.0", sets...)))
	w.registry.Requests()
	w.registry.Fail(func(*http.Request) int { time.Sleep(50 * time.Millisecond); return 0 })

	began := time.Now()
	if object := w.mustReconcile(); len(object.Status.AvailableStreams) != 10 || problems(object) != "" {
		t.Fatalf("streams %v, problems %s", streams.Names(object.Status.AvailableStreams), problems(object))
	}
	took := time.Since(began)
	t.Logf("cold: %v, %d requests", took.Round(time.Millisecond), len(w.registry.Requests()))
	if took > 2*time.Second {
		t.Errorf("reading 20 images took %v", took)
	}
	w.restart()
	w.writes = 0
	w.mustReconcile()
	if asked := w.registry.Requests(); len(asked) > 0 || w.writes > 0 {
		t.Errorf("after a restart: requests %v, %d writes", asked, w.writes)
	}
}

func TestMetricsTellWhatIsMissing(t *testing.T) {
	w := newWorld(t)
	nine := w.pushStream("rhel-9")
	w.create(configMap(machineconfiguration.ConfigMapStreams, "a", entryOf(nine), "broken", "x"))
	w.create(configMap(machineconfiguration.ConfigMapPayload, machineconfiguration.KeyPayload, payload("5.0.0", nine)))
	w.registry.Fail(func(*http.Request) int { return http.StatusServiceUnavailable })
	w.mustReconcile()
	if count, whole := testutil.ToFloat64(problemCount), testutil.ToFloat64(isComplete); count != 4 || whole != 0 {
		t.Errorf("%v problems, want those of the entry, of both images and of the default, which cannot be chosen yet; complete %v", count, whole)
	}
	w.registry.Fail(nil)
	w.mustReconcile()
	if count, whole := testutil.ToFloat64(problemCount), testutil.ToFloat64(isComplete); count != 1 || whole != 1 {
		t.Errorf("%v problems, complete %v", count, whole)
	}
}
