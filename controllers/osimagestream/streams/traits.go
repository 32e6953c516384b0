package streams

import (
	"encoding/json"
	"slices"
	"strings"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"

	"github.com/imagemode/imagemode/api/machineconfiguration"
)

// Container runtimes that streams differ in.
const (
	RuntimeCrun = "crun"
	RuntimeRunc = "runc"
)

// Traits are what is known about a stream besides its images. The API has no
// field for them: they stand in an annotation of the OSImageStream.
type Traits struct {
	// Runtimes are the container runtimes of the OS image, sorted; empty: unknown.
	Runtimes []string `json:"runtimes,omitempty"`
	// Deprecated says that the next release will not have the stream.
	Deprecated bool `json:"deprecated,omitempty"`
	// Image is the digest of the OS image whose labels were read; empty: none were.
	Image string `json:"image,omitempty"`
	// Unread says for the user why they could not be read; empty: they were, or
	// nobody has tried yet.
	Unread string `json:"unread,omitempty"`
}

func (t Traits) isEmpty() bool {
	return len(t.Runtimes) == 0 && !t.Deprecated && t.Image == "" && t.Unread == ""
}

// TraitsOf reads the labels of an OS image.
func TraitsOf(labels map[string]string) Traits {
	return Traits{Runtimes: parseRuntimes(labels[LabelRuntimes]), Deprecated: isDeprecated(labels)}
}

// maxRuntimes bounds what a label can bring into an annotation.
const maxRuntimes = 8

// parseRuntimes reads a list separated by commas. Names that are none are dropped.
func parseRuntimes(list string) []string {
	var runtimes []string
	for _, name := range strings.Split(list, ",") {
		name = strings.ToLower(strings.TrimSpace(name))
		if name != "" && len(name) <= 32 && !slices.Contains(runtimes, name) {
			runtimes = append(runtimes, name)
		}
	}
	slices.Sort(runtimes)
	return runtimes[:min(len(runtimes), maxRuntimes)]
}

// knownRuntimes are those of streams whose images have no label that says it.
var knownRuntimes = map[string][]string{
	"rhel-9":    {RuntimeCrun, RuntimeRunc},
	"rhel-10":   {RuntimeCrun},
	"centos-10": {RuntimeCrun},
}

// EncodeTraits writes the annotation imagemode.dev/stream-traits: JSON, a map
// from a stream's name to {runtimes, deprecated, image, unread}. Nothing known is
// the empty text.
func EncodeTraits(traits map[string]Traits) string {
	known := map[string]Traits{}
	for stream, each := range traits {
		if !each.isEmpty() {
			known[stream] = each
		}
	}
	if len(known) == 0 {
		return ""
	}
	encoded, err := json.Marshal(known)
	if err != nil {
		panic(err) // strings and a bool always marshal
	}
	return string(encoded)
}

// DecodeTraits reads the annotation. What does not parse is as good as absent:
// it is written anew by the next reconcile.
func DecodeTraits(object *mcfgv1.OSImageStream) map[string]Traits {
	traits := map[string]Traits{}
	if object != nil {
		if json.Unmarshal([]byte(object.Annotations[machineconfiguration.AnnotationStreamTraits]), &traits) != nil {
			return map[string]Traits{}
		}
	}
	return traits
}

// RuntimesOf returns the container runtimes of a stream: as its OS image says,
// else as is known of the stream's name; nil: unknown. object may be nil.
func RuntimesOf(object *mcfgv1.OSImageStream, stream string) []string {
	if traits, isRead := traitsOf(object, stream); isRead && len(traits.Runtimes) > 0 {
		return traits.Runtimes
	}
	return knownRuntimes[stream]
}

// traitsOf returns what is known of a stream, and whether it was read off the
// OS image that the stream has now: a newer one may lack what the older one had.
func traitsOf(object *mcfgv1.OSImageStream, stream string) (traits Traits, isRead bool) {
	if object == nil {
		return Traits{}, false
	}
	traits = DecodeTraits(object)[stream]
	set, found := find(object.Status.AvailableStreams, stream)
	return traits, found && traits.Image != "" && traits.Image == digestOf(string(set.OSImage))
}
