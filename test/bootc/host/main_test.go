package host

import (
	"archive/tar"
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	containertypes "go.podman.io/image/v5/types"
	"go.podman.io/storage/pkg/reexec"
)

// TestMain lets the tests' program be the child that unpacks layers.
func TestMain(m *testing.M) {
	if reexec.Init() {
		return
	}
	os.Exit(m.Run())
}

// fixture is a host in temporary directories and a registry of its own.
type fixture struct {
	*Host
	registry string
	// fetched are the blobs that were asked for, by digest.
	fetched  []string
	output   bytes.Buffer
	commands []string
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("unpacking an image needs root: run the tests as root")
	}
	f := &fixture{}
	images := registry.New(registry.Logger(nopLogger()))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, blob, ok := strings.Cut(r.URL.Path, "/blobs/"); ok && r.Method == http.MethodGet {
			f.fetched = append(f.fetched, blob)
		}
		images.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	f.registry = strings.TrimPrefix(server.URL, "http://")

	directory := t.TempDir()
	policy := filepath.Join(directory, "policy.json")
	if err := os.WriteFile(policy, []byte(`{"default":[{"type":"insecureAcceptAnything"}]}`), 0o644); err != nil {
		t.Fatal(err)
	}
	f.Host = &Host{
		Sysroot: filepath.Join(directory, "sysroot"), Run: filepath.Join(directory, "run"), Root: directory,
		Out: &f.output, Progress: io.Discard,
		System: containertypes.SystemContext{
			SignaturePolicyPath: policy, SystemRegistriesConfPath: os.DevNull, SystemRegistriesConfDirPath: directory,
			DockerInsecureSkipTLSVerify: containertypes.OptionalBoolTrue,
		},
		Execute: func(name string, arguments ...string) error {
			f.commands = append(f.commands, strings.Join(append([]string{name}, arguments...), " "))
			return nil
		},
		Park: func() error { return nil },
	}
	return f
}

// image is what a test's image is made of.
type image struct {
	files        map[string]string
	labels       map[string]string
	architecture string
}

// bootable is an image that bootc accepts, with the given files beside /etc/keep.
func bootable(pairs ...string) image {
	files := map[string]string{"etc/keep": "image", "usr/bin/program": "program", "var/lib/data": "from the image"}
	for i := 0; i < len(pairs); i += 2 {
		files[pairs[i]] = pairs[i+1]
	}
	return image{
		files: files, architecture: "amd64",
		labels: map[string]string{"containers.bootc": "1", "org.opencontainers.image.version": "12"},
	}
}

func (i image) build(t *testing.T) v1.Image {
	t.Helper()
	var content bytes.Buffer
	archive := tar.NewWriter(&content)
	for path, text := range i.files {
		header := &tar.Header{Typeflag: tar.TypeReg, Name: path, Mode: 0o644, Size: int64(len(text))}
		if err := archive.WriteHeader(header); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(archive, text); err != nil {
			t.Fatal(err)
		}
	}
	if err := archive.Close(); err != nil {
		t.Fatal(err)
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(content.Bytes())), nil
	}, tarball.WithMediaType(types.OCILayer))
	if err != nil {
		t.Fatal(err)
	}
	base := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	built, err := mutate.AppendLayers(base, layer)
	if err != nil {
		t.Fatal(err)
	}
	config, err := built.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	config = config.DeepCopy()
	config.Architecture, config.OS, config.Config.Labels = i.architecture, "linux", i.labels
	built, err = mutate.ConfigFile(built, config)
	if err != nil {
		t.Fatal(err)
	}
	return built
}

// push uploads an image and returns its name by digest.
func (f *fixture) push(t *testing.T, tag string, image image) string {
	t.Helper()
	reference, err := name.NewTag(f.registry + "/os:" + tag)
	if err != nil {
		t.Fatal(err)
	}
	built := image.build(t)
	if err := remote.Write(reference, built); err != nil {
		t.Fatal(err)
	}
	digest, err := built.Digest()
	if err != nil {
		t.Fatal(err)
	}
	return reference.Context().Digest(digest.String()).String()
}

// boot starts what the boot entry names, with an empty /run.
func (f *fixture) boot(t *testing.T) {
	t.Helper()
	var entry bootEntry
	if err := readJSON(f.entryFile(), &entry); err != nil {
		t.Fatal(err)
	}
	f.Root = f.rootOf(entry.Default)
	f.cutPower(t)
}

// cutPower loses what is in /run.
func (f *fixture) cutPower(t *testing.T) {
	t.Helper()
	if err := os.RemoveAll(f.Run); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(f.Run, 0o755); err != nil {
		t.Fatal(err)
	}
}

// installed is a fixture that has booted an image.
func installed(t *testing.T) (*fixture, string) {
	t.Helper()
	f := newFixture(t)
	first := f.push(t, "first", bootable())
	if err := f.Install(context.Background(), registryImage(first)); err != nil {
		t.Fatal(err)
	}
	f.boot(t)
	f.fetched = nil
	return f, first
}

func registryImage(name string) ImageReference {
	return ImageReference{Image: name, Transport: "registry"}
}

// slots is the status in short: digest of each slot, with a mark when locked.
func (f *fixture) slots(t *testing.T) string {
	t.Helper()
	status, err := f.Status()
	if err != nil {
		t.Fatal(err)
	}
	var text []string
	for _, slot := range []struct {
		name  string
		entry *BootEntry
	}{{"staged", status.Status.Staged}, {"booted", status.Status.Booted}, {"rollback", status.Status.Rollback}} {
		if slot.entry == nil {
			continue
		}
		locked := ""
		if slot.entry.DownloadOnly {
			locked = " locked"
		}
		text = append(text, fmt.Sprintf("%s=%s%s", slot.name, slot.entry.Image.ImageDigest, locked))
	}
	return strings.Join(text, " ")
}

func digestOf(reference string) string {
	_, digest, _ := strings.Cut(reference, "@")
	return digest
}
