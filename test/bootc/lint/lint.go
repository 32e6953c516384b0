// Package lint checks a root file system as `bootc container lint` does: the
// fatal checks of bootc, and those of its warnings that need no knowledge of
// package managers.
package lint

import (
	"fmt"
	"io"
	"os"
	"slices"
)

// Options are the flags of the command.
type Options struct {
	FatalWarnings bool
	// Skip are names of checks.
	Skip []string
}

// check looks at a root and returns what is wrong with it, one sentence each.
type check struct {
	name  string
	fatal bool
	find  func(root *os.Root) ([]string, error)
}

// checks in the order in which they run.
var checks = []check{
	{"var-run", true, findVarRun},
	{"etc-usretc", true, findUsrEtc},
	{"bootc-kargs", true, findKargs},
	{"kernel", true, findKernels},
	{"utf8", true, findNames},
	{"api-base-directories", true, findMissingDirectories},
	{"baseimage-root", true, findBaseRoot},
	{"var-log", false, findLogs},
	{"nonempty-boot", false, findContent("boot")},
	{"nonempty-run-tmp", false, findContent("run", "tmp")},
}

// Names lists every check, for `--list`.
func Names() []string {
	names := make([]string, 0, len(checks))
	for _, check := range checks {
		names = append(names, check.name)
	}
	return names
}

// Run checks the root file system at a directory and reports to out. The error
// counts the checks that failed; a root that cannot be read is an error too.
func Run(directory string, options Options, out io.Writer) error {
	root, err := os.OpenRoot(directory)
	if err != nil {
		return err
	}
	defer root.Close()
	passed, warnings, failed := 0, 0, 0
	for _, check := range checks {
		if slices.Contains(options.Skip, check.name) {
			continue
		}
		problems, err := check.find(root)
		if err != nil {
			return fmt.Errorf("Linting %s: %w", check.name, err)
		}
		switch {
		case len(problems) == 0:
			passed++
		case check.fatal:
			failed++
			report(out, "Failed lint", check.name, problems)
		default:
			warnings++
			report(out, "Lint warning", check.name, problems)
		}
	}
	fmt.Fprintf(out, "Checks passed: %d\n", passed)
	if warnings > 0 {
		fmt.Fprintf(out, "Warnings: %d\n", warnings)
	}
	if options.FatalWarnings {
		failed += warnings
	}
	if failed > 0 {
		return fmt.Errorf("Checks failed: %d", failed)
	}
	return nil
}

// shownProblems keeps a check that fails everywhere readable.
const shownProblems = 5

func report(out io.Writer, kind, name string, problems []string) {
	for _, problem := range problems[:min(shownProblems, len(problems))] {
		fmt.Fprintf(out, "%s: %s: %s\n", kind, name, problem)
	}
	if hidden := len(problems) - shownProblems; hidden > 0 {
		fmt.Fprintf(out, "%s: %s: ...and %d more\n", kind, name, hidden)
	}
}
