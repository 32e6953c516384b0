package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/imagemode/imagemode/builder"
)

func newCommand() *cobra.Command {
	command := &cobra.Command{
		Use:           "imagemode-builder",
		Short:         "Make one OS image from a build request",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	command.AddCommand(newBuildCommand(), newCopyCredentialsCommand())
	return command
}

// buildOptions are the flags of the command build.
type buildOptions struct {
	builder.Options
	result string
	dryRun bool
}

func newBuildCommand() *cobra.Command {
	var options buildOptions
	command := &cobra.Command{
		Use:   "build",
		Short: "Build, verify and push the image that a request asks for",
		Long: `Build reads a request, installs the extensions and the kernel, appends the layer
of the MachineConfig to the image in the registry, runs the Containerfile,
verifies the image and pushes it. A step that an earlier build made from the
same inputs is not run again: its image is in the repository that is pushed to,
under the tag step-<key>; a whole image is found as inputs-<hash>. A build that
runs programs has to run as root, in a user namespace or not.

The directory holds
  request.json.gz      the request, JSON, with or without gzip
  pull/config.json     credentials for base and extensions images, docker config.json format
  push/config.json     credentials for the repository that is pushed to
  trust/ca-bundle.crt  certificates that registries and mirrors are signed with, PEM
  entitlement, yum.repos.d, rpm-gpg
                       directories that a RUN sees at /etc/pki/entitlement,
                       /etc/yum.repos.d and /etc/pki/rpm-gpg
All but the request may be missing. The credentials are removed as soon as they
are read, so that no RUN can find them: put copies there. A proxy is taken from
HTTP_PROXY, HTTPS_PROXY and NO_PROXY; mirrors and signature policy are those that
the MachineConfig of the request gives to the nodes.

On a workstation, --request names the file itself; credentials are then those of
"podman login" or "docker login". A request to start from, for --dry-run and
--output (what is pushed needs inputsHash, too; config/samples/build-request.json
has a file and a package):
  {
    "name": "worker-1", "architecture": "amd64",
    "baseImage": "registry.example.com/os/base@sha256:<64 hex>",
    "ignition": {"ignition": {"version": "3.4.0"}},
    "containerfile": "FROM configs AS final\nRUN echo hello >/etc/motd\n",
    "pushSpec": "registry.example.com/os/worker:worker-1"
  }
With --output, pushSpec may be left out, too.

Exit status: 0 the image is pushed; 1 it is not, and the result says why; 3 nor
would it be the next time: credentials or MachineConfig have to be mended first.`,
		Example: `  imagemode-builder build --request request.json --dry-run
  imagemode-builder build --request request.json --storage /var/tmp/imagemode
  imagemode-builder build --request request.json --output oci:/var/tmp/image`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			if err := options.check(command.Flags()); err != nil {
				return err
			}
			options.Out = command.OutOrStdout()
			if options.Request != "" && !command.Flags().Changed("dir") {
				options.Dir = ""
			}
			if options.dryRun {
				return dryRun(command.Context(), options, command.OutOrStdout(), command.ErrOrStderr())
			}
			return runBuild(command.Context(), options)
		},
	}
	flags := command.Flags()
	flags.StringVar(&options.Dir, "dir", "/run/imagemode/build", "directory with the request")
	flags.StringVar(&options.Request, "request", "", "file with the request, in place of the one in the directory")
	flags.StringVar(&options.AuthFile, "authfile", os.Getenv("REGISTRY_AUTH_FILE"), "with --request: credentials in docker config.json format, in place of those of the user")
	flags.StringVar(&options.Output, "output", "", "oci:DIRECTORY, an image layout that gets the image in place of the repository")
	flags.BoolVar(&options.dryRun, "dry-run", false, "print the steps, their keys, and which of them an earlier build has made; run and write nothing")
	flags.StringVar(&options.Storage, "storage", "/var/lib/imagemode/storage", "directory for images and layers, on a disk file system")
	flags.StringVar(&options.result, "result", "", "file that gets the result as JSON, at most 4096 bytes (in a pod: /dev/termination-log)")
	flags.BoolVar(&options.KeepCredentials, "keep-credentials", false, "leave the credentials in the directory, where a RUN as root may find them")
	return command
}

func newCopyCredentialsCommand() *cobra.Command {
	var from, to string
	command := &cobra.Command{
		Use:   "copy-credentials",
		Short: "Copy credentials from mounted Secrets to where build can remove them",
		Long: `Copy-credentials is the init container of a builder pod. A mounted Secret cannot
be removed by a container, so that a RUN might find it; build reads and removes
the copies. Below --from and --to:
  pull, push   a Secret each: config.json, .dockerconfigjson or .dockercfg
It writes pull/config.json and push/config.json, readable by root only. A missing
pull or push is left out.`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			if from == "" || to == "" {
				return errors.New("copy-credentials needs --from and --to")
			}
			if err := builder.CopyCredentials(from, to); err != nil {
				return fmt.Errorf("copy-credentials: %w", err)
			}
			return nil
		},
	}
	command.Flags().StringVar(&from, "from", "", "directory with the Secrets pull and push")
	command.Flags().StringVar(&to, "to", "", "directory in memory that gets the copies")
	return command
}
