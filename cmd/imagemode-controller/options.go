package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"

	keys "github.com/imagemode/imagemode/api/machineconfiguration"
	"github.com/imagemode/imagemode/builder/request"
	"github.com/imagemode/imagemode/controllers/machineconfigpool"
	"github.com/imagemode/imagemode/controllers/machineosbuild"
)

// Options of the controller program, one for each flag.
type Options struct {
	// Namespace of Secrets, ConfigMaps, Jobs and the leader's lease.
	Namespace string
	// Controllers to run: switches, "*" for all, "-name" for all but this one.
	Controllers []string
	// FeatureGates that the user has set; the others are as documented.
	FeatureGates featureGates
	// LeaderElect lets one of several replicas work at a time.
	LeaderElect bool
	// MetricsBindAddress serves metrics by TLS to whoever may get the
	// non-resource URL /metrics; "0": not at all.
	MetricsBindAddress string
	// HealthProbeBindAddress serves /healthz and /readyz.
	HealthProbeBindAddress string
	// QPS and Burst bound the requests to the API server.
	QPS   float32
	Burst int

	// BuilderImage and BuilderPod are what builder pods are made of.
	BuilderImage string
	BuilderPod   machineosbuild.BuilderPod
	// AgentImage brings the agent into every image that is built.
	AgentImage string
	// BuilderDeadline ends a build, all its attempts together.
	BuilderDeadline time.Duration
	// BuilderPendingDeadline ends a build whose pod cannot start.
	BuilderPendingDeadline time.Duration
	// MaxConcurrentBuilds is how many builds run at a time, in the whole cluster.
	MaxConcurrentBuilds int
	// History is how many builds of a MachineOSConfig are kept besides those in use.
	History machineosbuild.HistoryLimits
	// Prune says what happens to images that nothing refers to.
	Prune string
	// DefaultBuild is the MachineOSConfig of pools that have none.
	DefaultBuild machineconfigpool.DefaultBuild
	// Workers of each controller of builds.
	Workers int
	// NodePullSecret and GlobalPullSecret name Secrets in Namespace.
	NodePullSecret   string
	GlobalPullSecret string
	// DefaultStream is the OS stream of a cluster that has not chosen one.
	DefaultStream string
	// ReleaseImage, BaseOSImage and BaseOSExtensionsImage are sources of OS
	// streams besides the objects of the cluster.
	ReleaseImage          string
	BaseOSImage           string
	BaseOSExtensionsImage string

	// RolloutBackend does the rollouts: native, or bootc-operator.
	RolloutBackend string
	// NodeName is the node that this program runs on, if it runs in a cluster.
	NodeName string

	// Log is how the log is written.
	Log zap.Options
}

// newCommand returns the command; run gets the options as the flags set them.
func newCommand(run func(*cobra.Command, Options) error) *cobra.Command {
	options := Options{}
	command := &cobra.Command{
		Use:           "imagemode-controller",
		Short:         "Build OS images from what is declared in the cluster, and move nodes to them",
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(command *cobra.Command, _ []string) error {
			if err := options.validate(); err != nil {
				return err
			}
			return run(command, options)
		},
	}
	options.addFlags(command)
	command.AddCommand(newBootstrapCommand())
	return command
}

func (o *Options) addFlags(command *cobra.Command) {
	flags := command.Flags()
	flags.StringVar(&o.Namespace, "namespace", keys.Namespace, "namespace of Secrets, ConfigMaps and Jobs")
	flags.StringSliceVar(&o.Controllers, "controllers", []string{"*"}, controllersUsage())
	flags.Var(&o.FeatureGates, "feature-gates", gatesUsage())
	flags.BoolVar(&o.LeaderElect, "leader-elect", false, "let one of several replicas work at a time")
	flags.StringVar(&o.MetricsBindAddress, "metrics-bind-address", ":8443", "address that serves metrics, by TLS and with authorization; 0: none")
	flags.StringVar(&o.HealthProbeBindAddress, "health-probe-bind-address", ":8081", "address that serves /healthz and /readyz; 0: none")
	flags.Float32Var(&o.QPS, "kube-api-qps", 200, "requests a second to the API server")
	flags.IntVar(&o.Burst, "kube-api-burst", 400, "requests to the API server that may go at once")

	flags.StringVar(&o.BuilderImage, "builder-image", "", "image with imagemode-builder (required for the controller machineosbuild)")
	flags.StringVar(&o.AgentImage, "agent-image", "",
		"image, by digest, whose layers hold imagemode-agent as a service of the host, all of it below /usr: every image that is built gets them on top, and no pod is needed for the agent. "+
			"It is part of what an image is made of: setting another one builds and rolls out all images anew. It is read with the credentials for base images; empty: agents are pods")
	addBuilderPodFlags(flags, &o.BuilderPod)
	flags.DurationVar(&o.BuilderDeadline, "builder-deadline", 2*time.Hour, "how long a build may take, all its attempts together")
	flags.DurationVar(&o.BuilderPendingDeadline, "builder-pending-deadline", 30*time.Minute,
		"how long a builder pod may wait for a node or an image before its build fails")
	flags.IntVar(&o.MaxConcurrentBuilds, "max-concurrent-builds", 5, "builds that run at a time, of all pools; what a user asked for goes first")
	flags.IntVar(&o.History.Succeeded, "successful-builds-history-limit", machineosbuild.DefaultHistory.Succeeded,
		"MachineOSBuilds with an image that are kept for each MachineOSConfig, besides those in use")
	flags.IntVar(&o.History.Unsuccessful, "failed-builds-history-limit", machineosbuild.DefaultHistory.Unsuccessful,
		"MachineOSBuilds without an image that are kept for each MachineOSConfig")
	flags.StringVar(&o.Prune, "prune", string(machineosbuild.PruneImages),
		"images that nothing refers to any more: true deletes them from their registry after a day, dry-run logs them, false leaves them")
	flags.StringVar(&o.DefaultBuild.PushRepository, "default-push-repository", "",
		"host[:port]/path, without a tag: pools without a MachineOSConfig get one that pushes there, until a user writes their own; empty: they get none")
	flags.StringVar(&o.DefaultBuild.PushSecret, "default-push-secret", "", "Secret to push to --default-push-repository with")
	flags.StringVar(&o.DefaultBuild.BasePullSecret, "default-base-pull-secret", "", "Secret to pull base images with, for pools without a MachineOSConfig")
	flags.IntVar(&o.Workers, "build-workers", 2, "MachineOSConfigs, and MachineOSBuilds, that are worked on at the same time")
	flags.StringVar(&o.NodePullSecret, "node-pull-secret", "", "Secret that nodes pull images with, if they do not have the credentials themselves")
	flags.StringVar(&o.GlobalPullSecret, "global-pull-secret", "global-pull-secret-copy", "Secret with the cluster's own pull credentials, where there is one; where there is openshift-config/pull-secret and no Secret of this name, a copy of it is made")
	flags.StringVar(&o.DefaultStream, "default-stream", "", "OS stream of a cluster that has not chosen one")
	flags.StringVar(&o.ReleaseImage, "release-image", "", "release image with OS streams, on a cluster without a ClusterVersion")
	flags.StringVar(&o.BaseOSImage, "base-os-image", "", "OS image, by digest, of a cluster with one OS stream; its labels name the stream")
	flags.StringVar(&o.BaseOSExtensionsImage, "base-os-extensions-image", "", "extensions image, by digest, that belongs to --base-os-image")

	flags.StringVar(&o.RolloutBackend, "rollout-backend", backendNative, "who brings images to nodes: "+backendNative+" (this program and its agents) or "+backendBootcOperator+" (that operator, through a BootcNodePool for each ImageRollout)")
	flags.StringVar(&o.NodeName, "node-name", os.Getenv("NODE_NAME"), "name of the node that this program runs on, which is updated last (default: the environment's NODE_NAME)")

	logFlags := flag.NewFlagSet("log", flag.ContinueOnError)
	o.Log.BindFlags(logFlags)
	flags.AddGoFlagSet(logFlags)
	// controller-runtime has put --kubeconfig into Go's own flag set.
	if kubeconfig := flag.CommandLine.Lookup("kubeconfig"); kubeconfig != nil {
		flags.AddGoFlag(kubeconfig)
	}
}

// validate finds what no controller could start with.
func (o *Options) validate() error {
	var problems []error
	if o.Namespace == "" {
		problems = append(problems, errors.New("--namespace is empty; name the namespace of Secrets and Jobs"))
	}
	problems = append(problems, checkControllers(o.Controllers))
	if o.runs(switchBuilds) && o.BuilderImage == "" {
		problems = append(problems, errors.New("--builder-image is empty; name the image with imagemode-builder"))
	}
	if o.AgentImage != "" {
		if err := request.CheckByDigest(o.AgentImage); err != nil {
			problems = append(problems, fmt.Errorf("--agent-image %w", err))
		}
	}
	for name, deadline := range map[string]time.Duration{
		"--builder-deadline": o.BuilderDeadline, "--builder-pending-deadline": o.BuilderPendingDeadline,
	} {
		if deadline <= 0 {
			problems = append(problems, fmt.Errorf("%s %s is not positive", name, deadline))
		}
	}
	for name, number := range map[string]int{"--max-concurrent-builds": o.MaxConcurrentBuilds, "--build-workers": o.Workers} {
		if number < 1 {
			problems = append(problems, fmt.Errorf("%s %d is less than 1", name, number))
		}
	}
	if o.History.Succeeded < 0 || o.History.Unsuccessful < 0 {
		problems = append(problems, errors.New("--successful-builds-history-limit and --failed-builds-history-limit cannot be negative"))
	}
	if (o.DefaultBuild.PushRepository == "") != (o.DefaultBuild.PushSecret == "") {
		problems = append(problems, errors.New("--default-push-repository and --default-push-secret belong together; set both or none"))
	}
	if !slices.Contains(pruneModes, machineosbuild.PruneMode(o.Prune)) {
		problems = append(problems, fmt.Errorf("--prune=%s: write true, dry-run or false", o.Prune))
	}
	if o.RolloutBackend != backendNative && o.RolloutBackend != backendBootcOperator {
		problems = append(problems, fmt.Errorf("--rollout-backend: %q is none of %s, %s", o.RolloutBackend, backendNative, backendBootcOperator))
	}
	if (o.BaseOSImage == "") != (o.BaseOSExtensionsImage == "") {
		problems = append(problems, errors.New("--base-os-image and --base-os-extensions-image belong together; set both or none"))
	}
	return errors.Join(problems...)
}

var pruneModes = []machineosbuild.PruneMode{machineosbuild.PruneImages, machineosbuild.ListImages, machineosbuild.KeepImages}

// Values of --rollout-backend.
const (
	backendNative        = "native"
	backendBootcOperator = "bootc-operator"
)
