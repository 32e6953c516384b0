package main

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/imagemode/imagemode/test/bootc/host"
	"github.com/imagemode/imagemode/test/bootc/lint"
)

func newSwitch(h *host.Host) *cobra.Command {
	var options host.SwitchOptions
	var quiet bool
	command := &cobra.Command{
		Use:   "switch TARGET",
		Short: "Target a new container image reference to boot",
		Args:  usage(cobra.ExactArgs(1)),
		RunE: func(command *cobra.Command, arguments []string) error {
			if options.DownloadOnly && options.Apply {
				return usageError{errors.New("the argument '--download-only' cannot be used with '--apply'")}
			}
			if err := requireHost(h); err != nil {
				return err
			}
			if err := h.FailOnPurpose("switch"); err != nil {
				return err
			}
			silence(h, quiet)
			options.Target.Image = arguments[0]
			return h.Switch(command.Context(), options)
		},
	}
	flags := command.Flags()
	flags.BoolVar(&quiet, "quiet", false, "Don't display progress")
	flags.BoolVar(&options.Apply, "apply", false, "Restart or reboot into the new target image")
	flags.BoolVar(&options.DownloadOnly, "download-only", false, "Download and stage, but do not apply at the next reboot")
	flags.StringVar(&options.SoftReboot, "soft-reboot", "", "Configure soft reboot behavior: required or auto")
	flags.Bool("retain", false, "Retain reference to currently booted image (it is always retained here, as the rollback)")
	flags.StringVar(&options.Target.Transport, "transport", "registry", "The transport; only registry is supported here")
	return command
}

func newUpgrade(h *host.Host) *cobra.Command {
	var options host.UpgradeOptions
	var quiet bool
	command := &cobra.Command{
		Use:     "upgrade",
		Aliases: []string{"update"},
		Short:   "Download and queue an updated container image to apply",
		Args:    usage(cobra.NoArgs),
		RunE: func(command *cobra.Command, _ []string) error {
			if err := checkUpgrade(options); err != nil {
				return err
			}
			if err := requireHost(h); err != nil {
				return err
			}
			if err := h.FailOnPurpose("upgrade"); err != nil {
				return err
			}
			silence(h, quiet)
			return h.Upgrade(command.Context(), options)
		},
	}
	flags := command.Flags()
	flags.BoolVar(&quiet, "quiet", false, "Don't display progress")
	flags.BoolVar(&options.Check, "check", false, "Check if an update is available without applying it")
	flags.BoolVar(&options.DownloadOnly, "download-only", false, "Download and stage, but do not apply at the next reboot")
	flags.StringVar(&options.SoftReboot, "soft-reboot", "", "Configure soft reboot behavior: required or auto")
	flags.BoolVar(&options.FromDownloaded, "from-downloaded", false, "Apply what was staged with --download-only, without asking the registry")
	flags.BoolVar(&options.Apply, "apply", false, "Restart or reboot into the new target image")
	return command
}

// checkUpgrade refuses the combinations that bootc refuses.
func checkUpgrade(options host.UpgradeOptions) error {
	for _, conflict := range []struct {
		present bool
		flags   string
	}{
		{options.Check && options.Apply, "'--check' cannot be used with '--apply'"},
		{options.DownloadOnly && options.Check, "'--download-only' cannot be used with '--check'"},
		{options.DownloadOnly && options.Apply, "'--download-only' cannot be used with '--apply'"},
		{options.FromDownloaded && options.Check, "'--from-downloaded' cannot be used with '--check'"},
		{options.FromDownloaded && options.DownloadOnly, "'--from-downloaded' cannot be used with '--download-only'"},
	} {
		if conflict.present {
			return usageError{fmt.Errorf("the argument %s", conflict.flags)}
		}
	}
	return nil
}

func newRollback(h *host.Host) *cobra.Command {
	var apply bool
	command := &cobra.Command{
		Use:   "rollback",
		Short: "Change the bootloader entry ordering; the deployment under `rollback` will be queued for the next boot",
		Args:  usage(cobra.NoArgs),
		RunE: func(*cobra.Command, []string) error {
			if err := requireHost(h); err != nil {
				return err
			}
			if err := h.FailOnPurpose("rollback"); err != nil {
				return err
			}
			return h.Rollback(apply)
		},
	}
	command.Flags().BoolVar(&apply, "apply", false, "Restart or reboot into the rollback image")
	return command
}

func newContainer() *cobra.Command {
	container := &cobra.Command{Use: "container", Short: "Operations which can be executed as part of a container build", RunE: requireSubcommand}
	var options lint.Options
	var rootfs string
	var list, noTruncate bool
	command := &cobra.Command{
		Use:   "lint",
		Short: "Perform relatively inexpensive static analysis checks as part of a container build",
		Args:  usage(cobra.NoArgs),
		RunE: func(command *cobra.Command, _ []string) error {
			if list {
				_, err := fmt.Fprintln(command.OutOrStdout(), strings.Join(lint.Names(), "\n"))
				return err
			}
			return lint.Run(rootfs, options, command.OutOrStdout())
		},
	}
	flags := command.Flags()
	flags.StringVar(&rootfs, "rootfs", "/", "Operate on the provided rootfs")
	flags.BoolVar(&options.FatalWarnings, "fatal-warnings", false, "Make warnings fatal")
	flags.StringArrayVar(&options.Skip, "skip", nil, "Skip the targeted lints, by name")
	flags.BoolVar(&list, "list", false, "List all available lints")
	flags.BoolVar(&noTruncate, "no-truncate", false, "Accepted for compatibility")
	container.AddCommand(command)
	return container
}

// newInternals are the verbs that systemd and the local cluster call.
func newInternals(h *host.Host) *cobra.Command {
	internals := &cobra.Command{Use: "internals", Hidden: true, RunE: requireSubcommand}
	internals.AddCommand(&cobra.Command{
		Use:  "finalize-staged",
		Args: usage(cobra.NoArgs),
		RunE: func(*cobra.Command, []string) error {
			if err := requireHost(h); err != nil {
				return err
			}
			return h.Finalize()
		},
	}, newInstall(h))
	return internals
}

func newInstall(h *host.Host) *cobra.Command {
	command := &cobra.Command{
		Use:   "install IMAGE",
		Short: "Make IMAGE the first deployment of an empty sysroot",
		Args:  usage(cobra.ExactArgs(1)),
		RunE: func(command *cobra.Command, arguments []string) error {
			return h.Install(command.Context(), host.ImageReference{Image: arguments[0], Transport: "registry"})
		},
	}
	flags := command.Flags()
	flags.StringVar(&h.Sysroot, "sysroot", h.Sysroot, "Directory to install into")
	flags.StringVar(&h.System.AuthFilePath, "authfile", "", "docker config.json for the registry")
	flags.StringVar(&h.System.DockerPerHostCertDirPath, "certs-dir", "", "Directory in the form of /etc/containers/certs.d")
	flags.StringVar(&h.System.SignaturePolicyPath, "policy", "", "containers-policy.json")
	return command
}

func requireSubcommand(command *cobra.Command, arguments []string) error {
	if len(arguments) > 0 {
		return usageError{fmt.Errorf("unrecognized subcommand '%s'", arguments[0])}
	}
	return usageError{errors.New("'bootc " + command.Name() + "' requires a subcommand")}
}

func silence(h *host.Host, quiet bool) {
	if quiet {
		h.Progress = io.Discard
	}
}
