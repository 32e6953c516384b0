package streams

import (
	"fmt"
	"maps"
	"slices"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

// Group makes streams of candidates by their labels. Images of no stream are
// passed over. What is half there, what the API would refuse, and the earlier
// of two images of one stream and role become problems.
func Group(source string, candidates []Candidate) Source {
	result := Source{Name: source}
	groups := map[string]map[Role]Candidate{}
	for _, candidate := range candidates {
		stream, role := Classify(candidate.Labels)
		if role == "" {
			continue
		}
		if err := checkCandidate(stream, candidate); err != nil {
			result.report(stream, "%s: %v", candidate.Origin, err)
			continue
		}
		if groups[stream] == nil {
			groups[stream] = map[Role]Candidate{}
		}
		if earlier, isDouble := groups[stream][role]; isDouble && earlier.Image != candidate.Image {
			result.report(stream, "%s and %s are both its %s, and the later one is taken; label one of them for another stream",
				earlier.Origin, candidate.Origin, role)
		}
		groups[stream][role] = candidate
	}
	for _, stream := range slices.Sorted(maps.Keys(groups)) {
		result.addGroup(stream, groups[stream])
	}
	return result
}

// checkCandidate says what the API would not take of an image.
func checkCandidate(stream string, candidate Candidate) error {
	if problems := validation.IsDNS1123Subdomain(stream); len(problems) > 0 {
		return fmt.Errorf("its label %s %q cannot be the name of a stream: %s", LabelStream, Truncate(stream, maxProblemStream), problems[0])
	}
	return checkImage("image", candidate.Image)
}

// addGroup adds a stream that has both images.
func (s *Source) addGroup(stream string, images map[Role]Candidate) {
	os, hasOS := images[RoleOS]
	extensions, hasExtensions := images[RoleExtensions]
	switch {
	case !hasExtensions:
		s.report(stream, "left out: %s is its OS image, and no image has the labels %s=%s and %s=true",
			os.Origin, LabelStream, stream, LabelExtensions)
	case !hasOS:
		s.report(stream, "left out: %s is its extensions image, and no image has the labels %s=%s and %s=1",
			extensions.Origin, LabelStream, stream, LabelBootc)
	default:
		s.Streams = append(s.Streams, mcfgv1.OSImageStreamSet{
			Name:              stream,
			OSImage:           mcfgv1.ImageDigestFormat(os.Image),
			OSExtensionsImage: mcfgv1.ImageDigestFormat(extensions.Image),
		})
		s.learn(stream, os.Labels)
	}
}

// learn notes what the labels of a stream's OS image say about it.
func (s *Source) learn(stream string, labels map[string]string) {
	traits := TraitsOf(labels)
	if traits.isEmpty() {
		return
	}
	if s.Traits == nil {
		s.Traits = map[string]Traits{}
	}
	s.Traits[stream] = traits
}

func (s *Source) report(stream, format string, arguments ...any) {
	s.Problems = append(s.Problems, Problem{Source: s.Name, Stream: stream, Reason: fmt.Sprintf(format, arguments...)})
}
