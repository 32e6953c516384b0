package registry_test

import (
	"context"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/imagemode/imagemode/registry"
	"github.com/imagemode/imagemode/registry/registrytest"
)

// TestACopyThatBrokeOffGoesOn: what the registry has already is not sent again.
func TestACopyThatBrokeOffGoesOn(t *testing.T) {
	from, to := registrytest.New(t), registrytest.New(t)
	base := from.Push(t, "os/base", registrytest.ImageSpec{Labels: registrytest.Bootable(), Layers: 4})
	var finished atomic.Int32
	to.Fail(func(r *http.Request) int {
		// The end of an upload; the third one finds the registry out of order.
		if r.Method == http.MethodPut && strings.Contains(r.URL.Path, "/blobs/uploads/") && finished.Add(1) == 3 {
			return http.StatusServiceUnavailable
		}
		return 0
	})
	target := registry.Target{Access: accessTo(to), Repository: to.Host + "/os/worker"}
	transfer, err := registry.CopyLayers(context.Background(), registry.Source{Access: accessTo(from), Image: base}, target)
	if err != nil {
		t.Fatal(err)
	}
	if transfer.Reused == 0 || transfer.Reused+transfer.Copied != 4 {
		t.Errorf("%s", transfer)
	}
	again, err := registry.CopyLayers(context.Background(), registry.Source{Access: accessTo(from), Image: base}, target)
	if err != nil || again.Copied != 0 {
		t.Errorf("%s, %v", again, err)
	}
}
