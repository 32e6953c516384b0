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
	"github.com/imagemode/imagemode/test/cluster/ownimages"
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
		PersistentPreRunE: func(*cobra.Command, []string) error {
			return complete(&options)
		},
	}
	root.PersistentFlags().StringVar(&options.Source, "source", "", "checkout to compile from (default: the one around the working directory)")
	root.AddCommand(
		&cobra.Command{
			Use: "up", Short: "Bring the cluster up, or repair it", Args: cobra.NoArgs,
			RunE: locked(&options, lifecycle.Up),
		},
		&cobra.Command{
			Use: "down", Short: "Remove the cluster and all it made", Args: cobra.NoArgs,
			RunE: locked(&options, lifecycle.Down),
		},
		&cobra.Command{
			Use: "status", Short: "Show every part of the cluster", Args: cobra.NoArgs,
			RunE: func(command *cobra.Command, _ []string) error {
				return lifecycle.Status(command.Context(), options, command.OutOrStdout())
			},
		},
		&cobra.Command{
			Use: "binaries", Short: "Only compile the cluster's programs to the cache", Args: cobra.NoArgs,
			RunE: locked(&options, lifecycle.Binaries),
		},
	)
	root.AddCommand(newImagesCommand(&options))
	return root
}

func newImagesCommand(options *lifecycle.Options) *cobra.Command {
	tag := "dev"
	command := &cobra.Command{
		Use: "images", Short: "Build imagemode's own images and push them to the cluster's registry", Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			_, err := ownimages.Publish(command.Context(), ownimages.Options{
				Source: options.Source, BuildDir: filepath.Join(options.CacheDir, "images"), Tag: tag, Log: options.Log,
			})
			return err
		},
	}
	command.Flags().StringVar(&tag, "tag", tag, "tag of the images")
	return command
}

// complete finds the checkout and the cache.
func complete(options *lifecycle.Options) error {
	var err error
	if options.CacheDir, err = layout.CacheDir(); err != nil {
		return err
	}
	start := options.Source
	if start == "" {
		if start, err = os.Getwd(); err != nil {
			return err
		}
	}
	options.Source, err = source.Find(start)
	return err
}

// locked runs action while no other command changes the cluster.
func locked(options *lifecycle.Options, action func(context.Context, lifecycle.Options) error) func(*cobra.Command, []string) error {
	return func(command *cobra.Command, _ []string) error {
		release, err := lock.Acquire()
		if err != nil {
			return err
		}
		defer release()
		return action(command.Context(), *options)
	}
}

// newLog prints progress lines with the seconds since start.
func newLog(start time.Time) func(format string, args ...any) {
	return func(format string, args ...any) {
		fmt.Printf("[%4.0fs] %s\n", time.Since(start).Seconds(), fmt.Sprintf(format, args...))
	}
}
