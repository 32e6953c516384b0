package registry

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"go.podman.io/image/v5/docker"
	"go.podman.io/image/v5/docker/reference"
	"go.podman.io/image/v5/types"
)

// Access is how a registry is reached. The zero value uses the host's files
// and no credentials but the host's.
type Access struct {
	// AuthFile holds credentials in docker config.json format; empty: the
	// host's, see containers-auth.json(5).
	AuthFile string
	// CertDir holds certificates (*.crt, PEM) that are trusted for every
	// registry, besides the system's and those in certs.d. It may be missing.
	CertDir string
	// TrustBundle is a PEM file that is trusted like those in CertDir. It may
	// be missing.
	TrustBundle string
	// PolicyFile is a signature policy; empty: the host's, and where the host
	// has none, everything is accepted: images are taken by digest.
	PolicyFile string
	// ContainersDir is laid out like a node's /etc/containers: registries.conf
	// with registries.conf.d, registries.d and certs.d. What it has counts in
	// place of the host's; empty: all is the host's.
	ContainersDir string
	// Proxy gives the proxy for a request's URL, or nil for none; a nil function:
	// the environment's HTTPS_PROXY, HTTP_PROXY and NO_PROXY.
	Proxy func(*url.URL) (*url.URL, error)
	// Architecture chooses from a multi-architecture image, by Go's name;
	// empty: the one this program was compiled for.
	Architecture string
}

// System gives the access in the form of go.podman.io/image. A new one for
// every image: the library adds the certificates of certs.d to the pool it is
// given, and two registries must not share them.
func (a Access) System() (*types.SystemContext, error) {
	sys := &types.SystemContext{
		AuthFilePath:        a.AuthFile,
		SignaturePolicyPath: a.PolicyFile,
		DockerProxy:         a.Proxy,
		ArchitectureChoice:  a.Architecture,
		OSChoice:            "linux",
	}
	a.useContainersDir(sys)
	pool, err := a.certificates()
	if err != nil {
		return nil, err
	}
	if pool != nil {
		sys.BaseTLSConfig = &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
	}
	return sys, nil
}

// useContainersDir points sys to those files of ContainersDir that exist.
func (a Access) useContainersDir(sys *types.SystemContext) {
	if a.ContainersDir == "" {
		return
	}
	in := func(name string) string {
		path := filepath.Join(a.ContainersDir, name)
		if _, err := os.Stat(path); err != nil {
			return ""
		}
		return path
	}
	sys.SystemRegistriesConfPath = in("registries.conf")
	sys.SystemRegistriesConfDirPath = in("registries.conf.d")
	sys.RegistriesDirPath = in("registries.d")
	sys.DockerPerHostCertDirPath = in("certs.d")
}

// certificates gives the system's pool with those of CertDir and TrustBundle;
// nil when there are none.
func (a Access) certificates() (*x509.CertPool, error) {
	var files []string
	if a.TrustBundle != "" {
		files = append(files, a.TrustBundle)
	}
	if a.CertDir != "" {
		found, err := filepath.Glob(filepath.Join(a.CertDir, "*.crt"))
		if err != nil {
			return nil, fmt.Errorf("certificates in %s: %w", a.CertDir, err)
		}
		files = append(files, found...)
	}
	var pool *x509.CertPool
	for _, file := range files {
		pem, err := os.ReadFile(file)
		if errors.Is(err, os.ErrNotExist) || err == nil && strings.TrimSpace(string(pem)) == "" {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("certificates: %w", err)
		}
		if pool == nil {
			if pool, err = x509.SystemCertPool(); err != nil {
				return nil, fmt.Errorf("the system's certificates: %w", err)
			}
		}
		if !pool.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("certificates: %s holds no certificate in PEM", file)
		}
	}
	return pool, nil
}

// Reference parses host[:port]/repository[:tag][@digest], or oci:DIRECTORY:NAME.
// Where there are a tag and a digest, the digest counts: the library takes only
// one.
func Reference(image string) (types.ImageReference, error) {
	if IsLayout(image) {
		return layoutReference(image)
	}
	named, err := reference.ParseNormalizedNamed(image)
	if err != nil {
		return nil, fmt.Errorf("image reference %q: %w", image, err)
	}
	if digested, ok := named.(reference.Canonical); ok {
		named, err = reference.WithDigest(reference.TrimNamed(named), digested.Digest())
		if err != nil {
			return nil, fmt.Errorf("image reference %q: %w", image, err)
		}
	}
	return docker.NewReference(reference.TagNameOnly(named))
}

// Repository gives host[:port]/repository of a reference, or oci:DIRECTORY.
func Repository(image string) (string, error) {
	if IsLayout(image) {
		return layoutOf(image), nil
	}
	named, err := reference.ParseNormalizedNamed(image)
	if err != nil {
		return "", fmt.Errorf("image reference %q: %w", image, err)
	}
	return reference.TrimNamed(named).Name(), nil
}
