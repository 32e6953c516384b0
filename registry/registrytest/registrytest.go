// Package registrytest runs a registry inside a test: over TLS with its own
// certificate, with users and passwords, and with faults on demand.
package registrytest

import (
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-containerregistry/pkg/registry"
)

// Registry is a registry that lives as long as a test.
type Registry struct {
	// Host is host:port.
	Host string
	// CAFile holds its certificate in PEM.
	CAFile string
	// NoAuth is a credentials file without any, so that a test does not use those
	// of the host it runs on.
	NoAuth string

	mutex    sync.Mutex
	requests []string
	users    map[string]string
	fault    func(*http.Request) int
}

// New starts a registry without users.
func New(t testing.TB) *Registry {
	t.Helper()
	r := &Registry{users: map[string]string{}}
	handler := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		r.serve(w, request, handler)
	}))
	t.Cleanup(server.Close)
	r.Host = strings.TrimPrefix(server.URL, "https://")
	directory := t.TempDir()
	r.CAFile, r.NoAuth = filepath.Join(directory, "ca.crt"), filepath.Join(directory, "config.json")
	if err := os.WriteFile(r.NoAuth, []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	block := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	if err := os.WriteFile(r.CAFile, block, 0o600); err != nil {
		t.Fatal(err)
	}
	return r
}

func (r *Registry) serve(w http.ResponseWriter, request *http.Request, handler http.Handler) {
	r.mutex.Lock()
	r.requests = append(r.requests, request.Method+" "+request.URL.RequestURI())
	fault, status := r.fault, 0
	isAllowed := r.isAllowed(request)
	r.mutex.Unlock()
	if fault != nil {
		status = fault(request)
	}
	switch {
	case status != 0:
		http.Error(w, http.StatusText(status), status)
	case !isAllowed:
		w.Header().Set("WWW-Authenticate", `Basic realm="test"`)
		w.WriteHeader(http.StatusUnauthorized)
		_, _ = io.WriteString(w, `{"errors":[{"code":"UNAUTHORIZED","message":"authentication required"}]}`)
	default:
		handler.ServeHTTP(w, request)
	}
}

func (r *Registry) isAllowed(request *http.Request) bool {
	if len(r.users) == 0 {
		return true
	}
	user, password, _ := request.BasicAuth()
	want, known := r.users[user]
	return known && want == password
}

// AddUser makes the registry ask for a password from now on, and gives the
// content of a docker config.json with it.
func (r *Registry) AddUser(user, password string) []byte {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	r.users[user] = password
	auth := base64.StdEncoding.EncodeToString([]byte(user + ":" + password))
	content, _ := json.Marshal(map[string]any{"auths": map[string]any{r.Host: map[string]string{"auth": auth}}})
	return content
}

// Fail answers requests with the status that fault gives; 0 lets them pass.
func (r *Registry) Fail(fault func(*http.Request) int) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	r.fault = fault
}

// Requests gives the requests since the last call: method and URI.
func (r *Registry) Requests() []string {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	requests := r.requests
	r.requests = nil
	return requests
}
