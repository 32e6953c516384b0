package registry_test

import (
	"errors"
	"io/fs"
	"net/http"
	"strings"
	"testing"

	"github.com/imagemode/imagemode/builder/request"
	"github.com/imagemode/imagemode/registry"
	"github.com/imagemode/imagemode/registry/registrytest"
)

func TestReadFile(t *testing.T) {
	server := registrytest.New(t)
	access := registry.Access{AuthFile: server.NoAuth, TrustBundle: server.CAFile}
	image := server.Push(t, "release", registrytest.ImageSpec{
		Files: map[string]string{"/release-manifests/": "", "/release-manifests/image-references": "the text", "/release-manifests/sub/": ""}, Layers: 3,
	})
	for name, tc := range map[string]struct {
		path, want string
		failure    string
		class      request.FailureClass
		isAbsent   bool
	}{
		"a file of the first of three layers": {path: "release-manifests/image-references", want: "the text"},
		"an empty file of the last layer":     {path: "layerc", want: ""},
		"a file that is not there":            {path: "release-manifests/other", isAbsent: true, class: request.Image, failure: "does not exist"},
		"a directory":                         {path: "release-manifests/sub", class: request.Image, failure: "no regular file"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := registry.ReadFile(t.Context(), access, image, tc.path, 100)
			if tc.failure == "" {
				if err != nil || string(got) != tc.want {
					t.Errorf("%q, %v", got, err)
				}
				return
			}
			var typed *registry.Error
			if !errors.As(err, &typed) || typed.Class != tc.class || !strings.Contains(err.Error(), tc.failure) || errors.Is(err, fs.ErrNotExist) != tc.isAbsent {
				t.Errorf("error %v, class %v", err, typed)
			}
		})
	}
	t.Run("a file that is too large", func(t *testing.T) {
		_, err := registry.ReadFile(t.Context(), access, image, "release-manifests/image-references", 3)
		if err == nil || !strings.Contains(err.Error(), "are read at most") {
			t.Errorf("error %v", err)
		}
	})
	t.Run("layers are fetched only as far as needed", func(t *testing.T) {
		server.Requests()
		if _, err := registry.ReadFile(t.Context(), access, image, "layerc", 100); err != nil {
			t.Fatal(err)
		}
		blobs := 0
		for _, request := range server.Requests() {
			if strings.HasPrefix(request, http.MethodGet) && strings.Contains(request, "/blobs/") {
				blobs++
			}
		}
		if blobs != 2 { // the config and one layer
			t.Errorf("%d blobs were fetched", blobs)
		}
	})
}

func TestReadFileHonoursWhiteouts(t *testing.T) {
	server := registrytest.New(t)
	access := registry.Access{AuthFile: server.NoAuth, TrustBundle: server.CAFile}
	for name, entry := range map[string]string{
		"of the file": "/d/.wh.f", "of its directory": "/.wh.d", "of everything in it": "/d/.wh..wh..opq",
	} {
		t.Run(name, func(t *testing.T) {
			image := server.Push(t, "whiteout", registrytest.ImageSpec{Files: map[string]string{entry: ""}})
			if _, err := registry.ReadFile(t.Context(), access, image, "d/f", 100); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("error %v", err)
			}
		})
	}
}
