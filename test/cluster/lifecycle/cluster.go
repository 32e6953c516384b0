// Package lifecycle brings the local cluster up, tells its state and takes it
// down. Every step asks what is there and adds what is missing, so that `up`
// also repairs, and `down` also clears what a crash left behind.
package lifecycle

import (
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/imagemode/imagemode/test/cluster/layout"
	"github.com/imagemode/imagemode/test/cluster/process"
)

// Options of all commands.
type Options struct {
	// Source is the checkout to compile from.
	Source string
	// CacheDir keeps programs and OS images between clusters.
	CacheDir string
	// Log takes progress lines.
	Log func(format string, args ...any)
}

// BinDir is where the compiled programs are.
func (o Options) BinDir() string { return filepath.Join(o.CacheDir, "bin") }

// store knows the cluster's daemons.
var store = process.Store{RecordDir: layout.ProcessDir, LogDir: layout.LogDir}

// previousForwarding keeps what ip_forward was before the cluster.
const previousForwarding = layout.StateDir + "/ip_forward.before"

// probeTimeout bounds one question whether a part works.
const probeTimeout = 3 * time.Second

// adminClient is an HTTP client that trusts the cluster's authority and is its
// administrator.
func adminClient() (*http.Client, error) {
	authority, err := os.ReadFile(layout.CAFile)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(authority)
	admin, err := tls.LoadX509KeyPair(filepath.Join(layout.PKIDir, "admin.crt"), filepath.Join(layout.PKIDir, "admin.key"))
	if err != nil {
		return nil, err
	}
	return &http.Client{
		Timeout: probeTimeout,
		Transport: &http.Transport{
			TLSClientConfig:   &tls.Config{RootCAs: pool, Certificates: []tls.Certificate{admin}},
			DisableKeepAlives: true,
		},
	}, nil
}

// loopbackClient is for the health ports of components that make their own
// certificate at each start; they listen on the loopback address.
func loopbackClient() *http.Client {
	return &http.Client{
		Timeout: probeTimeout,
		Transport: &http.Transport{
			TLSClientConfig:   &tls.Config{InsecureSkipVerify: true},
			DisableKeepAlives: true,
		},
	}
}
