package osimagestream

import (
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"go.podman.io/image/v5/pkg/sysregistriesv2"
	"golang.org/x/net/http/httpproxy"
	corev1 "k8s.io/api/core/v1"

	"github.com/imagemode/imagemode/controllers/pullsecret"
	"github.com/imagemode/imagemode/registry"
)

// wayIn is what registries are reached with.
type wayIn struct {
	credentials pullsecret.Auths
	// trustBundle is PEM; empty: the system's certificates only.
	trustBundle string
	// hostBundles are PEM for single registries, by host[:port].
	hostBundles map[string][]byte
	// registriesConf is the text of a registries.conf; empty: the host's.
	registriesConf string
	// proxy; nil: the environment's.
	proxy *proxySettings
}

// open writes the way in to files, since that is how it is passed on. The
// caller calls the function it returns when it has read all it wants.
func (w wayIn) open() (registry.Access, func(), error) {
	directory, err := os.MkdirTemp("", "streams-")
	if err != nil {
		return registry.Access{}, nil, fmt.Errorf("files for reading images: %w", err)
	}
	cleanUp := func() {
		// The library remembers files by their names.
		sysregistriesv2.InvalidateCache()
		_ = os.RemoveAll(directory)
	}
	access, err := w.write(directory)
	if err != nil {
		cleanUp()
		return registry.Access{}, nil, fmt.Errorf("files for reading images: %w", err)
	}
	return access, cleanUp, nil
}

func (w wayIn) write(directory string) (registry.Access, error) {
	config, err := w.credentials.ConfigJSON()
	if err != nil {
		return registry.Access{}, err
	}
	access := registry.Access{
		AuthFile:    filepath.Join(directory, "config.json"),
		TrustBundle: filepath.Join(directory, "ca-bundle.crt"),
		Proxy:       w.proxy.function(),
	}
	err = errors.Join(
		os.WriteFile(access.AuthFile, config, 0o600),
		os.WriteFile(access.TrustBundle, []byte(w.trustBundle), 0o600),
	)
	if w.registriesConf != "" || len(w.hostBundles) > 0 {
		access.ContainersDir = filepath.Join(directory, "containers")
		err = errors.Join(err, w.writeContainersDir(access.ContainersDir))
	}
	return access, err
}

// writeContainersDir lays a directory out like a node's /etc/containers.
func (w wayIn) writeContainersDir(directory string) error {
	if err := os.Mkdir(directory, 0o700); err != nil {
		return err
	}
	if w.registriesConf != "" {
		if err := os.WriteFile(filepath.Join(directory, "registries.conf"), []byte(w.registriesConf), 0o600); err != nil {
			return err
		}
	}
	return writeHostBundles(filepath.Join(directory, "certs.d"), w.hostBundles)
}

// hostPattern is what the directory of a registry's certificates may be called.
var hostPattern = regexp.MustCompile(`^[a-zA-Z0-9]([a-zA-Z0-9.-]*[a-zA-Z0-9])?(:[0-9]+)?$`)

// writeHostBundles passes over names that are no hosts.
func writeHostBundles(directory string, bundles map[string][]byte) error {
	for host, bundle := range bundles {
		if !hostPattern.MatchString(host) {
			continue
		}
		of := filepath.Join(directory, host)
		if err := os.MkdirAll(of, 0o700); err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(of, "ca.crt"), bundle, 0o600); err != nil {
			return err
		}
	}
	return nil
}

// function chooses the proxy for each request, so that noProxy holds for
// mirrors and token servers too. nil settings: nil, which is the environment's.
func (p *proxySettings) function() func(*url.URL) (*url.URL, error) {
	if p == nil {
		return nil
	}
	config := httpproxy.Config{HTTPProxy: p.HTTPProxy, HTTPSProxy: p.HTTPSProxy, NoProxy: p.NoProxy}
	return config.ProxyFunc()
}

// readCredentials joins the registries' credentials in Secrets; of two for the
// same registry the earlier Secret's count. The error names what is wrong with a
// Secret and shows nothing of it; the others count nevertheless.
func readCredentials(secrets []corev1.Secret) (pullsecret.Auths, error) {
	var sources []pullsecret.Auths
	var problems []error
	for i := range secrets {
		entries, err := pullsecret.Read(&secrets[i])
		if err != nil {
			problems = append(problems, fmt.Errorf("Secret %s/%s: %w", secrets[i].Namespace, secrets[i].Name, err))
		}
		sources = append(sources, entries)
	}
	return pullsecret.Merge(sources...), errors.Join(problems...)
}

// joinPEM puts bundles of certificates one behind the other.
func joinPEM(bundles ...string) string {
	var joined strings.Builder
	for _, bundle := range bundles {
		if bundle = strings.TrimSpace(bundle); bundle != "" {
			joined.WriteString(bundle + "\n")
		}
	}
	return joined.String()
}
