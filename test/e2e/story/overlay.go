package story

import (
	"fmt"
	"os"
	"path/filepath"

	"sigs.k8s.io/yaml"
)

// kustomization is the part of a kustomization.yaml that the overlay needs.
type kustomization struct {
	APIVersion string           `json:"apiVersion"`
	Kind       string           `json:"kind"`
	Resources  []string         `json:"resources"`
	Images     []kustomizeImage `json:"images"`
	Patches    []kustomizePatch `json:"patches"`
}

type kustomizeImage struct {
	Name    string `json:"name"`
	NewName string `json:"newName"`
	Digest  string `json:"digest"`
}

type kustomizePatch struct {
	Patch  string           `json:"patch"`
	Target *kustomizeTarget `json:"target,omitempty"`
}

type kustomizeTarget struct {
	Kind string `json:"kind"`
	Name string `json:"name"`
}

// builderImagePatch names the builder's image, which stands in no image field
// that kustomize knows.
const builderImagePatch = `apiVersion: apps/v1
kind: Deployment
metadata:
  name: imagemode-controller
  namespace: openshift-machine-config-operator
spec:
  template:
    spec:
      containers:
      - name: controller
        env:
        - name: BUILDER_IMAGE
          value: %s
`

// writeOverlay writes a kustomization.yaml to a directory: test/e2e/config of
// the checkout with the images, by name and digest, and with further patches.
func writeOverlay(directory, root string, images map[string]string, patches ...kustomizePatch) error {
	base, err := relative(directory, filepath.Join(root, "test/e2e/config"))
	if err != nil {
		return err
	}
	overlay := kustomization{
		APIVersion: "kustomize.config.k8s.io/v1beta1",
		Kind:       "Kustomization",
		Resources:  []string{base},
		Patches:    append([]kustomizePatch{{Patch: fmt.Sprintf(builderImagePatch, images["builder"])}}, patches...),
	}
	for _, name := range []string{"controller", "agent"} {
		repository, digest, err := splitReference(images[name])
		if err != nil {
			return err
		}
		overlay.Images = append(overlay.Images, kustomizeImage{Name: "imagemode/" + name, NewName: repository, Digest: digest})
	}
	text, err := yaml.Marshal(overlay)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(directory, "kustomization.yaml"), text, 0o644)
}

// relative is filepath.Rel with links resolved: kustomize takes no absolute
// path to a base, and follows ".." physically.
func relative(from, to string) (string, error) {
	from, err := filepath.EvalSymlinks(from)
	if err != nil {
		return "", err
	}
	to, err = filepath.EvalSymlinks(to)
	if err != nil {
		return "", err
	}
	return filepath.Rel(from, to)
}
