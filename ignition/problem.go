package ignition

import (
	"errors"
	"fmt"
	"strings"
)

// Problem is one thing in a config that an image cannot hold.
type Problem struct {
	// Path is where: the path of a file, directory or link, the name of a unit,
	// or the field of the config (storage.disks, passwd.users[core]).
	Path string
	// Reason says why it cannot be delivered, and what to do where there is a way.
	Reason string
}

func (p Problem) String() string { return p.Path + ": " + p.Reason }

// RefusedError is a config that cannot be put in an image.
type RefusedError struct{ Problems []Problem }

func (e *RefusedError) Error() string {
	texts := make([]string, len(e.Problems))
	for i, problem := range e.Problems {
		texts[i] = problem.String()
	}
	return "the Ignition config cannot be put in an image: " + strings.Join(texts, "; ")
}

// ProblemsIn are those of an error, which may be several joined; none where it is
// about something else.
func ProblemsIn(err error) []Problem {
	if joined, isJoined := err.(interface{ Unwrap() []error }); isJoined {
		var problems []Problem
		for _, part := range joined.Unwrap() {
			problems = append(problems, ProblemsIn(part)...)
		}
		return problems
	}
	var refused *RefusedError
	if errors.As(err, &refused) {
		return refused.Problems
	}
	return nil
}

func problemf(path, format string, args ...any) Problem {
	return Problem{Path: path, Reason: fmt.Sprintf(format, args...)}
}
