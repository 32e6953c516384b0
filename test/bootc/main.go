package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"go.podman.io/storage/pkg/reexec"

	"github.com/imagemode/imagemode/test/bootc/host"
)

// version is the bootc release whose contract is kept.
const version = "1.16.10"

// usageError is a mistake in the arguments: exit code 2.
type usageError struct{ error }

func main() {
	// Layers are unpacked in a child of this program that is called by another name.
	if reexec.Init() {
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	os.Exit(run(ctx, machine(), os.Args[1:]))
}

// machine is the host this program runs on.
func machine() *host.Host {
	h := &host.Host{Sysroot: "/sysroot", Run: "/run", Root: "/", Out: os.Stdout, Progress: os.Stderr}
	h.System.DockerRegistryUserAgent = "bootc/" + version
	h.Execute = func(name string, arguments ...string) error {
		output, err := exec.Command(name, arguments...).CombinedOutput()
		if err != nil {
			return fmt.Errorf("%s: %w: %s", name, err, output)
		}
		return nil
	}
	h.Park = func() error { select {} }
	return h
}

// run executes one command line and returns the exit code.
func run(ctx context.Context, h *host.Host, arguments []string) int {
	root := newCommand(h)
	if err := forgetFlags(h, root); err != nil {
		fmt.Fprintf(os.Stderr, "error: %v\n", err)
		return 1
	}
	root.SetArgs(arguments)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return 0
	}
	fmt.Fprintf(os.Stderr, "error: %v\n", err)
	if usage := (usageError{}); errors.As(err, &usage) {
		fmt.Fprintln(os.Stderr, "\nFor more information, try '--help'.")
		return 2
	}
	return 1
}

func newCommand(h *host.Host) *cobra.Command {
	root := &cobra.Command{
		Use:           "bootc",
		Short:         "Deploy and transactionally in-place with bootable container images (a stand-in for tests)",
		Version:       version,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          usage(cobra.NoArgs),
		RunE: func(*cobra.Command, []string) error {
			return usageError{errors.New("a subcommand is required")}
		},
	}
	root.SetVersionTemplate("bootc {{.Version}}\n")
	root.CompletionOptions.DisableDefaultCmd = true
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError{err} })
	root.AddCommand(newStatus(h), newSwitch(h), newUpgrade(h), newRollback(h), newContainer(), newInternals(h))
	return root
}

// forgetFlags makes this an older bootc, if a test wants one: it builds the verb
// anew without those flags, so that its help does not list them either.
func forgetFlags(h *host.Host, root *cobra.Command) error {
	faults, err := h.Faults()
	if err != nil {
		return err
	}
	for _, unknown := range faults.Without {
		verb, flag, _ := strings.Cut(unknown, " --")
		for _, command := range root.Commands() {
			if command.Name() != verb {
				continue
			}
			kept := pflag.NewFlagSet(verb, pflag.ContinueOnError)
			command.Flags().VisitAll(func(f *pflag.Flag) {
				if f.Name != flag {
					kept.AddFlag(f)
				}
			})
			command.ResetFlags()
			command.Flags().AddFlagSet(kept)
		}
	}
	return nil
}

// usage makes what a validator of arguments refuses an error of usage.
func usage(validate cobra.PositionalArgs) cobra.PositionalArgs {
	return func(command *cobra.Command, arguments []string) error {
		if err := validate(command, arguments); err != nil {
			return usageError{err}
		}
		return nil
	}
}

// requireHost refuses what only a booted host can do.
func requireHost(h *host.Host) error {
	if host.IsContainer(h.Root) {
		return errors.New("Detected container; this command requires a booted host system.")
	}
	if os.Geteuid() != 0 {
		return errors.New("This command must be executed as the root user")
	}
	if !h.IsBootcHost() {
		return host.ErrNotBooted
	}
	return nil
}
