package streams

import (
	"fmt"
	"slices"
	"strings"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
)

// Use is a stream that pools run or are to run.
type Use struct {
	Stream string
	// Pools by name, sorted.
	Pools []string
}

// Uses returns which pools use which stream, by the stream's name. wishes maps a
// pool's name to what it asks for. A pool whose stream cannot be resolved uses
// none.
func Uses(object *mcfgv1.OSImageStream, wishes map[string]Request) []Use {
	byStream := map[string][]string{}
	for pool, wish := range wishes {
		if resolved, err := Resolve(object, wish); err == nil {
			byStream[resolved.Name] = append(byStream[resolved.Name], pool)
		}
	}
	var uses []Use
	for stream, pools := range byStream {
		slices.Sort(pools)
		uses = append(uses, Use{Stream: stream, Pools: pools})
	}
	slices.SortFunc(uses, func(a, b Use) int { return strings.Compare(a.Stream, b.Stream) })
	return uses
}

// EndingUse is a stream in use that will go.
type EndingUse struct {
	Use
	// Message names the stream, its pools and what to do.
	Message string
}

// Ending returns the streams in use that will go: the next payload lacks them,
// or they are marked as deprecated. traits are those of the present streams,
// available, and next are the streams of the next payload; nil: it is not known.
func Ending(uses []Use, traits map[string]Traits, next *Source, available []Set) []EndingUse {
	isEnding := func(stream string) bool {
		if next != nil {
			if _, found := find(next.Streams, stream); !found {
				return true
			}
		}
		return traits[stream].Deprecated
	}
	var remaining []string
	for _, name := range Names(available) {
		if !isEnding(name) {
			remaining = append(remaining, name)
		}
	}
	var endings []EndingUse
	for _, use := range uses {
		if isEnding(use.Stream) {
			endings = append(endings, EndingUse{Use: use, Message: fmt.Sprintf(
				"the next release has no OS image stream %s, which is used by MachineConfigPools %s; move them to another one first (%s)",
				use.Stream, strings.Join(use.Pools, ", "), choiceOf(remaining))})
		}
	}
	return endings
}

func choiceOf(names []string) string {
	if len(names) == 0 {
		return "there is none yet"
	}
	return strings.Join(names, ", ")
}
