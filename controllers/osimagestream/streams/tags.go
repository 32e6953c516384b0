package streams

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// tagStreams are the streams that releases keep under fixed tags. Where labels
// can be read they decide; this table is for when no image may be looked at.
var tagStreams = map[string]string{
	"rhel-coreos":    "rhel-9",
	"rhel-coreos-10": "rhel-10",
	"stream-coreos":  "centos-10",
}

// extensionsSuffix is what the tag of an extensions image has behind that of
// its OS image.
const extensionsSuffix = "-extensions"

// FromTags makes streams of a payload by the names of its tags alone. Tags that
// no stream is known for become problems.
func FromTags(source string, payload *Payload) Source {
	candidates := make([]Candidate, 0, len(payload.Images))
	result := Source{Name: source}
	for _, image := range payload.Images {
		base, isExtensions := strings.CutSuffix(image.Tag, extensionsSuffix)
		stream, isKnown := tagStreams[base]
		if !isKnown {
			result.report("", "tag %s is of no known stream; known tags: %s", image.Tag,
				strings.Join(slices.Sorted(maps.Keys(tagStreams)), ", "))
			continue
		}
		labels := map[string]string{LabelStream: stream}
		if isExtensions {
			labels[LabelExtensions] = "true"
		} else {
			labels[LabelBootc] = "1"
		}
		candidates = append(candidates, Candidate{Image: image.Image, Origin: "tag " + image.Tag, Labels: labels})
	}
	grouped := Group(source, candidates)
	grouped.Problems = append(result.Problems, grouped.Problems...)
	return grouped
}

// AtHand is what a control plane knows without asking a registry.
type AtHand struct {
	// Payload is the release's ImageStream; nil: not at hand.
	Payload *Payload
	// Pair is ControllerConfig's pair of images.
	Pair Pair
	// Requested is the default stream that was asked for: ControllerConfig's,
	// else the OSImageStream's. Empty: none.
	Requested string
}

// FromAtHand makes streams where discovery may open no connection. With a
// payload its tags name the streams, and the requested one has to be among
// them: an image never goes by another stream's name. Without a payload there
// is exactly one stream, the requested one, with ControllerConfig's pair.
func FromAtHand(source string, known AtHand) (Source, error) {
	if known.Payload == nil {
		return fromRequest(source, known)
	}
	result := FromTags(source, known.Payload)
	if len(result.Streams) == 0 {
		return Source{}, fmt.Errorf("the payload %s has no complete stream: %s", known.Payload.Version, firstReason(result.Problems))
	}
	if _, found := find(result.Streams, known.Requested); known.Requested != "" && !found {
		return Source{}, fmt.Errorf("the requested default stream %q is not in the payload %s, whose tags give %s; "+
			"request one of these, or use a payload with a tag for %s",
			known.Requested, known.Payload.Version, describeTags(known.Payload), known.Requested)
	}
	return result, nil
}

func fromRequest(source string, known AtHand) (Source, error) {
	switch {
	case known.Requested == "":
		return Source{}, fmt.Errorf("there is no payload ImageStream and no requested default stream, so the images of ControllerConfig have no name; " +
			"set ControllerConfig.spec.defaultStream, or spec.defaultStream in a manifest of OSImageStream cluster")
	case known.Pair.IsEmpty():
		return Source{}, fmt.Errorf("there is no payload ImageStream, and ControllerConfig has no %s and %s", KeyBaseImage, KeyExtensionsImage)
	}
	if err := known.Pair.check("ControllerConfig spec."+KeyBaseImage, "ControllerConfig spec."+KeyExtensionsImage); err != nil {
		return Source{}, err
	}
	return known.Pair.Named(source, known.Requested)
}

// describeTags lists streams with the tag each comes from.
func describeTags(payload *Payload) string {
	var known []string
	for _, image := range payload.Images {
		if stream, isKnown := tagStreams[image.Tag]; isKnown {
			known = append(known, fmt.Sprintf("%s (tag %s)", stream, image.Tag))
		}
	}
	return strings.Join(known, ", ")
}

func firstReason(problems []Problem) string {
	if len(problems) == 0 {
		return "no tag is that of an OS image"
	}
	return problems[0].Reason
}
