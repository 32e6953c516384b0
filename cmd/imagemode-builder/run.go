package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/imagemode/imagemode/builder"
	"github.com/imagemode/imagemode/builder/request"
)

// runBuild builds and writes the result, also that of a failure.
func runBuild(ctx context.Context, options buildOptions) error {
	if os.Geteuid() != 0 {
		return errors.New("build has to run as root (in a user namespace is enough): it mounts file systems")
	}
	result, err := builder.Build(ctx, options.Options)
	if writeErr := writeResult(options.result, result); writeErr != nil {
		err = errors.Join(err, writeErr)
	}
	return err
}

// writeResult writes into a file that may exist as a mount (the termination
// log), and so cannot be replaced.
func writeResult(path string, result request.Result) error {
	if path == "" {
		return nil
	}
	if err := os.WriteFile(path, result.Encode(), 0o644); err != nil {
		return fmt.Errorf("writing the result: %w", err)
	}
	return nil
}
