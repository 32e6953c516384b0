package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/imagemode/imagemode/builder"
	"github.com/imagemode/imagemode/builder/request"
)

// runBuild builds and writes the result, also that of a failure.
func runBuild(ctx context.Context, options buildOptions) error {
	var missing *builder.MissingRequestError
	if _, err := builder.ReadRequest(options.Options); errors.As(err, &missing) && options.result == "" {
		return missing // a person called this: there is no build yet that could have failed
	}
	isIsolated := builder.EnterIsolation()
	runsPrograms := builder.RunsPrograms(options.Options)
	if runsPrograms && os.Geteuid() != 0 {
		return errors.New("this build has to run as root (in a user namespace is enough): its programs run on mounted file systems")
	}
	if runsPrograms && !isIsolated {
		err := builder.Isolate(ctx)
		if !errors.Is(err, builder.ErrNotIsolated) {
			return reportKilled(ctx, options, err)
		}
	}
	result, err := builder.Build(ctx, options.Options)
	if result.Failure != nil && result.Failure.IsFinal() {
		err = &finalError{err}
	}
	if writeErr := writeResult(options.result, result); writeErr != nil {
		err = errors.Join(err, writeErr)
	}
	return err
}

// finalError is a failure that no further attempt mends.
type finalError struct{ error }

func (e *finalError) Unwrap() error { return e.error }

// reportKilled writes the result of a build that could not do it itself.
func reportKilled(ctx context.Context, options buildOptions, err error) error {
	var exit *builder.ExitError
	if !errors.As(err, &exit) || exit.Signal == 0 {
		return err
	}
	failure := request.Failure{Class: request.Resources, Message: "the build was killed; most likely the memory was not enough"}
	if ctx.Err() != nil {
		failure = request.Failure{Class: request.Internal, Message: "the build was stopped"}
	}
	return errors.Join(errors.New(failure.Message), writeResult(options.result, request.Result{Failure: &failure}))
}

// dryRun prints the steps of a build.
func dryRun(ctx context.Context, options buildOptions, out, log io.Writer) error {
	options.Out = log // the list is all that goes to the standard output
	storage, err := os.MkdirTemp("", "imagemode-builder-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(storage)
	options.Storage = filepath.Join(storage, "storage")
	planned, err := builder.DryRun(ctx, options.Options)
	for _, step := range planned {
		fmt.Fprintln(out, step)
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
