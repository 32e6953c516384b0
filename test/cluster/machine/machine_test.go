package machine

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// installedConfig is a machine with an installation whose deployment is "one".
func installedConfig(t *testing.T) Config {
	t.Helper()
	directory := t.TempDir()
	config := Config{
		Name: "worker-1", StateDir: filepath.Join(directory, "machine"), IP: "10.89.0.11", Gateway: "10.89.0.1", Bridge: "bridge",
		Image:    "10.89.0.1:5000/os/sample@sha256:" + strings.Repeat("ab", 32),
		AuthFile: filepath.Join(directory, "auth"), CAFile: filepath.Join(directory, "ca"),
		PodCIDR: "10.88.1.0/24", APIServer: "https://10.89.0.1:6443",
	}
	write(t, config.AuthFile, "{}")
	write(t, config.CAFile, "authority")
	write(t, filepath.Join(config.sysroot(), "boot", "entry"), `{"default": "one"}`)
	return config
}

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestFilesGoToTheDeploymentOrToVar(t *testing.T) {
	config := installedConfig(t)
	config.Files = map[string]File{
		"/etc/kubernetes/kubelet.conf": {Content: []byte("credential"), Mode: 0o600},
		"/etc/hostname":                {Content: []byte("another"), Mode: 0o644},
		"/var/lib/data":                {Content: []byte("data"), Mode: 0o640},
	}
	if err := writeFiles(config); err != nil {
		t.Fatal(err)
	}
	root := filepath.Join(config.sysroot(), "deployments", "one", "root")
	for path, want := range map[string]string{
		filepath.Join(root, "etc/kubernetes/kubelet.conf"):                  "credential",
		filepath.Join(root, "etc/hostname"):                                 "another",
		filepath.Join(root, "etc/machine-id"):                               config.machineID() + "\n",
		filepath.Join(root, "etc/containers/certs.d/10.89.0.1:5000/ca.crt"): "authority",
		filepath.Join(config.sysroot(), "var/lib/data"):                     "data",
		filepath.Join(config.sysroot(), "var/lib/kubelet/config.json"):      "{}",
		filepath.Join(root, "etc/imagemode-node/env"): "NODE_NAME=worker-1\nNODE_IP=10.89.0.11\nNODE_PREFIX=24\n" +
			"NODE_GATEWAY=10.89.0.1\nPOD_CIDR=10.88.1.0/24\nAPI_SERVER=https://10.89.0.1:6443\n",
	} {
		content, err := os.ReadFile(path)
		if err != nil || string(content) != want {
			t.Errorf("%s holds %q (%v), want %q", path, content, err, want)
		}
	}
	info, err := os.Stat(filepath.Join(root, "etc/kubernetes/kubelet.conf"))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the credential's mode is %v (%v)", info.Mode(), err)
	}
}

func TestValidateNamesWhatIsWrong(t *testing.T) {
	tests := map[string]struct {
		change func(*Config)
		want   string
	}{
		"a good machine":               {func(*Config) {}, ""},
		"a name that is too long":      {func(c *Config) { c.Name = "worker-number-1" }, `machine "worker-number-1": the name must have 1 to 12 characters`},
		"a file in /usr":               {func(c *Config) { c.Files = map[string]File{"/usr/x": {}} }, `machine worker-1: file "/usr/x" must be a clean absolute path below /etc or /var`},
		"a file that leaves its place": {func(c *Config) { c.Files = map[string]File{"/etc/../usr/x": {}} }, `machine worker-1: file "/etc/../usr/x" must be a clean absolute path below /etc or /var`},
	}
	for sentence, test := range tests {
		t.Run(sentence, func(t *testing.T) {
			config := installedConfig(t)
			test.change(&config)
			got := ""
			if err := config.validate(); err != nil {
				got = err.Error()
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("error (-want +got):\n%s", diff)
			}
		})
	}
}

func TestABootEntryThatLeadsElsewhereIsRefused(t *testing.T) {
	config := installedConfig(t)
	for _, entry := range []string{`{"default": ""}`, `{"default": "../../etc"}`, `{`} {
		write(t, filepath.Join(config.sysroot(), "boot", "entry"), entry)
		if root, err := config.bootRoot(); err == nil {
			t.Errorf("entry %s boots %s", entry, root)
		}
	}
}

func TestMachinesBootWithUsrReadOnlyAndOneVar(t *testing.T) {
	config := installedConfig(t)
	line := nspawn(config, "/root-of-one")
	for _, argument := range []string{
		"--bind-ro=/root-of-one/usr:/usr", "--bind=" + config.sysroot() + "/var:/var", "--network-bridge=bridge", "--machine=worker-1",
	} {
		if !slices.Contains(line, argument) {
			t.Errorf("%v lacks %s", line, argument)
		}
	}
}

func TestLeaderOfAMachineThatDoesNotRun(t *testing.T) {
	config := installedConfig(t)
	if _, err := Leader(config); err == nil {
		t.Error("a leader without a record")
	}
	// A process id that came to mean another program.
	write(t, config.pidFile(), "1")
	if _, err := Leader(config); err == nil {
		t.Error("a leader that is not systemd-nspawn's child")
	}
}
