package machineconfigpool

import (
	"errors"
	"strings"
	"testing"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/imagemode/imagemode/api/machineconfiguration"
	"github.com/imagemode/imagemode/test/builders"
)

func TestADefaultRuntimeThatTheStreamLacksIsNotRendered(t *testing.T) {
	const dropIn = "/etc/crio/crio.conf.d/99-runtime"
	object := &mcfgv1.OSImageStream{
		ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{
			machineconfiguration.AnnotationStreamTraits: `{"debian-12":{"runtimes":["crun","runc"]},"debian-13":{"runtimes":["crun"]}}`,
			machineconfiguration.AnnotationOverrides:    `{"sha256:` + strings.Repeat("4", 64) + `":{"stream":"rhel-10"}}`,
		}},
		Spec: mcfgv1.OSImageStreamSpec{DefaultStream: "debian-13"},
		Status: mcfgv1.OSImageStreamStatus{DefaultStream: "debian-13", AvailableStreams: []mcfgv1.OSImageStreamSet{
			{Name: "debian-12", OSImage: image1, OSExtensionsImage: image1}, {Name: "debian-13", OSImage: image2, OSExtensionsImage: image2},
		}},
	}
	for name, tc := range map[string]struct {
		stream, text string
		options      []builders.MachineConfigOption
		isRefused    bool
	}{
		"runc on a stream with crun alone": {stream: "debian-13", text: "[crio.runtime]\ndefault_runtime = \"runc\"\n", isRefused: true},
		"runc on the default stream":       {text: "[crio.runtime]\ndefault_runtime = \"runc\"\n", isRefused: true},
		"runc on a stream that has it":     {stream: "debian-12", text: "[crio.runtime]\ndefault_runtime = \"runc\"\n"},
		"crun everywhere":                  {stream: "debian-13", text: "[crio.runtime]\ndefault_runtime = \"crun\"\n"},
		"an image that is no stream's": {
			text: "[crio.runtime]\ndefault_runtime = \"runc\"\n", options: []builders.MachineConfigOption{builders.OSImageURL("registry.example.com/os/own@sha256:" + strings.Repeat("3", 64))},
		},
		"an image that is no stream's, and was made for one without runc": {
			text: "[crio.runtime]\ndefault_runtime = \"runc\"\n", options: []builders.MachineConfigOption{builders.OSImageURL("registry.example.com/os/own@sha256:" + strings.Repeat("4", 64))}, isRefused: true,
		},
		"an image that is another stream's": {
			text: "[crio.runtime]\ndefault_runtime = \"runc\"\n", options: []builders.MachineConfigOption{builders.OSImageURL("mirror.example.com/os@" + digest1)},
		},
	} {
		t.Run(name, func(t *testing.T) {
			config := builders.MachineConfig("50-runtime", "worker", append(tc.options, builders.File(dropIn, tc.text))...)
			s := &scope{pool: builders.MachineConfigPool("worker", builders.Stream(tc.stream)), streams: object, configs: []mcfgv1.MachineConfig{*config}}
			_, err := s.render()
			var refused *renderError
			if tc.isRefused != errors.As(err, &refused) || err != nil && !tc.isRefused {
				t.Fatalf("error %v", err)
			}
			if refused != nil && (refused.reason != "RuntimeMissing" || !strings.Contains(refused.message, dropIn) || !strings.Contains(refused.message, "debian-12")) {
				t.Errorf("%s: %s", refused.reason, refused.message)
			}
		})
	}
}
