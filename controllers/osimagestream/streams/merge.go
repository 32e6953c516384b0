package streams

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// maxStreams is the API's limit on availableStreams.
const maxStreams = 100

// Merged is what all sources say together.
type Merged struct {
	// Streams sorted by name.
	Streams []Set
	// Traits by stream, where something is known.
	Traits   map[string]Traits
	Problems []Problem
}

// Merge joins the sources: of two streams with the same name the later source's
// takes the place of the earlier one's, as a whole. Streams beyond the
// hundredth by name are left out and reported, since the API takes no more.
func Merge(sources ...Source) Merged {
	byName := map[string]Set{}
	origin := map[string]Source{}
	merged := Merged{Traits: map[string]Traits{}}
	for _, source := range sources {
		merged.Problems = append(merged.Problems, source.Problems...)
		for _, stream := range source.Streams {
			byName[stream.Name] = stream
			origin[stream.Name] = source
		}
	}
	all := slices.SortedFunc(maps.Values(byName), compareNames)
	merged.Streams = all[:min(len(all), maxStreams)]
	for _, stream := range merged.Streams {
		if traits := origin[stream.Name].Traits[stream.Name]; !traits.isEmpty() {
			merged.Traits[stream.Name] = traits
		}
	}
	for _, stream := range all[len(merged.Streams):] {
		merged.Problems = append(merged.Problems, Problem{
			Source: origin[stream.Name].Name, Stream: stream.Name,
			Reason: fmt.Sprintf("left out: there are %d streams, and %d are allowed", len(all), maxStreams),
		})
	}
	return merged
}

func compareNames(a, b Set) int { return strings.Compare(a.Name, b.Name) }

// find returns the stream of that name.
func find(streams []Set, name string) (Set, bool) {
	i := slices.IndexFunc(streams, func(stream Set) bool { return stream.Name == name })
	if i < 0 {
		return Set{}, false
	}
	return streams[i], true
}

// Names lists the names of streams, in their order.
func Names(streams []Set) []string {
	names := make([]string, 0, len(streams))
	for _, stream := range streams {
		names = append(names, stream.Name)
	}
	return names
}
