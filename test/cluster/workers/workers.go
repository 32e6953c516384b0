// Package workers turns the cluster's machines into nodes: it gives each what
// its kubelet needs to join, and starts it.
package workers

import (
	"context"
	"path/filepath"

	"github.com/imagemode/imagemode/test/cluster/layout"
	"github.com/imagemode/imagemode/test/cluster/machine"
	"github.com/imagemode/imagemode/test/cluster/node"
	"github.com/imagemode/imagemode/test/cluster/pki"
	"github.com/imagemode/imagemode/test/cluster/registry"
)

// Paths of the kubelet's files in a machine; the units of the OS image name them.
const (
	kubernetesDir = "/etc/kubernetes"
	kubeconfig    = kubernetesDir + "/kubelet.conf"
	kubeletConfig = kubernetesDir + "/kubelet-config.yaml"
	caFile        = kubernetesDir + "/pki/ca.crt"
	certFile      = kubernetesDir + "/pki/kubelet.crt"
	keyFile       = kubernetesDir + "/pki/kubelet.key"
)

// Ensure makes the worker run; image, by digest, is what it is installed with
// the first time. It reports whether the worker had to be started.
func Ensure(ctx context.Context, authority *pki.Authority, binDir string, worker layout.Machine, image string) (started bool, err error) {
	config := configOf(worker)
	if machine.Running(config) {
		return false, nil
	}
	config.Bootc = filepath.Join(binDir, "bootc")
	config.Image = image
	if config.Files, err = files(authority, worker); err != nil {
		return false, err
	}
	return true, machine.Start(ctx, config)
}

// ProcessName is the name of the worker's supervisor among the daemons.
func ProcessName(worker layout.Machine) string { return "machine-" + worker.Name }

func configOf(worker layout.Machine) machine.Config {
	return machine.Config{
		Name:      worker.Name,
		StateDir:  filepath.Join(layout.MachineDir, worker.Name),
		IP:        worker.IP,
		Gateway:   layout.HostIP,
		Bridge:    layout.Bridge,
		AuthFile:  registry.AuthFile(registry.NodePull),
		CAFile:    layout.CAFile,
		PodCIDR:   worker.PodCIDR,
		APIServer: layout.APIServer(),
	}
}

// files are the kubelet's files, by path in the machine.
func files(authority *pki.Authority, worker layout.Machine) (map[string]machine.File, error) {
	certificates, err := node.Issue(authority, worker.Name, worker.IP)
	if err != nil {
		return nil, err
	}
	credential, err := certificates.Kubeconfig(authority)
	if err != nil {
		return nil, err
	}
	config, err := kubelet(worker).Config()
	if err != nil {
		return nil, err
	}
	return map[string]machine.File{
		kubeconfig:    {Content: credential, Mode: 0o600},
		kubeletConfig: {Content: config, Mode: 0o644},
		caFile:        {Content: authority.CertPEM(), Mode: 0o644},
		certFile:      {Content: certificates.Serving.CertPEM, Mode: 0o644},
		keyFile:       {Content: certificates.Serving.KeyPEM, Mode: 0o600},
	}, nil
}

func kubelet(worker layout.Machine) node.Kubelet {
	return node.Kubelet{
		CAFile:           caFile,
		CertFile:         certFile,
		KeyFile:          keyFile,
		ContainerdSocket: "/run/containerd/containerd.sock",
		CgroupRoot:       "/" + worker.Name,
		Address:          worker.IP,
		PodLogsDir:       "/var/log/pods",
		PluginDir:        "/var/lib/kubelet/volume-plugins",
	}
}
