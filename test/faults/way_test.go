package faults

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/imagemode/imagemode/registry"
	"github.com/imagemode/imagemode/registry/registrytest"
)

// TestAPushGetsThroughAfterTheFault copies an image through a registry that is
// out of order for a moment.
func TestAPushGetsThroughAfterTheFault(t *testing.T) {
	for name, fault := range map[string]Fault{
		"answers of 500":                  Outage(http.StatusInternalServerError, time.Second/2),
		"a connection that ends mid-push": BrokenPush(1, time.Second/2),
	} {
		t.Run(name, func(t *testing.T) {
			from, to := registrytest.New(t), registrytest.New(t)
			base := from.Push(t, "os/base", registrytest.ImageSpec{Labels: registrytest.Bootable(), Layers: 3})
			way, trust := open(t, to, fault)
			source := registry.Source{Access: registry.Access{AuthFile: from.NoAuth, TrustBundle: from.CAFile}, Image: base}
			target := registry.Target{
				Access:     registry.Access{AuthFile: to.NoAuth, TrustBundle: trust},
				Repository: way.Host + "/os/copy", Tags: []string{"a"},
			}
			copied, _, err := registry.Derive(t.Context(), source, target, registry.Change{})
			if err != nil {
				t.Fatal(err)
			}
			if way.Met() == 0 {
				t.Error("no request met the fault")
			}
			read, err := registry.Inspect(t.Context(), registry.Access{AuthFile: to.NoAuth, TrustBundle: to.CAFile}, to.Host+"/os/copy:a")
			if err != nil || read.Digest != copied.Digest {
				t.Errorf("the registry has %v, %v; want %s", read, err, copied.Digest)
			}
		})
	}
}

// TestAFaultBeginsWithAnUpload: what is asked before is answered.
func TestAFaultBeginsWithAnUpload(t *testing.T) {
	to := registrytest.New(t)
	base := to.Push(t, "os/base", registrytest.ImageSpec{Labels: registrytest.Bootable()})
	way, trust := open(t, to, Outage(http.StatusInternalServerError, time.Hour))
	access := registry.Access{AuthFile: to.NoAuth, TrustBundle: trust}
	through := strings.Replace(base, to.Host, way.Host, 1)
	if _, err := registry.Inspect(t.Context(), access, through); err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: rootsOf(way), MinVersion: tls.VersionTLS12}}}
	answer, err := client.Post("https://"+way.Host+"/v2/os/base/blobs/uploads/", "", nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := answer.Body.Close(); err != nil || answer.StatusCode != http.StatusInternalServerError {
		t.Errorf("an upload got %s, %v", answer.Status, err)
	}
	var failure *registry.Error
	if _, err := registry.Inspect(t.Context(), access, through); !errors.As(err, &failure) {
		t.Errorf("after the fault began: %v", err)
	}
}

// open makes a way, and a file of what has to be trusted for it.
func open(t *testing.T, to *registrytest.Registry, fault Fault) (*Way, string) {
	t.Helper()
	raw, err := os.ReadFile(to.CAFile)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(raw)
	way, err := Open("127.0.0.1", to.Host, roots, fault)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = way.Close() })
	trust := filepath.Join(t.TempDir(), "ca.crt")
	if err := os.WriteFile(trust, way.CertificatePEM, 0o600); err != nil {
		t.Fatal(err)
	}
	return way, trust
}

func rootsOf(way *Way) *x509.CertPool {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(way.CertificatePEM)
	return roots
}
