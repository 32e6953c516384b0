package streams

import (
	"fmt"
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
}

// maxEntrySize bounds one entry of the ConfigMap in bytes: two image references
// of the largest size the API takes (447) and room for comments.
const maxEntrySize = 4096

// entry is the YAML of one stream in the ConfigMap.
type entry struct {
	OSImage           string `json:"osImage"`
	OSExtensionsImage string `json:"osExtensionsImage"`
}

// FromConfigMap reads the data of the ConfigMap imagemode-streams: each key is
// a stream's name, each value YAML with osImage and osExtensionsImage, both by
// digest. osExtensionsImage may be left out: the OS image then stands in, since
// the API requires one. Entries that are not valid become problems.
func FromConfigMap(name string, data map[string]string) Source {
	source := Source{Name: name}
	for _, stream := range sortedKeys(data) {
		set, err := parseEntry(stream, data[stream])
		if err != nil {
			source.Problems = append(source.Problems, Problem{Source: name, Stream: stream, Reason: err.Error()})
			continue
		}
		source.Streams = append(source.Streams, set)
	}
	return source
}

// parseEntry makes a stream of one entry.
func parseEntry(stream, text string) (mcfgv1.OSImageStreamSet, error) {
	if problems := validation.IsDNS1123Subdomain(stream); len(problems) > 0 {
		return mcfgv1.OSImageStreamSet{}, fmt.Errorf("%q cannot be the name of a stream: %s", stream, problems[0])
	}
	if len(text) > maxEntrySize {
		return mcfgv1.OSImageStreamSet{}, fmt.Errorf("the entry has %d bytes, and %d are read at most", len(text), maxEntrySize)
	}
	var parsed entry
	if err := yaml.UnmarshalStrict([]byte(text), &parsed); err != nil {
		return mcfgv1.OSImageStreamSet{}, fmt.Errorf("not YAML with osImage and osExtensionsImage: %s", oneLine(err))
	}
	if parsed.OSExtensionsImage == "" {
		parsed.OSExtensionsImage = parsed.OSImage
	}
	if err := checkImage("osImage", parsed.OSImage); err != nil {
		return mcfgv1.OSImageStreamSet{}, err
	}
	if err := checkImage("osExtensionsImage", parsed.OSExtensionsImage); err != nil {
		return mcfgv1.OSImageStreamSet{}, err
	}
	return mcfgv1.OSImageStreamSet{
		Name:              stream,
		OSImage:           mcfgv1.ImageDigestFormat(parsed.OSImage),
		OSExtensionsImage: mcfgv1.ImageDigestFormat(parsed.OSExtensionsImage),
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
		return fmt.Errorf("%s %q has no digest; a tag can move: write host[:port][/namespace]/name@sha256:<64 hex>", field, image)
	case !imageByDigest.MatchString(image):
		return fmt.Errorf("%s %q is not of the form host[:port][/namespace]/name@sha256:<64 hex> with a dot in host and one namespace at most", field, image)
	}
	return nil
}

// oneLine makes an error's text fit a condition or an event.
func oneLine(err error) string {
	return strings.Join(strings.Fields(err.Error()), " ")
}

// sortedKeys fixes the order of a map, so that the same data give the same result.
func sortedKeys(data map[string]string) []string {
	keys := make([]string, 0, len(data))
	for key := range data {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}
