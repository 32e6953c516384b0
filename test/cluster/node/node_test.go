package node

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	toml "github.com/pelletier/go-toml/v2"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"
	"sigs.k8s.io/yaml"
)

func TestKubeletConfigIsReadStrictly(t *testing.T) {
	content, err := Kubelet{
		CAFile: "/pki/ca.crt", CertFile: "/pki/a.crt", KeyFile: "/pki/a.key",
		ContainerdSocket: "/run/containerd.sock", CgroupRoot: "/imagemode", Address: "10.89.0.1",
	}.Config()
	if err != nil {
		t.Fatal(err)
	}
	var config kubeletv1beta1.KubeletConfiguration
	if err := yaml.UnmarshalStrict(content, &config); err != nil {
		t.Fatal(err)
	}
	got := map[string]any{
		"kind": config.Kind, "runtime": config.ContainerRuntimeEndpoint, "cgroupRoot": config.CgroupRoot,
		"sync": config.SyncFrequency.Duration.String(), "secrets": string(config.ConfigMapAndSecretChangeDetectionStrategy),
		"failCgroupV1": *config.FailCgroupV1, "failSwapOn": *config.FailSwapOn,
	}
	want := map[string]any{
		"kind": "KubeletConfiguration", "runtime": "unix:///run/containerd.sock", "cgroupRoot": "/imagemode",
		"sync": "5s", "secrets": "Watch", "failCgroupV1": false, "failSwapOn": false,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestContainerdConfigNamesItsFiles(t *testing.T) {
	content, err := Containerd{
		Root: "/state/containerd", State: "/run/x", Socket: "/run/x/containerd.sock", RegistryConfigDir: "/etc/certs.d",
		CNIBinDir: "/usr/lib/cni", CNIConfDir: "/etc/cni", PluginDir: "/state/opt", Runc: "/bin/runc", Shim: "/bin/shim",
	}.Config()
	if err != nil {
		t.Fatal(err)
	}
	var config struct {
		Root, State string
		GRPC        struct{ Address string }
		Plugins     map[string]any
	}
	if err := toml.Unmarshal(content, &config); err != nil {
		t.Fatal(err)
	}
	if config.Root != "/state/containerd" || config.State != "/run/x" || config.GRPC.Address != "/run/x/containerd.sock" {
		t.Errorf("directories: %+v", config)
	}
	runtime, _ := config.Plugins["io.containerd.cri.v1.runtime"].(map[string]any)
	if runtime["restrict_oom_score_adj"] != true {
		t.Error("without restrict_oom_score_adj no sandbox starts where CAP_SYS_RESOURCE is missing")
	}
}

func TestRegistryHosts(t *testing.T) {
	var hosts struct {
		Server string
		Host   map[string]struct {
			CA           string
			Capabilities []string
		}
	}
	if err := toml.Unmarshal(RegistryHosts("/pki/ca.crt"), &hosts); err != nil {
		t.Fatal(err)
	}
	if hosts.Server != "https://10.89.0.1:5000" || hosts.Host[hosts.Server].CA != "/pki/ca.crt" {
		t.Errorf("hosts: %+v", hosts)
	}
}

func TestPodNetworkLeavesAddressTranslationToTheHost(t *testing.T) {
	content, err := PodNetwork("10.88.1.0/24", "bridge0", "/var/lib/networks")
	if err != nil {
		t.Fatal(err)
	}
	var network struct {
		Name    string
		Plugins []map[string]any
	}
	if err := json.Unmarshal(content, &network); err != nil {
		t.Fatal(err)
	}
	if network.Name != PodNetworkName || len(network.Plugins) != 1 || network.Plugins[0]["ipMasq"] != nil {
		t.Errorf("network: %s", content)
	}
}
