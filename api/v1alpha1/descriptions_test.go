package v1alpha1

import (
	"os"
	"path/filepath"
	"testing"

	"sigs.k8s.io/yaml"
)

// fieldSchema is what of a CRD's schema this test looks at.
type fieldSchema struct {
	Description string                 `json:"description"`
	Properties  map[string]fieldSchema `json:"properties"`
	Items       *fieldSchema           `json:"items"`
}

// TestEveryFieldIsExplained by kubectl explain.
func TestEveryFieldIsExplained(t *testing.T) {
	files, err := filepath.Glob("../../config/crd/bases/imagemode.dev_*.yaml")
	if err != nil || len(files) != 2 {
		t.Fatalf("%v, error %v", files, err)
	}
	for _, name := range files {
		content, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		var crd struct {
			Spec struct {
				Names    struct{ Kind string }
				Versions []struct {
					Schema struct {
						OpenAPIV3Schema fieldSchema `json:"openAPIV3Schema"`
					}
				}
			}
		}
		if err := yaml.Unmarshal(content, &crd); err != nil {
			t.Fatal(err)
		}
		count := 0
		for _, version := range crd.Spec.Versions {
			count += version.Schema.OpenAPIV3Schema.check(t, crd.Spec.Names.Kind)
		}
		if count < 20 {
			t.Errorf("%s: %d fields", name, count)
		}
	}
}

// check returns how many fields there are below.
func (s fieldSchema) check(t *testing.T, path string) int {
	t.Helper()
	count := 0
	for name, field := range s.Properties {
		if field.Description == "" && name != "metadata" {
			t.Errorf("%s.%s is not explained", path, name)
		}
		count += 1 + field.check(t, path+"."+name)
	}
	if s.Items != nil {
		count += s.Items.check(t, path+"[]")
	}
	return count
}
