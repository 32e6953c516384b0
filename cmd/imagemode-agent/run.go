package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	metrics "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/imagemode/imagemode/api/v1alpha1"
	"github.com/imagemode/imagemode/rollout/agent"
)

// Options are the flags.
type Options struct {
	NodeName       string
	HostRoot       string
	PullSecretDir  string
	PullSecretFile string
	HealthAddress  string
	MetricsAddress string
}

// isService: the agent is a service of the host, and no pod.
func (o *Options) isService() bool { return o.HostRoot == "/" }

// serviceUnit is the agent as a service of the host, see config/agent/service.
const serviceUnit = "imagemode-agent.service"

// Run runs the agent until the context ends.
func Run(ctx context.Context, options Options) error {
	if err := options.check(); err != nil {
		return err
	}
	config, err := options.connect(ctx)
	if err != nil {
		return err
	}
	mgr, err := newManager(options, config)
	if err != nil {
		return err
	}
	host := agent.NewSystemdHost(options.HostRoot)
	defer host.Close()
	own := agent.Options{
		NodeName: options.NodeName, PullSecretDir: options.PullSecretDir, PullSecretFile: options.PullSecretFile, ActsAsNode: options.isService(),
	}
	if !options.isService() {
		own.StandsBackFor = serviceUnit
	}
	if err := agent.Add(mgr, host, own); err != nil {
		return err
	}
	return mgr.Start(ctx)
}

// check finds what would otherwise show up as an odd failure much later.
func (o *Options) check() error {
	if o.NodeName == "" && !o.isService() {
		return fmt.Errorf("the node's name is not known: set --node-name, or NODE_NAME from the pod's spec.nodeName")
	}
	if os.Getuid() != 0 {
		return fmt.Errorf("not root: the host's systemd and bootc answer to root only")
	}
	if _, err := os.Stat(filepath.Join(o.HostRoot, "run/systemd")); err != nil {
		return fmt.Errorf("--host-root=%s shows no host that runs systemd: a pod needs hostPID and privileges (%w)", o.HostRoot, err)
	}
	return nil
}

// newManager makes a manager whose cache holds this node's NodeImage and no
// other: a thousand agents must not each watch a thousand objects.
func newManager(options Options, config *rest.Config) (ctrl.Manager, error) {
	scheme := runtime.NewScheme()
	if err := clientgoscheme.AddToScheme(scheme); err != nil {
		return nil, err
	}
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		return nil, err
	}
	mgr, err := ctrl.NewManager(config, ctrl.Options{
		Scheme:                 scheme,
		HealthProbeBindAddress: options.HealthAddress,
		Metrics:                metrics.Options{BindAddress: options.MetricsAddress},
		Cache: cache.Options{ByObject: map[client.Object]cache.ByObject{
			&v1alpha1.NodeImage{}: {Field: fields.OneTermEqualSelector("metadata.name", options.NodeName)},
		}},
	})
	if err != nil {
		return nil, err
	}
	return mgr, mgr.AddHealthzCheck("ping", healthz.Ping)
}
