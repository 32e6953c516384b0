package streams

import (
	"encoding/json"
	"strings"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/imagemode/imagemode/api/machineconfiguration"
)

// MaxOverrides bounds the images of MachineConfigs that are looked at: what is
// known of them stands in an annotation.
const MaxOverrides = 200

// Override is what the labels tell of an image that a MachineConfig names in the
// place of a stream's.
type Override struct {
	// Stream that it is labelled for; empty: none.
	Stream string `json:"stream,omitempty"`
	// Runtimes of the image, sorted; empty: unknown.
	Runtimes []string `json:"runtimes,omitempty"`
	// Read says that the labels were read. Without it nothing is known.
	Read bool `json:"read,omitempty"`
	// Unread says for the user why they could not be read; empty: they were, or nobody
	// has tried yet.
	Unread string `json:"unread,omitempty"`
}

// NamesImage reports whether a MachineConfig names an OS image in the place of the
// stream's. Those that a controller made repeat the cluster's image and do not count.
func NamesImage(config *mcfgv1.MachineConfig) bool {
	return config.Spec.OSImageURL != "" && config.Annotations[machineconfiguration.AnnotationGeneratedByControllerVersion] == ""
}

// OverrideOf reads the labels of an image. What cannot be the name of a stream is
// none.
func OverrideOf(labels map[string]string) Override {
	stream := strings.ToLower(strings.TrimSpace(labels[LabelStream]))
	if len(validation.IsDNS1123Subdomain(stream)) > 0 {
		stream = ""
	}
	return Override{Stream: stream, Runtimes: parseRuntimes(labels[LabelRuntimes]), Read: true}
}

// EncodeOverrides writes the annotation imagemode.dev/overrides: JSON, a map from
// an image's digest to what is known of it. Nothing known is the empty text.
func EncodeOverrides(overrides map[string]Override) string {
	if len(overrides) == 0 {
		return ""
	}
	encoded, err := json.Marshal(overrides)
	if err != nil {
		panic(err) // strings always marshal
	}
	return string(encoded)
}

// DecodeOverrides reads the annotation. What does not parse is as good as absent.
func DecodeOverrides(object *mcfgv1.OSImageStream) map[string]Override {
	overrides := map[string]Override{}
	if object != nil && json.Unmarshal([]byte(object.Annotations[machineconfiguration.AnnotationOverrides]), &overrides) != nil {
		return map[string]Override{}
	}
	return overrides
}

// DigestOf returns the digest in an image reference, which is the key of the
// annotation; empty: there is none.
func DigestOf(image string) string { return digestOf(image) }
