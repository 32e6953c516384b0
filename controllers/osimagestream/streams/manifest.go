package streams

import (
	"fmt"
	"slices"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/yaml"

	"github.com/imagemode/imagemode/api/machineconfiguration"
)

// manifestVersions are the versions of OSImageStream that are read. What is
// written is always v1.
var manifestVersions = []string{"v1alpha1", "v1"}

// DefaultFromManifest reads spec.defaultStream of a manifest of OSImageStream
// cluster, as JSON or YAML. Its spec may be empty, as v1alpha1 allows: the
// answer is then the empty text. A version that is not known is an error: to
// pass over such a manifest would be to give the cluster another OS than asked for.
func DefaultFromManifest(raw []byte) (string, error) {
	var object struct {
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
		Metadata   struct {
			Name string `json:"name"`
		} `json:"metadata"`
		Spec struct {
			DefaultStream string `json:"defaultStream"`
		} `json:"spec"`
	}
	if err := yaml.Unmarshal(raw, &object); err != nil {
		return "", fmt.Errorf("it is no OSImageStream: %s", oneLine(err))
	}
	isKnown := slices.ContainsFunc(manifestVersions, func(version string) bool {
		return object.APIVersion == mcfgv1.GroupName+"/"+version
	})
	name := object.Spec.DefaultStream
	switch {
	case object.Kind != "OSImageStream" || !isKnown:
		return "", fmt.Errorf("it is %q of %q, and OSImageStream is read of %s in versions %v", object.Kind, object.APIVersion, mcfgv1.GroupName, manifestVersions)
	case object.Metadata.Name != machineconfiguration.OSImageStreamName:
		return "", fmt.Errorf("its name is %q, and the only OSImageStream is %q", object.Metadata.Name, machineconfiguration.OSImageStreamName)
	case name == "":
		return "", nil
	}
	if problems := validation.IsDNS1123Subdomain(name); len(problems) > 0 {
		return "", fmt.Errorf("spec.defaultStream %q cannot be the name of a stream: %s", name, problems[0])
	}
	return name, nil
}
