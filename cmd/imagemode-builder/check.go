package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/pflag"

	"github.com/imagemode/imagemode/builder"
)

// check refuses flags that could not work, before there is a build that could
// fail: a file that is missing would else show up as a refused pull, or after an
// hour as a result that is not written.
func (o buildOptions) check(flags *pflag.FlagSet) error {
	var problems []error
	if err := builder.CheckOutput(o.Output); err != nil {
		problems = append(problems, fmt.Errorf("--output %w", err))
	}
	if o.Request != "" && flags.Changed("dir") {
		problems = append(problems, checkPath("--dir "+o.Dir, o.Dir, true))
	}
	switch {
	case flags.Changed("authfile"):
		problems = append(problems, checkPath("--authfile "+o.AuthFile, o.AuthFile, false))
	case o.AuthFile != "" && o.Request != "":
		problems = append(problems, checkPath("REGISTRY_AUTH_FILE="+o.AuthFile, o.AuthFile, false))
	}
	if o.result != "" {
		problems = append(problems, checkPath("--result "+o.result, filepath.Dir(o.result), true))
	}
	return errors.Join(problems...)
}

// checkPath refuses a path that is not there, or is not what it should be.
func checkPath(named, path string, isDirectory bool) error {
	kind := "file"
	if isDirectory {
		kind = "directory"
	}
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%s: there is no %s %s", named, kind, path)
	case err != nil:
		return fmt.Errorf("%s: %w", named, err)
	case info.IsDir() != isDirectory:
		return fmt.Errorf("%s: %s is no %s", named, path, kind)
	}
	return nil
}
