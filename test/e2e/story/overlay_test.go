package story

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

func TestOverlayNamesTheImagesOfTheRegistry(t *testing.T) {
	root, directory := t.TempDir(), t.TempDir()
	if err := os.MkdirAll(filepath.Join(root, "test/e2e/config"), 0o755); err != nil {
		t.Fatal(err)
	}
	digest := "sha256:" + strings.Repeat("a", 64)
	images := map[string]string{}
	for _, name := range []string{"controller", "builder", "agent"} {
		images[name] = "10.89.0.1:5000/imagemode/" + name + "@" + digest
	}
	if err := writeOverlay(directory, root, images); err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile(filepath.Join(directory, "kustomization.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var got kustomization
	if err := yaml.UnmarshalStrict(raw, &got); err != nil {
		t.Fatal(err)
	}
	if base := filepath.Join(directory, got.Resources[0]); base != filepath.Join(root, "test/e2e/config") {
		t.Errorf("the overlay's base is %s", base)
	}
	if got.Images[0].Name != "imagemode/controller" || got.Images[0].NewName != "10.89.0.1:5000/imagemode/controller" || got.Images[0].Digest != digest {
		t.Errorf("the controller's image is replaced by %+v", got.Images[0])
	}
	if !strings.Contains(got.Patches[0].Patch, images["builder"]) {
		t.Errorf("the builder's image is not in %s", got.Patches[0].Patch)
	}
}

func TestImagesByTagAreRefused(t *testing.T) {
	root, err := filepath.Abs("../../..")
	if err != nil {
		t.Fatal(err)
	}
	err = writeOverlay(t.TempDir(), root, map[string]string{
		"controller": "10.89.0.1:5000/imagemode/controller:latest",
	})
	if err == nil || !strings.Contains(err.Error(), "by digest") {
		t.Errorf("error is %v, want one that asks for a digest", err)
	}
}
