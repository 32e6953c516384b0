package builder

import (
	"net/http"
	"strings"
	"sync"
	"testing"
)

// TestARegistryThatFailsNowAndThenIsAskedAgain: the first write of each manifest
// and the first end of an upload find the registry out of order.
func TestARegistryThatFailsNowAndThenIsAskedAgain(t *testing.T) {
	w := newWorkplace(t, writesOnBase)
	var mutex sync.Mutex
	failed := map[string]bool{}
	w.registry.Fail(func(r *http.Request) int {
		mutex.Lock()
		defer mutex.Unlock()
		kind := ""
		switch {
		case r.Method == http.MethodPut && strings.Contains(r.URL.Path, "/manifests/step-"):
			kind = "step"
		case r.Method == http.MethodPut && strings.Contains(r.URL.Path, "/manifests/sha256"):
			kind = "digest"
		case r.Method == http.MethodPut && strings.Contains(r.URL.Path, "/blobs/uploads/"):
			kind = "upload"
		}
		if kind == "" || failed[kind] {
			return 0
		}
		failed[kind] = true
		return http.StatusServiceUnavailable
	})
	w.mustBuild()
	if len(failed) != 3 {
		t.Errorf("the registry failed only for %v", failed)
	}
}

// TestARegistryThatTakesNoLayersIsNoReasonToFail: some repositories let no tag be
// written twice, and others have rules for their names.
func TestARegistryThatTakesNoLayersIsNoReasonToFail(t *testing.T) {
	w := newWorkplace(t, "FROM configs\nRUN [\"/bin/tool\", \"write\", \"/usr/share/a\", \"b\"]\nRUN [\"/bin/tool\", \"write\", \"/usr/share/c\", \"d\"]\n")
	w.registry.Fail(func(r *http.Request) int {
		if r.Method == http.MethodPut && strings.Contains(r.URL.Path, "/manifests/layer-") {
			return http.StatusMethodNotAllowed
		}
		return 0
	})
	result, image := w.mustBuild()
	files := w.files(image, 2)
	if files["/usr/share/a"] != "b" || files["/usr/share/c"] != "d" {
		t.Errorf("%v", files)
	}
	if !strings.Contains(w.shown, "layers are not kept") {
		t.Error("it was not said")
	}
	if len(result.LayerTags) != 0 {
		t.Errorf("layer tags %v", result.LayerTags)
	}
}
