// Package registry runs the cluster's image registry on the bridge's address,
// with TLS, passwords and deletion, and keeps the credentials of its users.
package registry

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/crypto/bcrypt"
	"sigs.k8s.io/yaml"

	"github.com/imagemode/imagemode/test/cluster/layout"
	"github.com/imagemode/imagemode/test/cluster/pki"
	"github.com/imagemode/imagemode/test/cluster/process"
)

// Users of the registry, each with a password of its own. All but Push may only
// pull, so that a test notices when one credential is used in place of another.
const (
	BasePull = "base-pull" // reads base and extensions images in builds
	Push     = "push"      // pushes results, and imagemode's own images
	NodePull = "node-pull" // nodes and kubelets
)

var users = []string{BasePull, Push, NodePull}

// AuthFile is the docker config.json of a user.
func AuthFile(user string) string {
	return filepath.Join(layout.RegistryDir, user+".json")
}

// dataDir is where the registry keeps blobs and manifests.
const dataDir = layout.RegistryDir + "/data"

// Configure writes the registry's configuration and its users' credentials and
// returns how to start it.
func Configure(authority *pki.Authority, program string, cgroups []string) (process.Spec, error) {
	serving, err := authority.Issue("registry", pki.Subject{
		Name: "registry", DNSNames: []string{"localhost"}, IPs: []string{layout.HostIP, layout.Loopback},
	})
	if err != nil {
		return process.Spec{}, err
	}
	if err := os.MkdirAll(layout.RegistryDir, 0o711); err != nil {
		return process.Spec{}, err
	}
	passwords := filepath.Join(layout.RegistryDir, "htpasswd")
	if err := ensureUsers(passwords); err != nil {
		return process.Spec{}, err
	}
	secret, err := ensureSecret(filepath.Join(layout.RegistryDir, "http-secret"))
	if err != nil {
		return process.Spec{}, err
	}
	config, err := yaml.Marshal(configuration(serving, passwords, secret))
	if err != nil {
		return process.Spec{}, err
	}
	file := filepath.Join(layout.RegistryDir, "config.yaml")
	if err := os.WriteFile(file, config, 0o600); err != nil {
		return process.Spec{}, err
	}
	return process.Spec{
		Name:    "registry",
		Args:    []string{program, "serve", file},
		Env:     []string{"OTEL_TRACES_EXPORTER=none"},
		Cgroups: cgroups,
		Inputs:  []string{file, serving.CertFile},
	}, nil
}

func configuration(serving pki.Pair, passwords, secret string) map[string]any {
	return map[string]any{
		"version": "0.1",
		"log":     map[string]any{"level": "info", "accesslog": map[string]any{"disabled": false}},
		"storage": map[string]any{
			"filesystem": map[string]any{"rootdirectory": dataDir},
			"delete":     map[string]any{"enabled": true},
		},
		"http": map[string]any{
			"addr":   layout.Registry(),
			"secret": secret,
			"tls":    map[string]any{"certificate": serving.CertFile, "key": serving.KeyFile},
		},
		"auth": map[string]any{
			"users": map[string]any{
				"realm": "imagemode-local-cluster", "path": passwords, "pushers": []string{Push},
			},
		},
	}
}

// ensureUsers makes passwords and credentials of all users, unless they exist.
func ensureUsers(passwords string) error {
	if _, err := os.Stat(passwords); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	var lines strings.Builder
	for _, user := range users {
		password := rand.Text()
		hash, err := bcrypt.GenerateFromPassword([]byte(password), bcrypt.MinCost)
		if err != nil {
			return err
		}
		fmt.Fprintf(&lines, "%s:%s\n", user, hash)
		config, err := dockerConfig(user, password)
		if err != nil {
			return err
		}
		if err := os.WriteFile(AuthFile(user), config, 0o600); err != nil {
			return err
		}
	}
	return os.WriteFile(passwords, []byte(lines.String()), 0o600)
}

// dockerConfig is a docker config.json with one user of the registry.
func dockerConfig(user, password string) ([]byte, error) {
	auth := base64.StdEncoding.EncodeToString([]byte(user + ":" + password))
	return json.MarshalIndent(map[string]any{
		"auths": map[string]any{layout.Registry(): map[string]string{"auth": auth}},
	}, "", "  ")
}

// ensureSecret returns the text kept in file, a random one the first time.
func ensureSecret(file string) (string, error) {
	content, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		content = []byte(rand.Text())
		err = os.WriteFile(file, content, 0o600)
	}
	return string(content), err
}

// Credentials returns name and password of a user from its config.json.
func Credentials(user string) (name, password string, err error) {
	content, err := os.ReadFile(AuthFile(user))
	if err != nil {
		return "", "", err
	}
	var config struct {
		Auths map[string]struct {
			Auth []byte `json:"auth"`
		} `json:"auths"`
	}
	if err := json.Unmarshal(content, &config); err != nil {
		return "", "", fmt.Errorf("%s: %w", AuthFile(user), err)
	}
	name, password, _ = strings.Cut(string(config.Auths[layout.Registry()].Auth), ":")
	return name, password, nil
}

// Healthy asks the registry's API with the credential of a real user.
func Healthy(ctx context.Context, client *http.Client) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+layout.Registry()+"/v2/", nil)
	if err != nil {
		return err
	}
	name, password, err := Credentials(NodePull)
	if err != nil {
		return err
	}
	request.SetBasicAuth(name, password)
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("the registry answers %s", response.Status)
	}
	return nil
}
