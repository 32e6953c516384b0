package streams

import (
	"encoding/json"
	"fmt"
	"unicode/utf8"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"

	"github.com/imagemode/imagemode/api/machineconfiguration"
)

// Bounds of the problems annotation: an object's annotations have 256 KiB
// together, and a person reads some lines.
const (
	maxProblems      = 20
	maxProblemText   = 300
	maxProblemStream = 64
)

// EncodeProblems writes problems as the value of the annotation
// imagemode.dev/problems: a JSON list, in the order given, of 20 entries at most
// (a last one says how many more there are) with texts cut to 300 bytes. No
// problems are the empty text.
func EncodeProblems(problems []Problem) string {
	if len(problems) == 0 {
		return ""
	}
	var bounded []Problem
	for _, problem := range problems[:min(len(problems), maxProblems)] {
		bounded = append(bounded, Problem{
			Source: Truncate(problem.Source, maxProblemText),
			Stream: Truncate(problem.Stream, maxProblemStream),
			Reason: Truncate(problem.Reason, maxProblemText),
		})
	}
	if more := len(problems) - maxProblems; more > 0 {
		bounded = append(bounded, Problem{Reason: fmt.Sprintf("and %d more", more)})
	}
	encoded, err := json.Marshal(bounded)
	if err != nil {
		// Three strings always marshal.
		panic(err)
	}
	return string(encoded)
}

// ProblemsOf returns the problems that concern a stream: its own, and those of
// whole sources, since the stream may come from one of them. The annotation has
// them cut short. object may be nil; what does not parse is as good as absent.
func ProblemsOf(object *mcfgv1.OSImageStream, stream string) []Problem {
	var all, concerning []Problem
	if object == nil || json.Unmarshal([]byte(object.Annotations[machineconfiguration.AnnotationProblems]), &all) != nil {
		return nil
	}
	for _, problem := range all {
		if problem.Stream == stream || problem.Stream == "" {
			concerning = append(concerning, problem)
		}
	}
	return concerning
}

// Truncate cuts text to at most limit bytes, at a character's border.
func Truncate(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	cut := limit - len("…")
	for cut > 0 && !utf8.RuneStart(text[cut]) {
		cut--
	}
	return text[:cut] + "…"
}
