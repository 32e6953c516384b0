// Package layout names where the local cluster lives: its addresses, its
// directories and its nodes. There is at most one cluster per machine, so
// everything here is fixed; other programs (the end-to-end tests, the demo)
// rely on these names.
package layout

import (
	"net"
	"os"
	"path/filepath"
	"strconv"
)

// Directories. Everything the cluster keeps is in StateDir, everything that
// dies with the machine's uptime is in RuntimeDir.
const (
	StateDir   = "/var/lib/imagemode-cluster"
	RuntimeDir = "/run/imagemode-cluster"

	ProcessDir  = RuntimeDir + "/processes"
	LogDir      = StateDir + "/logs"
	PKIDir      = StateDir + "/pki"
	RegistryDir = StateDir + "/registry"
	MachineDir  = StateDir + "/machines"

	// HostNodeDir holds containerd and the kubelet of the control plane node.
	HostNodeDir = StateDir + "/host"

	Kubeconfig  = StateDir + "/kubeconfig"
	StreamsFile = StateDir + "/streams.yaml"
	ImagesFile  = StateDir + "/images.yaml"
	CAFile      = PKIDir + "/ca.crt"
)

// Addresses. The bridge connects the host and the machines; each node has a
// pod network of its own behind it.
const (
	Bridge       = "imagemode0"
	PodBridge    = "imagemode-cni0"
	HostIP       = "10.89.0.1"
	NodeNetwork  = "10.89.0.0/24"
	PodNetwork   = "10.88.0.0/16"
	HostPodCIDR  = "10.88.0.0/24"
	ServiceCIDR  = "10.96.0.0/16"
	ServiceIP    = "10.96.0.1"
	Loopback     = "127.0.0.1"
	PrefixLength = 24

	APIServerPort         = 6443
	RegistryPort          = 5000
	EtcdClientPort        = 2379
	EtcdPeerPort          = 2380
	KubeletPort           = 10250
	KubeletHealthPort     = 10248
	ControllerManagerPort = 10257
	SchedulerPort         = 10259
)

// CgroupRoot is the cgroup, in every hierarchy, below which all processes and
// pods of the cluster's host part live; `down` finds what is left by it.
const CgroupRoot = "/imagemode"

// SystemCgroup holds the cluster's own daemons, beside the kubelet's kubepods.
const SystemCgroup = CgroupRoot + "/system"

// ControlPlane is the name of the node that is this host.
const ControlPlane = "control-plane"

// Machine is a worker: a booted OS image with an address on the bridge.
type Machine struct {
	Name    string
	IP      string
	PodCIDR string
}

// Machines are the workers of every local cluster.
var Machines = []Machine{
	{Name: "worker-1", IP: "10.89.0.11", PodCIDR: "10.88.1.0/24"},
	{Name: "worker-2", IP: "10.89.0.12", PodCIDR: "10.88.2.0/24"},
}

// APIServer is the URL clients use, from the host, the machines and pods.
func APIServer() string {
	return "https://" + net.JoinHostPort(HostIP, strconv.Itoa(APIServerPort))
}

// Registry is the registry's host and port, the first part of every reference.
func Registry() string {
	return net.JoinHostPort(HostIP, strconv.Itoa(RegistryPort))
}

// CacheDir holds what is expensive to make and outlives the cluster:
// $IMAGEMODE_CACHE, or imagemode in the user's cache directory.
func CacheDir() (string, error) {
	if dir := os.Getenv("IMAGEMODE_CACHE"); dir != "" {
		return filepath.Abs(dir)
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", err
	}
	return filepath.Join(home, ".cache", "imagemode"), nil
}
