package registry_test

import (
	"context"
	"path/filepath"
	"strings"
	"testing"

	"github.com/imagemode/imagemode/registry"
	"github.com/imagemode/imagemode/registry/registrytest"
)

func TestDeriveIntoALayout(t *testing.T) {
	server := registrytest.New(t)
	base := server.Push(t, "os/base", registrytest.ImageSpec{Labels: registrytest.Bootable(), Layers: 3})
	layout, err := registry.Layout(filepath.Join(t.TempDir(), "new", "layout"))
	if err != nil {
		t.Fatal(err)
	}
	if err := registry.MakeLayout(layout); err != nil {
		t.Fatal(err)
	}
	to := registry.Target{Repository: layout, Tags: []string{"one", "two"}}
	change := registry.Change{Layers: []registry.NewLayer{layerOf("a")}, Labels: map[string]string{"a": "b", "containers.bootc": ""}}
	derived, transfer, err := registry.Derive(context.Background(), registry.Source{Access: accessTo(server), Image: base}, to, change)
	if err != nil {
		t.Fatal(err)
	}
	if transfer.Copied != 3 {
		t.Errorf("%s", transfer)
	}
	local := registry.Access{Architecture: "amd64"}
	for _, ref := range []string{layout + ":one", layout + ":two", derived.Reference()} {
		checkDerived(t, local, ref, derived)
	}
	// From there on, nothing is copied.
	second, transfer, err := registry.Derive(context.Background(), registry.Source{Access: local, Image: layout + ":one"}, to,
		registry.Change{Labels: map[string]string{"c": "d"}})
	if err != nil || transfer.Copied != 0 {
		t.Errorf("%s, %v", transfer, err)
	}
	if found, err := registry.ResolveDigest(context.Background(), local, layout+":one"); found != second.Digest.String() {
		t.Errorf("the tag is %s, %v; want %s", found, err, second.Digest)
	}
	if found, err := registry.Exists(context.Background(), local, derived.Reference()); found != registry.Present {
		t.Errorf("the image that had the tag before: %s, %v", found, err)
	}
}

func TestWhatALayoutDoesNotHave(t *testing.T) {
	empty := "oci:" + t.TempDir()
	for _, ref := range []string{empty + ":a", empty + "/none:a", empty + "/none/none:a"} {
		if found, err := registry.Exists(context.Background(), registry.Access{}, ref); found != registry.Gone {
			t.Errorf("%s: %s, %v", ref, found, err)
		}
	}
	if _, err := registry.Layout("/tmp/a:b"); err == nil {
		t.Error("a path with a colon was accepted")
	}
	if _, err := registry.Reference(empty); err == nil {
		t.Error("an image of a layout without a name was accepted")
	}
}

func TestALayoutTakesNoDockerImage(t *testing.T) {
	server := registrytest.New(t)
	base := server.Push(t, "os/base", registrytest.ImageSpec{Docker: true})
	_, _, err := registry.Derive(context.Background(), registry.Source{Access: accessTo(server), Image: base},
		registry.Target{Repository: "oci:" + t.TempDir()}, registry.Change{})
	if err == nil || !strings.Contains(err.Error(), "takes OCI images only") {
		t.Errorf("got %v", err)
	}
}

func FuzzReference(f *testing.F) {
	for _, seed := range []string{
		"registry.example.com/a:tag@sha256:" + strings.Repeat("0", 64), "a", "localhost:5000/a/b:c", "oci:/tmp/a:b", "oci:", "A/b", "a@b", "docker://a",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, image string) {
		_, err := registry.Reference(image)
		repository, repositoryErr := registry.Repository(image)
		if err != nil {
			return
		}
		if repositoryErr != nil {
			t.Fatalf("%q is a reference, and has no repository: %v", image, repositoryErr)
		}
		if again, err := registry.Repository(registry.Named(repository, "tag")); err != nil || again != repository {
			t.Fatalf("the repository of %q is %q, and of that with a tag %q, %v", image, repository, again, err)
		}
	})
}
