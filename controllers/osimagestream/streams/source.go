package streams

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/yaml"
)

// Problem is something that was left out, and why. Everything else works on.
type Problem struct {
	// Source is where it stands, such as "ConfigMap ns/imagemode-streams".
	Source string `json:"source"`
	// Stream is the stream's name; empty where the problem is not one stream's.
	Stream string `json:"stream,omitempty"`
	// Reason is one sentence for the user, with what to do.
	Reason string `json:"reason"`
}

// Source is what one source of streams said.
type Source struct {
	// Name of the source, as in Problem.
	Name string
	// Streams that are complete and valid.
	Streams []mcfgv1.OSImageStreamSet
	// Problems with the others.
	Problems []Problem
	// Traits of streams by name, where the source knows them.
	Traits map[string]Traits
}

// Set is a stream with its images, as the API has it.
type Set = mcfgv1.OSImageStreamSet

// maxEntrySize bounds one entry of the ConfigMap in bytes: two image references
// of the largest size the API takes (447) and room for comments.
const maxEntrySize = 4096

// entry is the YAML of one stream in the ConfigMap.
type entry struct {
	OSImage           string `json:"osImage"`
	OSExtensionsImage string `json:"osExtensionsImage"`
	// Deprecated says that the stream will go, so that nobody is surprised.
	Deprecated bool `json:"deprecated"`
}

// FromConfigMap reads the data of the ConfigMap imagemode-streams: each key is
// a stream's name, each value YAML with osImage and osExtensionsImage, both by
// digest. osExtensionsImage may be left out: the OS image then stands in, since
// the API requires one. deprecated: true announces that the stream will go.
// Entries that are not valid become problems.
func FromConfigMap(name string, data map[string]string) Source {
	source := Source{Name: name, Traits: map[string]Traits{}}
	for _, stream := range slices.Sorted(maps.Keys(data)) {
		parsed, err := parseEntry(data[stream])
		var set Set
		if err == nil {
			set, err = newSet(stream, Pair{OSImage: parsed.OSImage, ExtensionsImage: parsed.OSExtensionsImage})
		}
		if err != nil {
			source.report(stream, "%v", err)
			continue
		}
		source.Streams = append(source.Streams, set)
		source.Traits[stream] = Traits{Deprecated: parsed.Deprecated}
	}
	return source
}

// parseEntry reads one entry.
func parseEntry(text string) (entry, error) {
	if len(text) > maxEntrySize {
		return entry{}, fmt.Errorf("the entry has %d bytes, and %d are read at most", len(text), maxEntrySize)
	}
	var parsed entry
	if err := yaml.UnmarshalStrict([]byte(text), &parsed); err != nil {
		return entry{}, fmt.Errorf("not YAML with osImage and osExtensionsImage: %s", oneLine(err))
	}
	if parsed.OSExtensionsImage == "" {
		parsed.OSExtensionsImage = parsed.OSImage
	}
	return parsed, nil
}

// newSet makes a stream of two images, if the API takes them.
func newSet(stream string, images Pair) (Set, error) {
	if problems := validation.IsDNS1123Subdomain(stream); len(problems) > 0 {
		return Set{}, fmt.Errorf("%q cannot be the name of a stream: %s", Truncate(stream, maxProblemStream), problems[0])
	}
	if err := images.check("osImage", "osExtensionsImage"); err != nil {
		return Set{}, err
	}
	return Set{
		Name:              stream,
		OSImage:           mcfgv1.ImageDigestFormat(images.OSImage),
		OSExtensionsImage: mcfgv1.ImageDigestFormat(images.ExtensionsImage),
	}, nil
}

// imageByDigest is what the CRD of OSImageStream accepts as an image: one
// entry it refuses would make the API server refuse the whole status.
var imageByDigest = regexp.MustCompile(
	`^([a-zA-Z0-9-]+\.)+[a-zA-Z0-9-]+(:[0-9]{2,5})?/([a-zA-Z0-9-_]{0,61}/)?[a-zA-Z0-9-_.]*@sha256:[a-f0-9]{64}$`)

// maxImageLength is the API's limit on an image reference in bytes.
const maxImageLength = 447

// checkImage says what is wrong with an image reference.
func checkImage(field, image string) error {
	switch {
	case image == "":
		return fmt.Errorf("%s is missing; set it to host[:port][/namespace]/name@sha256:<64 hex>", field)
	case len(image) > maxImageLength:
		return fmt.Errorf("%s has %d bytes, and %d are allowed", field, len(image), maxImageLength)
	case !strings.Contains(image, "@"):
		return fmt.Errorf("%s %q has no digest; a tag can move: write host[:port][/namespace]/name@sha256:<64 hex>", field, short(image))
	case !imageByDigest.MatchString(image):
		return fmt.Errorf("%s %q is not of the form host[:port][/namespace]/name@sha256:<64 hex> with a dot in host and one namespace at most", field, short(image))
	}
	return nil
}

// short cuts what was found, so that what is wrong with it is not cut off behind it.
func short(text string) string { return Truncate(text, 150) }

// oneLine makes an error's text fit a condition or an event.
func oneLine(err error) string {
	return strings.Join(strings.Fields(err.Error()), " ")
}
