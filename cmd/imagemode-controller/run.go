package main

import (
	"context"
	"fmt"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"time"
	_ "time/tzdata" // maintenance windows name time zones; the image has no list of them

	"github.com/spf13/cobra"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	"sigs.k8s.io/controller-runtime/pkg/metrics/filters"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"

	keys "github.com/imagemode/imagemode/api/machineconfiguration"
	imagemodev1alpha1 "github.com/imagemode/imagemode/api/v1alpha1"
	"github.com/imagemode/imagemode/controllers/machineconfigpool"
	"github.com/imagemode/imagemode/controllers/machineosbuild"
	"github.com/imagemode/imagemode/controllers/nodepool"
	"github.com/imagemode/imagemode/controllers/osimagestream"
	"github.com/imagemode/imagemode/controllers/osimagestream/streams"
	"github.com/imagemode/imagemode/controllers/pullsecret"
	rollout "github.com/imagemode/imagemode/rollout/controller"
	"github.com/imagemode/imagemode/rollout/controller/bootcoperator"
)

// leaseName is the Lease that replicas of the controller elect a leader by.
const leaseName = "imagemode-controller"

// add adds controllers to a manager.
type add func(ctrl.Manager, Options) error

// controllers that this program runs, in the order of the flow. Each is added
// when one of its switches is on.
var controllers = []struct {
	switches []string
	add      add
}{
	{[]string{switchStreams}, addStreams},
	// Wherever builds are made here, their failure is shown on the pool.
	{append(slices.Clone(poolSwitches), switchBuilds), addPools},
	{[]string{switchBuilds}, addBuilds},
	{[]string{switchNodePools}, addNodePools},
	{[]string{switchRollout}, addRollouts},
}

func addStreams(mgr ctrl.Manager, o Options) error {
	return osimagestream.Add(mgr, osimagestream.Options{
		Namespace: o.Namespace, DefaultStream: o.DefaultStream, GlobalPullSecret: o.GlobalPullSecret, ReleaseImage: o.ReleaseImage,
		Pair: streams.Pair{OSImage: o.BaseOSImage, ExtensionsImage: o.BaseOSExtensionsImage},
	})
}

func addPools(mgr ctrl.Manager, o Options) error {
	options := machineconfigpool.Options{
		Namespace: o.Namespace, NodePullSecret: o.NodePullSecret, Version: version(), Settle: machineconfigpool.DefaultSettle,
		WithoutStreams: !o.FeatureGates.on(gateStreams), StreamsElsewhere: !o.runs(switchStreams),
		Off: machineconfigpool.Parts{
			Render: !o.runs(switchRender), Status: !o.runs(switchPoolStatus), Membership: !o.runs(switchMembership),
			MachineConfigNodes: !o.runs(switchMachineConfigNodes), NodeAnnotations: !o.runs(switchNodeAnnotations),
			HandOff: !o.runs(switchHandOff),
		},
	}
	if o.FeatureGates.on(gateDefaultBuilds) {
		options.DefaultBuild = o.DefaultBuild
	}
	return machineconfigpool.Add(mgr, options)
}

func addBuilds(mgr ctrl.Manager, o Options) error {
	cluster, err := clusterID(mgr.GetAPIReader())
	if err != nil {
		return err
	}
	return machineosbuild.Add(mgr, machineosbuild.Options{
		Namespace:              o.Namespace,
		BuilderImage:           o.BuilderImage,
		AgentImage:             o.AgentImage,
		BuilderPod:             o.BuilderPod,
		BuilderDeadline:        o.BuilderDeadline,
		BuilderPendingDeadline: o.BuilderPendingDeadline,
		MaxConcurrentBuilds:    o.MaxConcurrentBuilds,
		History:                &o.History,
		Prune:                  machineosbuild.PruneMode(o.Prune),
		ClusterID:              cluster,
		NodePullSecret:         o.NodePullSecret,
		GlobalPullSecret:       o.GlobalPullSecret,
		BuildsOnly:             !o.runs(switchHandOff),
		Workers:                o.Workers,
	})
}

func addNodePools(mgr ctrl.Manager, o Options) error {
	payloads := osimagestream.NewPayloads(mgr.GetClient(), osimagestream.Options{Namespace: o.Namespace, GlobalPullSecret: o.GlobalPullSecret})
	return nodepool.Add(mgr, nodepool.Options{Payloads: payloads})
}

func addRollouts(mgr ctrl.Manager, o Options) error {
	if o.RolloutBackend == backendBootcOperator {
		return bootcoperator.Add(mgr)
	}
	return rollout.Add(mgr, rollout.Options{Namespace: o.Namespace, NodeName: o.NodeName})
}

// +kubebuilder:rbac:groups="",resources=namespaces,resourceNames=kube-system,verbs=get

// clusterID tells this cluster from others that push to the same repositories: 12
// hex of the UID that namespace kube-system has for as long as the cluster is.
func clusterID(reader client.Reader) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	namespace := &corev1.Namespace{}
	if err := reader.Get(ctx, client.ObjectKey{Name: metav1.NamespaceSystem}, namespace); err != nil {
		return "", fmt.Errorf("read namespace %s, whose UID tells clusters apart: %w", metav1.NamespaceSystem, err)
	}
	return strings.ReplaceAll(string(namespace.UID), "-", "")[:12], nil
}

// version is that of the module this program was built from.
func version() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		return info.Main.Version
	}
	return ""
}

// +kubebuilder:rbac:groups=coordination.k8s.io,namespace=openshift-machine-config-operator,resources=leases,verbs=get;create;update;patch
// +kubebuilder:rbac:groups=authentication.k8s.io,resources=tokenreviews,verbs=create
// +kubebuilder:rbac:groups=authorization.k8s.io,resources=subjectaccessreviews,verbs=create

// Run runs the controllers until the command's context ends.
func Run(command *cobra.Command, options Options) error {
	ctrl.SetLogger(zap.New(zap.UseFlagOptions(&options.Log)))
	config, err := ctrl.GetConfig()
	if err != nil {
		return fmt.Errorf("find the API server (in a cluster, or with --kubeconfig): %w", err)
	}
	config.QPS, config.Burst = options.QPS, options.Burst
	if err := forgetHome(); err != nil {
		return err
	}
	settings, err := managerOptions(options)
	if err != nil {
		return err
	}
	mgr, err := ctrl.NewManager(config, settings)
	if err != nil {
		return fmt.Errorf("set up: %w", err)
	}
	for _, controller := range controllers {
		if !slices.ContainsFunc(controller.switches, options.runs) {
			continue
		}
		if err := controller.add(mgr, options); err != nil {
			return err
		}
	}
	if options.GlobalPullSecret != "" {
		copied := types.NamespacedName{Namespace: options.Namespace, Name: options.GlobalPullSecret}
		if err := pullsecret.Add(mgr, pullsecret.Options{Copy: copied}); err != nil {
			return err
		}
	}
	if err := addProbes(mgr); err != nil {
		return err
	}
	return mgr.Start(command.Context())
}

// forgetHome makes image libraries read the system's configuration only. They
// look into a home directory first, and fail when they may not: an image may
// say HOME=/root for a program that does not run as root.
func forgetHome() error {
	for _, name := range []string{"HOME", "XDG_CONFIG_HOME"} {
		if err := os.Setenv(name, "/nonexistent"); err != nil {
			return fmt.Errorf("forget the home directory: %w", err)
		}
	}
	return nil
}

func managerOptions(options Options) (ctrl.Options, error) {
	scheme, err := newScheme()
	if err != nil {
		return ctrl.Options{}, err
	}
	stored, err := cacheOptions(options.Namespace)
	if err != nil {
		return ctrl.Options{}, err
	}
	return ctrl.Options{
		Scheme: scheme,
		Cache:  stored,
		Metrics: metricsserver.Options{
			BindAddress:    options.MetricsBindAddress,
			SecureServing:  true,
			FilterProvider: filters.WithAuthenticationAndAuthorization,
		},
		HealthProbeBindAddress:  options.HealthProbeBindAddress,
		LeaderElection:          options.LeaderElect,
		LeaderElectionID:        leaseName,
		LeaderElectionNamespace: options.Namespace,
		// The program ends when the manager does, so the lease can be given back
		// and a new replica need not wait for it to run out.
		LeaderElectionReleaseOnCancel: true,
	}, nil
}

// newScheme knows every kind that a controller touches.
func newScheme() (*runtime.Scheme, error) {
	scheme := runtime.NewScheme()
	for _, install := range []func(*runtime.Scheme) error{
		clientgoscheme.AddToScheme, mcfgv1.Install, imagemodev1alpha1.AddToScheme,
	} {
		if err := install(scheme); err != nil {
			return nil, fmt.Errorf("register kinds: %w", err)
		}
	}
	return scheme, nil
}

// cacheOptions keep to one namespace what the controller has rights to in that
// one only. Of Jobs and Pods the cache holds those of builds: a controller that
// looks at pods of nodes has to read them from the API server.
func cacheOptions(namespace string) (cache.Options, error) {
	ofBuilds, err := labels.NewRequirement(keys.LabelEphemeralBuildObject, selection.Exists, nil)
	if err != nil {
		return cache.Options{}, fmt.Errorf("select what belongs to builds: %w", err)
	}
	all := map[string]cache.Config{namespace: {}}
	builds := map[string]cache.Config{namespace: {LabelSelector: labels.NewSelector().Add(*ofBuilds)}}
	return cache.Options{
		// Managed fields are of no use here and are a good part of an object.
		DefaultTransform: cache.TransformStripManagedFields(),
		ByObject: map[client.Object]cache.ByObject{
			&corev1.Secret{}:    {Namespaces: all},
			&corev1.ConfigMap{}: {Namespaces: all},
			&batchv1.Job{}:      {Namespaces: builds},
			&corev1.Pod{}:       {Namespaces: builds},

			&imagemodev1alpha1.NodeImage{}: {Transform: rollout.KeepWriteTimes},
		},
	}, nil
}

func addProbes(mgr ctrl.Manager) error {
	if err := mgr.AddHealthzCheck("ping", healthz.Ping); err != nil {
		return fmt.Errorf("serve /healthz: %w", err)
	}
	if err := mgr.AddReadyzCheck("ping", healthz.Ping); err != nil {
		return fmt.Errorf("serve /readyz: %w", err)
	}
	return nil
}
