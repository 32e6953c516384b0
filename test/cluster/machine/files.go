package machine

import (
	"encoding/json"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"

	"github.com/imagemode/imagemode/test/cluster/layout"
	"github.com/imagemode/imagemode/test/cluster/node"
)

// writeFiles writes what makes this machine of the installed image. What the
// caller gives wins.
func writeFiles(config Config) error {
	files, err := config.ownFiles()
	if err != nil {
		return err
	}
	for inMachine, file := range config.Files {
		files[inMachine] = file
	}
	for inMachine, file := range files {
		onHost, err := config.place(inMachine)
		if err != nil {
			return err
		}
		if err := os.MkdirAll(filepath.Dir(onHost), 0o755); err != nil {
			return err
		}
		// Written beside and renamed: a file of the image may share its content
		// with another deployment's.
		if err := os.WriteFile(onHost+".new", file.Content, file.Mode); err != nil {
			return err
		}
		if err := os.Chmod(onHost+".new", file.Mode); err != nil {
			return err
		}
		if err := os.Rename(onHost+".new", onHost); err != nil {
			return err
		}
	}
	return nil
}

// place is where the host sees a file of the machine: in the deployment that
// boots next, or in the shared /var.
func (c Config) place(inMachine string) (string, error) {
	clean := path.Clean(inMachine)
	switch {
	case clean != inMachine:
	case strings.HasPrefix(clean, "/var/"):
		return filepath.Join(c.sysroot(), clean), nil
	case strings.HasPrefix(clean, "/etc/"):
		root, err := c.bootRoot()
		if os.IsNotExist(err) {
			return "", nil // before the installation
		}
		return filepath.Join(root, clean), err
	}
	return "", fmt.Errorf("machine %s: file %q must be a clean absolute path below /etc or /var", c.Name, inMachine)
}

// bootRoot is the root of the deployment that boots next.
func (c Config) bootRoot() (string, error) {
	content, err := os.ReadFile(filepath.Join(c.sysroot(), "boot", "entry"))
	if err != nil {
		return "", err
	}
	var entry struct {
		Default string `json:"default"`
	}
	if err := json.Unmarshal(content, &entry); err != nil {
		return "", fmt.Errorf("boot entry of machine %s: %w", c.Name, err)
	}
	if entry.Default == "" || strings.ContainsRune(entry.Default, filepath.Separator) {
		return "", fmt.Errorf("boot entry of machine %s names no deployment: %q", c.Name, entry.Default)
	}
	return filepath.Join(c.sysroot(), "deployments", entry.Default, "root"), nil
}

// ownFiles are those that follow from the Config alone.
func (c Config) ownFiles() (map[string]File, error) {
	registry, err := registryOf(c.Image)
	if err != nil {
		return nil, err
	}
	authority, err := os.ReadFile(c.CAFile)
	if err != nil {
		return nil, err
	}
	credentials, err := os.ReadFile(c.AuthFile)
	if err != nil {
		return nil, err
	}
	network, err := node.PodNetwork(c.PodCIDR, layout.PodBridge, "/var/lib/cni/networks")
	if err != nil {
		return nil, err
	}
	caFile := "/etc/containers/certs.d/" + registry + "/ca.crt"
	return map[string]File{
		"/etc/hostname":           {Content: []byte(c.Name + "\n"), Mode: 0o644},
		"/etc/machine-id":         {Content: []byte(c.machineID() + "\n"), Mode: 0o444},
		"/etc/imagemode-node/env": {Content: c.environment(), Mode: 0o644},
		caFile:                    {Content: authority, Mode: 0o644},
		"/etc/containerd/certs.d/" + registry + "/hosts.toml": {Content: node.RegistryHosts(caFile), Mode: 0o644},
		"/etc/cni/net.d/10-imagemode.conflist":                {Content: network, Mode: 0o644},
		"/var/lib/kubelet/config.json":                        {Content: credentials, Mode: 0o600},
	}, nil
}

// environment is what the units of the image read.
func (c Config) environment() []byte {
	return fmt.Appendf(nil, "NODE_NAME=%s\nNODE_IP=%s\nNODE_PREFIX=%d\nNODE_GATEWAY=%s\nPOD_CIDR=%s\nAPI_SERVER=%s\n",
		c.Name, c.IP, layout.PrefixLength, c.Gateway, c.PodCIDR, c.APIServer)
}

func registryOf(image string) (string, error) {
	reference, err := name.NewDigest(image)
	if err != nil {
		return "", fmt.Errorf("image %q is not a reference by digest: %w", image, err)
	}
	return reference.RegistryStr(), nil
}
