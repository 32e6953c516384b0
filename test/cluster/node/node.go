// Package node renders what a kubelet and its containerd read, for the control
// plane node on this host and for the machines alike. It writes no file: where
// the files go differs between the two.
package node

import (
	"bytes"
	"encoding/json"
	"fmt"
	"text/template"
	"time"

	"github.com/imagemode/imagemode/test/cluster/kubeconfig"
	"github.com/imagemode/imagemode/test/cluster/layout"
	"github.com/imagemode/imagemode/test/cluster/pki"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"
	"sigs.k8s.io/yaml"
)

// Kubelet says where one kubelet finds its files and where it keeps its own.
type Kubelet struct {
	CAFile, CertFile, KeyFile string
	// ContainerdSocket is an absolute path.
	ContainerdSocket string
	// CgroupRoot is the cgroup, in every hierarchy, below which the pods live.
	CgroupRoot string
	// Address is where it serves its API: the node's own address, because all
	// nodes use the same ports.
	Address    string
	PodLogsDir string
	// PluginDir is where volume plugins would be; the kubelet creates it.
	PluginDir string
	// Taints are set when the node registers.
	Taints []corev1.Taint
}

// Config is the KubeletConfiguration in YAML.
func (k Kubelet) Config() ([]byte, error) {
	failCgroupV1, failSwapOn, serialize, utilChains, enabled := false, false, false, false, true
	resolvConf := "/dev/null"
	health := int32(layout.KubeletHealthPort)
	return yaml.Marshal(kubeletv1beta1.KubeletConfiguration{
		TypeMeta: metav1.TypeMeta{
			APIVersion: kubeletv1beta1.SchemeGroupVersion.String(),
			Kind:       "KubeletConfiguration",
		},
		Address: k.Address,
		Authentication: kubeletv1beta1.KubeletAuthentication{
			X509:    kubeletv1beta1.KubeletX509Authentication{ClientCAFile: k.CAFile},
			Webhook: kubeletv1beta1.KubeletWebhookAuthentication{Enabled: &enabled},
		},
		Authorization:            kubeletv1beta1.KubeletAuthorization{Mode: kubeletv1beta1.KubeletAuthorizationModeWebhook},
		TLSCertFile:              k.CertFile,
		TLSPrivateKeyFile:        k.KeyFile,
		ContainerRuntimeEndpoint: "unix://" + k.ContainerdSocket,
		CgroupDriver:             "cgroupfs",
		CgroupRoot:               k.CgroupRoot,
		FailCgroupV1:             &failCgroupV1,
		FailSwapOn:               &failSwapOn,
		HealthzPort:              &health,
		HealthzBindAddress:       layout.Loopback,
		PodLogsDir:               k.PodLogsDir,
		VolumePluginDir:          k.PluginDir,
		// `down` could not tell these chains from another kubelet's.
		MakeIPTablesUtilChains: &utilChains,
		// No name service runs in the cluster.
		ResolverConfig: &resolvConf,
		// Secrets and ConfigMaps reach running pods within seconds in a test.
		SyncFrequency: metav1.Duration{Duration: 5 * time.Second},
		ConfigMapAndSecretChangeDetectionStrategy: kubeletv1beta1.WatchChangeDetectionStrategy,
		NodeStatusUpdateFrequency:                 metav1.Duration{Duration: 5 * time.Second},
		// The machine's disk is the test machine's and often nearly full; the
		// defaults would evict pods at 15 % free.
		EvictionHard: map[string]string{
			"memory.available": "100Mi", "nodefs.available": "1%", "imagefs.available": "1%", "nodefs.inodesFree": "1%",
		},
		ImageGCHighThresholdPercent: percent(99),
		ImageGCLowThresholdPercent:  percent(98),
		SerializeImagePulls:         &serialize,
		RegisterWithTaints:          k.Taints,
	})
}

func percent(value int32) *int32 { return &value }

// Certificates of one kubelet.
type Certificates struct {
	// Client is the kubelet's user at the API server.
	Client pki.Pair
	// Serving is what it shows on its own port.
	Serving pki.Pair
}

// Issue signs the certificates of the node name with address ip.
func Issue(authority *pki.Authority, name, ip string) (Certificates, error) {
	client, err := authority.Issue("kubelet-"+name+"-client", pki.Subject{
		Name: "system:node:" + name, Groups: []string{"system:nodes"},
	})
	if err != nil {
		return Certificates{}, err
	}
	serving, err := authority.Issue("kubelet-"+name, pki.Subject{
		Name: "system:node:" + name, DNSNames: []string{name}, IPs: []string{ip},
	})
	return Certificates{Client: client, Serving: serving}, err
}

// Kubeconfig is the kubelet's credential.
func (c Certificates) Kubeconfig(authority *pki.Authority) ([]byte, error) {
	return kubeconfig.Embedded("kubelet", authority.CertPEM(), c.Client)
}

// RegistryHosts is the hosts.toml by which containerd trusts the registry:
// certs.d/HOST:PORT/hosts.toml. caFile is a path as containerd sees it.
func RegistryHosts(caFile string) []byte {
	return fmt.Appendf(nil, `server = "https://%[1]s"

[host."https://%[1]s"]
  capabilities = ["pull", "resolve"]
  ca = %[2]q
`, layout.Registry(), caFile)
}

// PodNetwork is the CNI configuration of one node. Address translation is the
// host's and host ports are not served: `down` could not find the chains that
// the plugins would make per pod.
// dataDir keeps the addresses in use.
func PodNetwork(podCIDR, bridge, dataDir string) ([]byte, error) {
	return json.MarshalIndent(map[string]any{
		"cniVersion": "1.0.0",
		"name":       PodNetworkName,
		"plugins": []any{
			map[string]any{
				"type": "bridge", "bridge": bridge, "isGateway": true, "hairpinMode": true,
				"ipam": map[string]any{
					"type":    "host-local",
					"dataDir": dataDir,
					"ranges":  []any{[]any{map[string]any{"subnet": podCIDR}}},
					"routes":  []any{map[string]any{"dst": "0.0.0.0/0"}},
				},
			},
		},
	}, "", "  ")
}

// PodNetworkName is the name of the pod network in CNI's own files.
const PodNetworkName = "imagemode-pods"

// Containerd says where containerd finds its files and keeps its own.
type Containerd struct {
	Root, State, Socket string
	// Temp is for mounts that live for a moment; in /tmp, one that a crash leaves
	// would not be found.
	Temp string
	// RegistryConfigDir is certs.d.
	RegistryConfigDir string
	CNIBinDir         string
	CNIConfDir        string
	PluginDir         string
	// Runc is the runtime's program, an absolute path: the one in the search
	// path may be too old for user namespaces.
	Runc string
	// Shim is containerd's runc shim, an absolute path.
	Shim string
}

// PauseImage is the name of the sandbox's image. It is imported from
// pause.tar, never pulled.
const PauseImage = "localhost/imagemode/pause:1"

// restrict_oom_score_adj: where the host lacks CAP_SYS_RESOURCE every sandbox
// would fail otherwise. netns_mounts_under_state_dir: so that nothing of the
// cluster is in /run/netns.
var containerdConfig = template.Must(template.New("containerd").Parse(`version = 3
root = {{printf "%q" .Root}}
state = {{printf "%q" .State}}
temp = {{printf "%q" .Temp}}
disabled_plugins = ["io.containerd.nri.v1.nri", "io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.zfs", "io.containerd.snapshotter.v1.blockfile", "io.containerd.snapshotter.v1.erofs", "io.containerd.tracing.processor.v1.otlp"]

[grpc]
  address = {{printf "%q" .Socket}}

[plugins."io.containerd.internal.v1.opt"]
  path = {{printf "%q" .PluginDir}}

[plugins."io.containerd.cri.v1.images"]
  snapshotter = "overlayfs"
  [plugins."io.containerd.cri.v1.images".pinned_images]
    sandbox = "` + PauseImage + `"
  [plugins."io.containerd.cri.v1.images".registry]
    config_path = {{printf "%q" .RegistryConfigDir}}

[plugins."io.containerd.cri.v1.runtime"]
  restrict_oom_score_adj = true
  netns_mounts_under_state_dir = true
  [plugins."io.containerd.cri.v1.runtime".cni]
    bin_dirs = [{{printf "%q" .CNIBinDir}}]
    conf_dir = {{printf "%q" .CNIConfDir}}
  [plugins."io.containerd.cri.v1.runtime".containerd]
    default_runtime_name = "runc"
    [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      runtime_path = {{printf "%q" .Shim}}
      [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]
        BinaryName = {{printf "%q" .Runc}}
        Root = "{{.State}}/runc"
        SystemdCgroup = false
`))

// Config is containerd's config.toml.
func (c Containerd) Config() ([]byte, error) {
	var config bytes.Buffer
	err := containerdConfig.Execute(&config, c)
	return config.Bytes(), err
}
