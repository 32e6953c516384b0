// Package envtest starts a real API server, with imagemode's CRDs and those of
// the kinds it keeps, for tests of what only an API server decides: defaults,
// validation, conflicts, ownership of fields.
//
// Tests that use it carry the build tag envtest and run under "make envtest".
package envtest

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
)

// startTimeout is long because the tests of several packages may start their
// servers at the same time on a small machine; alone it takes 4 seconds.
const startTimeout = 2 * time.Minute

// programs are what has to be in the directory that KUBEBUILDER_ASSETS names.
var programs = []string{"etcd", "kube-apiserver"}

// Start runs etcd and kube-apiserver until the test ends and returns an
// administrator's configuration for them. The server is empty but for the CRDs
// and the namespaces every server has; nothing but the server runs: no garbage
// collector, no Job or ServiceAccount controller.
//
// A start takes some seconds: share one among the cases of a table.
func Start(t testing.TB) *rest.Config {
	t.Helper()
	// A manager in a test would log to nowhere, and controller-runtime complain
	// about that with a stack trace. What a test wants to see it asks the server.
	log.SetLogger(zap.New(zap.WriteTo(io.Discard)))
	root, err := moduleRoot()
	if err != nil {
		t.Fatal(err)
	}
	assets, err := assetsDirectory()
	if err != nil {
		t.Fatal(err)
	}
	environment := &envtest.Environment{
		BinaryAssetsDirectory: assets,
		CRDDirectoryPaths: []string{
			filepath.Join(root, "config/crd/bases"),
			filepath.Join(root, "config/crd/openshift"),
		},
		ErrorIfCRDPathMissing:    true,
		ControlPlaneStartTimeout: startTimeout,
		ControlPlaneStopTimeout:  startTimeout,
	}
	t.Cleanup(func() {
		if err := environment.Stop(); err != nil {
			t.Errorf("stop the API server: %v", err)
		}
	})
	config, err := startWithMemory(environment)
	if err != nil {
		t.Fatalf("start the API server (run the tests with \"make envtest\", which generates the CRDs): %v", err)
	}
	return config
}

// startWithMemory gives the server more memory than it asks for: of few processors,
// its garbage collector would take a seventh. What a test starts later has the
// environment of before.
func startWithMemory(environment *envtest.Environment) (*rest.Config, error) {
	const variable = "GOGC"
	before, isSet := os.LookupEnv(variable)
	if err := os.Setenv(variable, "400"); err != nil {
		return nil, err
	}
	config, err := environment.Start()
	if isSet {
		return config, errors.Join(err, os.Setenv(variable, before))
	}
	return config, errors.Join(err, os.Unsetenv(variable))
}

// assetsDirectory returns where etcd and kube-apiserver are: KUBEBUILDER_ASSETS,
// or the cache that "make envtest" compiles them into.
func assetsDirectory() (string, error) {
	directory := os.Getenv("KUBEBUILDER_ASSETS")
	if directory == "" {
		cache := os.Getenv("IMAGEMODE_CACHE")
		if cache == "" {
			cache = filepath.Join(os.Getenv("HOME"), ".cache", "imagemode")
		}
		directory = filepath.Join(cache, "bin")
	}
	for _, program := range programs {
		if _, err := os.Stat(filepath.Join(directory, program)); err != nil {
			return "", fmt.Errorf("%s is not in %s: run \"make envtest\", which compiles it", program, directory)
		}
	}
	return directory, nil
}

// moduleRoot returns the directory of the module's go.mod, going up from the
// working directory, which is the package's own while its tests run.
func moduleRoot() (string, error) {
	start, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for directory := start; ; directory = filepath.Dir(directory) {
		if _, err := os.Stat(filepath.Join(directory, "go.mod")); err == nil {
			return directory, nil
		}
		if directory == filepath.Dir(directory) {
			return "", fmt.Errorf("no go.mod in %s or above", start)
		}
	}
}
