package containerfiles

import (
	"regexp"
	"slices"
	"strings"

	"github.com/moby/buildkit/frontend/dockerfile/instructions"
	"github.com/openshift/imagebuilder"
)

// resolveFroms puts the defaults of the arguments above the first FROM into the
// FROM lines of plan.Text: what the final stage descends from has to be known
// before anything is built, and buildah does not find a named context behind a
// variable. A FROM with an argument that has no default is left as it is. Lines
// keep their numbers. It reports whether anything changed.
func resolveFroms(plan *Plan, stages []instructions.Stage, arguments []instructions.ArgCommand) (changed bool, err error) {
	known, names := defaults(arguments)
	lines := strings.SplitAfter(plan.Text, "\n")
	for _, stage := range stages {
		if !strings.Contains(stage.BaseName, "$") || len(stage.Location) == 0 || !containsAll(names, variablesIn(stage.BaseName)) {
			continue
		}
		image, err := imagebuilder.ProcessWord(stage.BaseName, known)
		if err != nil {
			return false, stageError(plan, stage, "FROM %s: %v", stage.BaseName, err)
		}
		if image == "" {
			return false, stageError(plan, stage, "FROM %s is empty with the defaults of its arguments", stage.BaseName)
		}
		for i := stage.Location[0].Start.Line - 1; i < stage.Location[0].End.Line; i++ {
			if at := strings.LastIndex(lines[i], stage.BaseName); at >= 0 {
				lines[i] = lines[i][:at] + image + lines[i][at+len(stage.BaseName):]
				changed = true
				break
			}
		}
	}
	plan.Text = strings.Join(lines, "")
	return changed, nil
}

// defaults gives the arguments that have a value, as NAME=value; a later one may
// be made from an earlier one.
func defaults(arguments []instructions.ArgCommand) (known, names []string) {
	for _, command := range arguments {
		for _, argument := range command.Args {
			if argument.Value == nil || !containsAll(names, variablesIn(*argument.Value)) {
				continue
			}
			value, err := imagebuilder.ProcessWord(*argument.Value, known)
			if err != nil {
				continue // the stage that uses it is refused
			}
			known = append(known, argument.Key+"="+value)
			names = append(names, argument.Key)
		}
	}
	return known, names
}

var variablePattern = regexp.MustCompile(`\$\{?([A-Za-z_][A-Za-z0-9_]*)(:-)?`)

// variablesIn gives the names of the variables without which a word is not
// known: ${NAME:-value} has a value in any case.
func variablesIn(word string) []string {
	var names []string
	for _, match := range variablePattern.FindAllStringSubmatch(word, -1) {
		if match[2] == "" {
			names = append(names, match[1])
		}
	}
	return names
}

func containsAll(all, some []string) bool {
	return !slices.ContainsFunc(some, func(name string) bool { return !slices.Contains(all, name) })
}
