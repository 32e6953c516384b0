// Command cluster runs a real Kubernetes cluster on this machine: a control
// plane and an image registry as plain processes, and worker nodes that are
// booted OS images.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/imagemode/imagemode/test/cluster/layout"
	"github.com/imagemode/imagemode/test/cluster/lifecycle"
	"github.com/imagemode/imagemode/test/cluster/lock"
	"github.com/imagemode/imagemode/test/cluster/machine"
	"github.com/imagemode/imagemode/test/cluster/ownimages"
	"github.com/imagemode/imagemode/test/cluster/preflight"
	"github.com/imagemode/imagemode/test/cluster/source"
)

func main() {
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	if err := newCommand().ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "cluster:", err)
		os.Exit(1)
	}
}

func newCommand() *cobra.Command {
	options := lifecycle.Options{Log: newLog(time.Now())}
	root := &cobra.Command{
		Use:           "cluster",
		Short:         "A local Kubernetes cluster whose workers are booted OS images",
		SilenceUsage:  true,
		SilenceErrors: true,
		PersistentPreRunE: func(*cobra.Command, []string) (err error) {
			options.CacheDir, err = layout.CacheDir()
			return err
		},
	}
	root.PersistentFlags().StringVar(&options.Source, "source", "", "checkout to compile from (default: the one around the working directory)")
	root.AddCommand(
		newCommandOf("up", "Bring the cluster up, or repair it", asRoot(locked(withSource(lifecycle.Up))), &options),
		newCommandOf("down", "Remove the cluster and all it made", asRoot(locked(lifecycle.Down)), &options),
		newCommandOf("status", "Show every part of the cluster", asRoot(printStatus), &options),
		newCommandOf("binaries", "Only compile the cluster's programs to the cache", locked(withSource(lifecycle.Binaries)), &options),
		newImagesCommand(&options),
		machine.ExecCommand(),
		machine.PowerCutCommand(),
		machine.SupervisorCommand(),
	)
	return root
}

// action is what a command does.
type action func(context.Context, lifecycle.Options) error

func newCommandOf(use, short string, run action, options *lifecycle.Options) *cobra.Command {
	return &cobra.Command{
		Use: use, Short: short, Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			return run(command.Context(), *options)
		},
	}
}

func newImagesCommand(options *lifecycle.Options) *cobra.Command {
	tag := "dev"
	publish := func(ctx context.Context, options lifecycle.Options) error {
		_, err := ownimages.Publish(ctx, ownimages.Options{
			Source: options.Source, BuildDir: filepath.Join(options.CacheDir, "images"), Tag: tag, Log: options.Log,
		})
		return err
	}
	command := newCommandOf("images", "Build imagemode's own images and push them to the cluster's registry", asRoot(withSource(publish)), options)
	command.Flags().StringVar(&tag, "tag", tag, "tag of the images")
	return command
}

func printStatus(ctx context.Context, options lifecycle.Options) error {
	return lifecycle.Status(ctx, options, os.Stdout)
}

// asRoot refuses everybody but root.
func asRoot(run action) action {
	return func(ctx context.Context, options lifecycle.Options) error {
		if err := preflight.RequireRoot(); err != nil {
			return err
		}
		return run(ctx, options)
	}
}

// withSource finds the checkout before run.
func withSource(run action) action {
	return func(ctx context.Context, options lifecycle.Options) error {
		start := options.Source
		if start == "" {
			var err error
			if start, err = os.Getwd(); err != nil {
				return err
			}
		}
		var err error
		if options.Source, err = source.Find(start); err != nil {
			return err
		}
		return run(ctx, options)
	}
}

// locked runs run while no other command changes the cluster.
func locked(run action) action {
	return func(ctx context.Context, options lifecycle.Options) error {
		release, err := lock.Acquire()
		if err != nil {
			return err
		}
		defer release()
		return run(ctx, options)
	}
}

// newLog prints progress lines with the seconds since start.
func newLog(start time.Time) func(format string, args ...any) {
	return func(format string, args ...any) {
		fmt.Printf("[%4.0fs] %s\n", time.Since(start).Seconds(), fmt.Sprintf(format, args...))
	}
}
