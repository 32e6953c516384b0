package main

import (
	"flag"
	"fmt"
	"os"

	"github.com/spf13/cobra"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client/config"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"

	"github.com/imagemode/imagemode/rollout/agent"
)

const longHelp = `imagemode-agent runs on every node of an ImageRollout: it downloads the OS image
that the node's NodeImage names in the background, locked against an unplanned
reboot, reboots into it when told to, and reports what the node has.

It runs bootc on the host as transient systemd units over D-Bus and needs to be
root. As a pod it needs the host's process namespace (hostPID) and privileges;
as a service of the host it is started with --host-root=/, and acts as the node,
by the kubelet's credential. Where that service runs, a pod stands back.

As long as there is no NodeImage for the node it does nothing.`

// newCommand is the command line: flags to Options, nothing else.
func newCommand() *cobra.Command {
	options := Options{}
	logging := zap.Options{}
	command := &cobra.Command{
		Use:           "imagemode-agent --node-name NAME",
		Short:         "Bring this node to the OS image that its NodeImage names",
		Long:          longHelp,
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(command *cobra.Command, _ []string) error {
			ctrl.SetLogger(zap.New(zap.UseFlagOptions(&logging)))
			return Run(command.Context(), options)
		},
	}
	command.AddCommand(newGoBack())
	flags := command.Flags()
	flags.StringVar(&options.NodeName, "node-name", os.Getenv("NODE_NAME"), "name of this node (default: the environment's NODE_NAME; as a service of the host, the one in the kubelet's credential)")
	flags.StringVar(&options.HostRoot, "host-root", "/proc/1/root", "where the host's root directory is seen: /proc/1/root in a pod with hostPID, / for a service of the host")
	flags.StringVar(&options.PullSecretDir, "pull-secret-dir", "/etc/imagemode/node-pull", "directory where the Secret imagemode-node-pull is mounted, one file per ImageRollout; may be absent")
	flags.StringVar(&options.PullSecretFile, "pull-secret-file", "", "file with this node's own pull secret, such as /var/lib/kubelet/config.json: it is used in place of the rollout's")
	flags.StringVar(&options.HealthAddress, "health-address", "0", "address for /healthz and /readyz, such as :9810; 0 for none")
	flags.StringVar(&options.MetricsAddress, "metrics-address", "0", "address for /metrics, such as 127.0.0.1:9811; 0 for none")
	config.RegisterFlags(flag.CommandLine) // --kubeconfig
	logging.BindFlags(flag.CommandLine)
	flags.AddGoFlagSet(flag.CommandLine)
	return command
}

// newGoBack is what the dead-man timer of the host runs; it needs no cluster.
func newGoBack() *cobra.Command {
	isBoot := false
	command := &cobra.Command{
		Use:   "go-back",
		Short: "Go back to the OS image before, if the present one was not confirmed in time (run by units of the host)",
		Args:  cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			host := agent.NewSystemdHost("/")
			defer host.Close()
			look := agent.Deadman
			if isBoot {
				look = agent.CountBoot
			}
			why, err := look(command.Context(), host)
			if err != nil {
				return fmt.Errorf("go back: %w", err)
			}
			fmt.Fprintln(command.OutOrStdout(), why)
			return nil
		},
	}
	command.Flags().BoolVar(&isBoot, "boot", false, "count this boot, and go back only after too many that nobody confirmed (run once in each boot)")
	return command
}
