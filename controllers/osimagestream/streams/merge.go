package streams

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
)

// maxStreams is the API's limit on availableStreams.
const maxStreams = 100

// Merge joins the sources: of two streams with the same name the later source's
// takes the place of the earlier one's, as a whole. The result is sorted by
// name. Streams beyond the hundredth by name are left out and reported, since
// the API takes no more.
func Merge(sources ...Source) ([]mcfgv1.OSImageStreamSet, []Problem) {
	byName := map[string]mcfgv1.OSImageStreamSet{}
	origin := map[string]string{}
	var problems []Problem
	for _, source := range sources {
		problems = append(problems, source.Problems...)
		for _, stream := range source.Streams {
			byName[stream.Name] = stream
			origin[stream.Name] = source.Name
		}
	}
	merged := slices.SortedFunc(maps.Values(byName), compareNames)
	for _, stream := range merged[min(len(merged), maxStreams):] {
		problems = append(problems, Problem{
			Source: origin[stream.Name], Stream: stream.Name,
			Reason: fmt.Sprintf("left out: there are %d streams, and %d are allowed", len(merged), maxStreams),
		})
	}
	return merged[:min(len(merged), maxStreams)], problems
}

func compareNames(a, b mcfgv1.OSImageStreamSet) int { return strings.Compare(a.Name, b.Name) }

// find returns the stream of that name.
func find(streams []mcfgv1.OSImageStreamSet, name string) (mcfgv1.OSImageStreamSet, bool) {
	i := slices.IndexFunc(streams, func(stream mcfgv1.OSImageStreamSet) bool { return stream.Name == name })
	if i < 0 {
		return mcfgv1.OSImageStreamSet{}, false
	}
	return streams[i], true
}

// Names lists the names of streams, in their order.
func Names(streams []mcfgv1.OSImageStreamSet) []string {
	names := make([]string, 0, len(streams))
	for _, stream := range streams {
		names = append(names, stream.Name)
	}
	return names
}
