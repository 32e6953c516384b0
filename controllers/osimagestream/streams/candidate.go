package streams

import (
	"slices"
	"strings"
)

// Labels of images by which streams and what they can do are recognised. The
// values are compared without regard to case.
const (
	// LabelStream holds the stream's name.
	LabelStream = "io.openshift.os.streamclass"
	// LabelBootc is "true" or "1" on an OS image.
	LabelBootc = "containers.bootc"
	// LabelExtensions is "true" on an extensions image.
	LabelExtensions = "io.openshift.os.extensions"
	// LabelRuntimes lists the container runtimes of an OS image, separated by
	// commas, such as "crun,runc".
	LabelRuntimes = "dev.imagemode.runtimes"
	// LabelDeprecated, with any value but "" and "false", says that the next
	// release will not have the stream any more.
	LabelDeprecated = "dev.imagemode.deprecated"
)

// Labels are the ones that matter here: what else an image carries is dropped,
// so that it need not be kept.
var Labels = []string{LabelStream, LabelBootc, LabelExtensions, LabelRuntimes, LabelDeprecated}

// Candidate is an image that may belong to a stream.
type Candidate struct {
	// Image is a reference by digest.
	Image string
	// Origin says for the user where the source names it, such as "tag rhel-coreos".
	Origin string
	// Labels of the image.
	Labels map[string]string
}

// Role is what an image is in its stream.
type Role string

// Roles of an image; the empty one belongs to images of no stream.
const (
	RoleOS         Role = "OS image"
	RoleExtensions Role = "extensions image"
)

// Classify tells from its labels which stream an image belongs to and as what.
// An image without a name of a stream, or without a role, belongs to none. What
// is labelled as both is an OS image.
func Classify(labels map[string]string) (stream string, role Role) {
	stream = strings.ToLower(strings.TrimSpace(labels[LabelStream]))
	switch {
	case stream == "":
		return "", ""
	case isAny(labels[LabelBootc], "true", "1"):
		return stream, RoleOS
	case isAny(labels[LabelExtensions], "true"):
		return stream, RoleExtensions
	default:
		return "", ""
	}
}

func isAny(value string, wanted ...string) bool {
	return slices.Contains(wanted, strings.ToLower(strings.TrimSpace(value)))
}

// isDeprecated reports whether an OS image says that its stream ends.
func isDeprecated(labels map[string]string) bool {
	return !isAny(labels[LabelDeprecated], "", "false")
}
