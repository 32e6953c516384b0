package registry_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/imagemode/imagemode/registry"
	"github.com/imagemode/imagemode/registry/registrytest"
)

// pushed is an image in a registry of its own.
func pushed(t *testing.T) (registry.Access, *registry.Image) {
	t.Helper()
	server := registrytest.New(t)
	access := accessTo(server)
	image := server.Push(t, "os/worker", registrytest.ImageSpec{Labels: registrytest.Bootable()})
	found, err := registry.Inspect(t.Context(), access, image)
	if err != nil {
		t.Fatal(err)
	}
	return access, found
}

func TestATagGoesWithoutItsImage(t *testing.T) {
	access, found := pushed(t)
	if err := registry.Tag(t.Context(), access, found, "one", "two"); err != nil {
		t.Fatal(err)
	}
	if tags, err := registry.Tags(t.Context(), access, found.Repository); err != nil || !slices.Contains(tags, "one") || !slices.Contains(tags, "two") {
		t.Fatalf("tags %v, error %v", tags, err)
	}
	for range 2 { // the second time it is not there any more
		if err := registry.Untag(t.Context(), access, found.Repository+":one"); err != nil {
			t.Fatal(err)
		}
	}
	if tags, err := registry.Tags(t.Context(), access, found.Repository); err != nil || slices.Contains(tags, "one") || !slices.Contains(tags, "two") {
		t.Errorf("tags %v, error %v", tags, err)
	}
	if existence, err := registry.Exists(t.Context(), access, found.Reference()); existence != registry.Present {
		t.Errorf("the image is %s: %v", existence, err)
	}
}

func TestATagIsMovedToTheMarker(t *testing.T) {
	access, found := pushed(t)
	if err := registry.Tag(t.Context(), access, found, "one"); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second time it is there already
		if err := registry.Mark(t.Context(), access, found.Repository+":one"); err != nil {
			t.Fatal(err)
		}
	}
	if digest, err := registry.ResolveDigest(t.Context(), access, found.Repository+":one"); err != nil || digest != registry.MarkerDigest() {
		t.Errorf("the tag leads to %s, error %v, want %s", digest, err, registry.MarkerDigest())
	}
	if existence, err := registry.Exists(t.Context(), access, found.Reference()); existence != registry.Present {
		t.Errorf("the image is %s: %v", existence, err)
	}
}

func TestAnImageIsDeletedByDigest(t *testing.T) {
	access, found := pushed(t)
	for range 2 {
		if err := registry.Delete(t.Context(), access, found.Reference()); err != nil {
			t.Fatal(err)
		}
	}
	if existence, err := registry.Exists(t.Context(), access, found.Reference()); existence != registry.Gone {
		t.Errorf("the image is %s: %v", existence, err)
	}
}

func TestARepositoryThatDoesNotExistHasNoTags(t *testing.T) {
	server := registrytest.New(t)
	image := server.Push(t, "os/worker", registrytest.ImageSpec{Labels: registrytest.Bootable()})
	host, _, _ := strings.Cut(image, "/")
	tags, err := registry.Tags(t.Context(), accessTo(server), host+"/os/none")
	if err != nil || len(tags) > 0 {
		t.Errorf("tags %v, error %v", tags, err)
	}
}
