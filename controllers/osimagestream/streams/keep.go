package streams

import (
	"fmt"
	"slices"
)

// Gaps are what could not be read of the sources this time, and may be next time.
type Gaps struct {
	// PayloadUnread: nothing is known of the payload yet.
	PayloadUnread bool
	// PayloadBroken: the payload was read and makes no sense. Trying again does
	// not help.
	PayloadBroken bool
	// Unread are images that a source names and whose labels could not be read.
	Unread []string
	// Missing are images that a source names and that do not exist.
	Missing []string
	// Named are all images that the sources name, Unread and Missing among them.
	Named []string
}

// With gives the gaps of two discoveries together.
func (g Gaps) With(other Gaps) Gaps {
	return Gaps{
		PayloadUnread: g.PayloadUnread || other.PayloadUnread, PayloadBroken: g.PayloadBroken || other.PayloadBroken,
		Unread: slices.Concat(g.Unread, other.Unread), Missing: slices.Concat(g.Missing, other.Missing), Named: slices.Concat(g.Named, other.Named),
	}
}

// IsPartial reports whether anything is missing that may be there next time.
func (g Gaps) IsPartial() bool { return g.PayloadUnread || len(g.Unread) > 0 }

// KeepKnown adds to a partial result the streams that were known before and
// that it lacks only because something could not be read:
//
//   - all of them, where the payload could not be read at all;
//   - else those of the same payload: both images are still named by a source,
//     and one of them could not be read.
//
// A stream that the sources no longer have is not kept. Each one kept is a problem.
func KeepKnown(merged Merged, previous []Set, traits map[string]Traits, gaps Gaps) Merged {
	if !gaps.IsPartial() && !gaps.PayloadBroken {
		return merged
	}
	for _, stream := range previous {
		if _, found := find(merged.Streams, stream.Name); found || !gaps.explains(stream) || len(merged.Streams) == maxStreams {
			continue
		}
		merged.Streams = append(merged.Streams, stream)
		if known := traits[stream.Name]; !known.isEmpty() {
			merged.Traits[stream.Name] = known
		}
		merged.Problems = append(merged.Problems, Problem{
			Source: "OSImageStream cluster", Stream: stream.Name,
			Reason: fmt.Sprintf("kept as it was (%s) until its source can be read again", stream.OSImage),
		})
	}
	slices.SortFunc(merged.Streams, compareNames)
	return merged
}

// explains reports whether the gaps are why a stream is missing.
func (g Gaps) explains(stream Set) bool {
	if g.PayloadUnread || g.PayloadBroken {
		return true
	}
	os, extensions := string(stream.OSImage), string(stream.OSExtensionsImage)
	return slices.Contains(g.Named, os) && slices.Contains(g.Named, extensions) &&
		(slices.Contains(g.Unread, os) || slices.Contains(g.Unread, extensions))
}
