package osimagestream

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"sigs.k8s.io/yaml"

	"github.com/imagemode/imagemode/controllers/osimagestream/streams"
)

const manifestDigest = "@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

// tagged is a payload of a release with fixed tags.
func tagged(version string, tags ...string) string {
	text := "apiVersion: image.openshift.io/v1\nkind: ImageStream\nmetadata: {name: " + version + "}\nspec:\n  tags:\n  - name: machine-config-operator\n"
	for _, tag := range tags {
		text += "  - name: " + tag + "\n    from: {kind: DockerImage, name: registry.example.com/ocp/" + tag + manifestDigest + "}\n"
	}
	return text
}

func controllerConfigOf(spec string) string {
	return "apiVersion: machineconfiguration.openshift.io/v1\nkind: ControllerConfig\nmetadata: {name: machine-config-controller}\nspec: {" + spec + "}\n"
}

func manifestOf(version, stream string) string {
	return "apiVersion: machineconfiguration.openshift.io/" + version + "\nkind: OSImageStream\nmetadata: {name: cluster}\nspec: {" + stream + "}\n"
}

const (
	bothTags = "rhel-coreos rhel-coreos-extensions rhel-coreos-10 rhel-coreos-10-extensions"
	basePair = "baseOSContainerImage: registry.example.com/ocp/rhel-coreos" + manifestDigest + ", baseOSExtensionsContainerImage: registry.example.com/ocp/rhel-coreos-extensions" + manifestDigest
)

func TestBootstrap(t *testing.T) {
	for name, tc := range map[string]struct {
		files     map[string]string
		streams   []string
		byDefault string
		failure   string
	}{
		"a payload and a request in v1": {
			files:   map[string]string{"1.yaml": tagged("5.0.0", strings.Fields(bothTags)...), "2.yaml": manifestOf("v1", "defaultStream: rhel-10")},
			streams: []string{"rhel-10", "rhel-9"}, byDefault: "rhel-10",
		},
		"a request in v1alpha1": {
			files:   map[string]string{"1.yaml": tagged("5.0.0", strings.Fields(bothTags)...), "2.yml": manifestOf("v1alpha1", "defaultStream: rhel-9")},
			streams: []string{"rhel-10", "rhel-9"}, byDefault: "rhel-9",
		},
		"an empty spec: the version decides": {
			files:   map[string]string{"1.yaml": tagged("4.22.0", strings.Fields(bothTags)...), "2.yaml": manifestOf("v1alpha1", "")},
			streams: []string{"rhel-10", "rhel-9"}, byDefault: "rhel-9",
		},
		"ControllerConfig's request comes first": {
			files: map[string]string{"all.yaml": tagged("5.0.0", strings.Fields(bothTags)...) + "---\n" + manifestOf("v1", "defaultStream: rhel-10") +
				"---\n" + controllerConfigOf("defaultStream: rhel-9, "+basePair)},
			streams: []string{"rhel-10", "rhel-9"}, byDefault: "rhel-9",
		},
		"without a payload: one stream of the name requested": {
			files:   map[string]string{"1.yaml": controllerConfigOf(basePair), "2.yaml": manifestOf("v1", "defaultStream: rhel-10"), "notes.txt": "{"},
			streams: []string{"rhel-10"}, byDefault: "rhel-10",
		},
		"other ImageStreams and kinds are passed over": {
			files: map[string]string{"1.yaml": controllerConfigOf("defaultStream: rhel-9, " + basePair),
				"2.yaml": "apiVersion: image.openshift.io/v1\nkind: ImageStream\nmetadata: {name: x}\n---\nkind: ConfigMap\n"},
			streams: []string{"rhel-9"}, byDefault: "rhel-9",
		},
		"tag and request disagree": {
			files:   map[string]string{"1.yaml": tagged("5.0.0", "rhel-coreos", "rhel-coreos-extensions"), "2.yaml": manifestOf("v1", "defaultStream: rhel-10")},
			failure: `"rhel-10" is not in the payload`,
		},
		"a version that is not known": {
			files:   map[string]string{"1.yaml": tagged("5.0.0", strings.Fields(bothTags)...), "2.yaml": manifestOf("v2", "defaultStream: rhel-10")},
			failure: "manifest 2.yaml: it is",
		},
		"a request beside an empty one": {
			files:   map[string]string{"1.yaml": tagged("4.22.0", strings.Fields(bothTags)...), "2.yaml": manifestOf("v1", "defaultStream: rhel-10"), "3.yaml": manifestOf("v1alpha1", "")},
			streams: []string{"rhel-10", "rhel-9"}, byDefault: "rhel-10",
		},
		"two requests": {
			files:   map[string]string{"1.yaml": tagged("5.0.0", strings.Fields(bothTags)...), "2.yaml": manifestOf("v1", "defaultStream: rhel-10"), "3.yaml": manifestOf("v1", "defaultStream: rhel-9")},
			failure: `manifest 3.yaml: it asks for the default stream "rhel-9", and another OSImageStream for "rhel-10"`,
		},
		"two payloads": {
			files:   map[string]string{"1.yaml": tagged("5.0.0", strings.Fields(bothTags)...), "2.yaml": tagged("5.1.0", strings.Fields(bothTags)...), "3.yaml": manifestOf("v1", "defaultStream: rhel-9")},
			failure: "manifest 2.yaml: it is the payload of release 5.1.0, and there is one of 5.0.0",
		},
		"a payload without streams": {
			files: map[string]string{"1.yaml": tagged("5.0.0"), "2.yaml": manifestOf("v1", "defaultStream: rhel-9")}, failure: "has no complete stream",
		},
		"half a pair": {
			files:   map[string]string{"1.yaml": controllerConfigOf("defaultStream: rhel-9, baseOSContainerImage: registry.example.com/ocp/rhel-coreos" + manifestDigest)},
			failure: "baseOSExtensionsContainerImage is missing",
		},
		"a broken file":  {files: map[string]string{"1.yaml": "{"}, failure: "manifest 1.yaml: it is no YAML"},
		"nothing at all": {failure: "no requested default stream"},
	} {
		t.Run(name, func(t *testing.T) {
			manifests, out := t.TempDir(), filepath.Join(t.TempDir(), "out")
			for file, text := range tc.files {
				if err := os.WriteFile(filepath.Join(manifests, file), []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			result, err := Bootstrap(manifests, out)
			if tc.failure != "" {
				if err == nil || !strings.Contains(err.Error(), tc.failure) {
					t.Errorf("error %v, want %q", err, tc.failure)
				}
				if _, err := os.Stat(out); err == nil {
					t.Error("something was written")
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			written, err := os.ReadFile(result.File)
			if err != nil {
				t.Fatal(err)
			}
			var object mcfgv1.OSImageStream
			if err := yaml.UnmarshalStrict(written, &object); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.streams, streams.Names(object.Status.AvailableStreams)); diff != "" {
				t.Error(diff)
			}
			if object.Spec.DefaultStream != tc.byDefault || object.Status.DefaultStream != tc.byDefault || object.APIVersion != "machineconfiguration.openshift.io/v1" {
				t.Errorf("%+v", object)
			}
		})
	}
}
