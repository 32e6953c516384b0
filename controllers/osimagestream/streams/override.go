package streams

import (
	"encoding/json"
	"strings"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"

	"github.com/imagemode/imagemode/api/machineconfiguration"
)

// MaxOverrides bounds the images of MachineConfigs that are looked at.
const MaxOverrides = 50

// Override is what the labels tell of an image that a MachineConfig names in the
// place of a stream's.
type Override struct {
	// Stream that it is labelled for; empty: none.
	Stream string `json:"stream,omitempty"`
	// Runtimes of the image, sorted; empty: unknown.
	Runtimes []string `json:"runtimes,omitempty"`
}

// OverrideOf reads the labels of an image.
func OverrideOf(labels map[string]string) Override {
	return Override{
		Stream:   strings.ToLower(strings.TrimSpace(labels[LabelStream])),
		Runtimes: parseRuntimes(labels[LabelRuntimes]),
	}
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

// target is what a container runtime has to be there on.
type target struct {
	// subject names it for the user.
	subject string
	// runtimes that it has; empty: unknown.
	runtimes []string
}

func ofStream(object *mcfgv1.OSImageStream, stream string) target {
	return target{subject: `OS image stream "` + stream + `"`, runtimes: RuntimesOf(object, stream)}
}

// ofImage is the stream that an image belongs to, else what its labels tell.
func ofImage(object *mcfgv1.OSImageStream, image string) target {
	if stream := OfImage(object, image); stream != "" {
		return ofStream(object, stream)
	}
	override := DecodeOverrides(object)[digestOf(image)]
	if len(override.Runtimes) == 0 {
		override.Runtimes = RuntimesOf(object, override.Stream)
	}
	return target{subject: "OS image " + image, runtimes: override.Runtimes}
}
