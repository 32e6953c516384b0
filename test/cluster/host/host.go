// Package host makes this machine the control plane node: containerd and a
// kubelet, both with all their files below the cluster's state directory.
package host

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	corev1 "k8s.io/api/core/v1"

	"github.com/imagemode/imagemode/test/cluster/layout"
	"github.com/imagemode/imagemode/test/cluster/minimalimage"
	"github.com/imagemode/imagemode/test/cluster/node"
	"github.com/imagemode/imagemode/test/cluster/pki"
	"github.com/imagemode/imagemode/test/cluster/process"
)

// Directories of the node's parts.
const (
	kubeletDir    = layout.HostNodeDir + "/kubelet"
	containerdDir = layout.HostNodeDir + "/containerd"
	cniDir        = layout.HostNodeDir + "/cni"
	etcDir        = layout.HostNodeDir + "/etc"

	containerdState = layout.RuntimeDir + "/containerd"
	// ContainerdSocket is where the node's containerd listens.
	ContainerdSocket = containerdState + "/containerd.sock"
)

// Taint keeps pods away from the control plane unless they tolerate it.
var Taint = corev1.Taint{Key: "node-role.kubernetes.io/control-plane", Effect: corev1.TaintEffectNoSchedule}

// Configuration is what the node is made from.
type Configuration struct {
	Authority *pki.Authority
	BinDir    string
	Cgroups   []string
	// AuthFile is the docker config.json the kubelet pulls images with.
	AuthFile string
}

// Prepare makes the node's directories and files.
//
// All directories above a container's root file system and above pods' volumes
// can be entered by everyone: the root user of a pod with hostUsers: false is
// nobody here, and its mounts fail otherwise.
func (c Configuration) Prepare() error {
	for _, dir := range []string{
		layout.StateDir, layout.RuntimeDir, layout.HostNodeDir,
		kubeletDir, containerdDir, containerdState, cniDir, etcDir, podLogs,
	} {
		if err := os.MkdirAll(dir, 0o711); err != nil {
			return err
		}
		if err := os.Chmod(dir, 0o711); err != nil {
			return err
		}
	}
	files, err := c.files()
	if err != nil {
		return err
	}
	for path, content := range files {
		if err := os.MkdirAll(filepath.Dir(path), 0o711); err != nil {
			return err
		}
		if err := os.WriteFile(path, content, 0o600); err != nil {
			return err
		}
	}
	return nil
}

const (
	podLogs          = layout.HostNodeDir + "/pod-logs"
	containerdConfig = etcDir + "/containerd.toml"
	certsDir         = etcDir + "/certs.d"
	cniConf          = etcDir + "/cni"
	kubeletConfig    = etcDir + "/kubelet.yaml"
	kubeletCreds     = etcDir + "/kubelet.kubeconfig"
)

// files are all files the node's daemons read, by path.
func (c Configuration) files() (map[string][]byte, error) {
	certificates, err := node.Issue(c.Authority, layout.ControlPlane, layout.HostIP)
	if err != nil {
		return nil, err
	}
	credential, err := certificates.Kubeconfig(c.Authority)
	if err != nil {
		return nil, err
	}
	kubelet, err := c.kubelet(certificates).Config()
	if err != nil {
		return nil, err
	}
	containerd, err := c.containerd().Config()
	if err != nil {
		return nil, err
	}
	pods, err := node.PodNetwork(layout.HostPodCIDR, layout.PodBridge, filepath.Join(cniDir, "networks"))
	if err != nil {
		return nil, err
	}
	auth, err := os.ReadFile(c.AuthFile)
	if err != nil {
		return nil, err
	}
	return map[string][]byte{
		kubeletConfig:    kubelet,
		kubeletCreds:     credential,
		containerdConfig: containerd,
		filepath.Join(certsDir, layout.Registry(), "hosts.toml"): node.RegistryHosts(layout.CAFile),
		filepath.Join(cniConf, "10-pods.conflist"):               pods,
		// The kubelet looks for image pull credentials in its root directory.
		filepath.Join(kubeletDir, "config.json"): auth,
	}, nil
}

func (c Configuration) kubelet(certificates node.Certificates) node.Kubelet {
	return node.Kubelet{
		CAFile:           layout.CAFile,
		CertFile:         certificates.Serving.CertFile,
		KeyFile:          certificates.Serving.KeyFile,
		ContainerdSocket: ContainerdSocket,
		CgroupRoot:       layout.CgroupRoot,
		Address:          layout.HostIP,
		PodLogsDir:       podLogs,
		PluginDir:        kubeletDir + "/volume-plugins",
		Taints:           []corev1.Taint{Taint},
	}
}

func (c Configuration) containerd() node.Containerd {
	return node.Containerd{
		Root:              containerdDir,
		State:             containerdState,
		Socket:            ContainerdSocket,
		Temp:              containerdState + "/tmp",
		RegistryConfigDir: certsDir,
		CNIBinDir:         "/usr/lib/cni",
		CNIConfDir:        cniConf,
		PluginDir:         containerdDir + "/plugins",
		Runc:              filepath.Join(c.BinDir, "runc"),
		Shim:              filepath.Join(c.BinDir, "containerd-shim-runc-v2"),
	}
}

// Containerd is how to start the node's containerd.
func (c Configuration) Containerd() process.Spec {
	return process.Spec{
		Name:    "containerd",
		Args:    []string{filepath.Join(c.BinDir, "containerd"), "--config", containerdConfig},
		Cgroups: c.Cgroups,
		Inputs:  []string{containerdConfig},
	}
}

// Kubelet is how to start the node's kubelet.
func (c Configuration) Kubelet() process.Spec {
	return process.Spec{
		Name: "kubelet",
		Args: []string{
			filepath.Join(c.BinDir, "kubelet"),
			"--config=" + kubeletConfig,
			"--kubeconfig=" + kubeletCreds,
			"--root-dir=" + kubeletDir,
			"--cert-dir=" + kubeletDir + "/pki",
			"--hostname-override=" + layout.ControlPlane,
			"--node-ip=" + layout.HostIP,
		},
		Cgroups: c.Cgroups,
		Inputs:  []string{kubeletConfig, kubeletCreds, layout.CAFile},
	}
}

// ImportPause gives containerd the sandbox image unless it has it.
func (c Configuration) ImportPause(ctx context.Context) error {
	listed, err := c.ctr(ctx, "--namespace", "k8s.io", "images", "ls", "-q")
	if err != nil {
		return err
	}
	if strings.Contains(listed, node.PauseImage) {
		return nil
	}
	archive := filepath.Join(c.BinDir, "pause.tar")
	if err := WritePauseArchive(c.BinDir, archive); err != nil {
		return err
	}
	_, err = c.ctr(ctx, "--namespace", "k8s.io", "images", "import", archive)
	return err
}

// WritePauseArchive writes the sandbox image as an archive that
// `ctr images import` takes.
func WritePauseArchive(binDir, file string) error {
	image, err := minimalimage.New(minimalimage.Program{
		File: filepath.Join(binDir, "pause"), Name: "pause", Architecture: runtime.GOARCH,
	})
	if err != nil {
		return err
	}
	tag, err := name.NewTag(node.PauseImage)
	if err != nil {
		return err
	}
	return tarball.WriteToFile(file, tag, image)
}

// ContainerdHealthy asks containerd for its version.
func (c Configuration) ContainerdHealthy(ctx context.Context) error {
	_, err := c.ctr(ctx, "version")
	return err
}

func (c Configuration) ctr(ctx context.Context, args ...string) (string, error) {
	args = append([]string{"--address", ContainerdSocket, "--connect-timeout", "3s"}, args...)
	output, err := exec.CommandContext(ctx, filepath.Join(c.BinDir, "ctr"), args...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("ctr %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(string(output)))
	}
	return string(output), nil
}
