package builder

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/klauspost/compress/gzip"
	"github.com/sirupsen/logrus"
	"go.podman.io/buildah"
	"go.podman.io/image/v5/pkg/blobinfocache/none"
	"golang.org/x/sys/unix"

	"github.com/imagemode/imagemode/builder/request"
	"github.com/imagemode/imagemode/registry"
	"github.com/imagemode/imagemode/registry/registrytest"
)

// toolProgram is the static program in the base image.
var toolProgram string

func TestMain(m *testing.M) {
	// A build runs this test program again, as it does the builder.
	if buildah.InitReexec() {
		return
	}
	if status, ok := playIsolated(); ok {
		os.Exit(status)
	}
	logrus.SetLevel(logrus.ErrorLevel)
	code, err := runTests(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func runTests(m *testing.M) (int, error) {
	if os.Geteuid() != 0 {
		return 1, errors.New("the builder's tests build real images, which mounts file systems: run them as root")
	}
	directory, err := os.MkdirTemp("", "imagemode-builder-test-")
	if err != nil {
		return 1, err
	}
	defer os.RemoveAll(directory)
	program := filepath.Join(directory, "tool")
	compile := exec.Command("go", "build", "-o", program, "./testdata/tool")
	compile.Env = append(os.Environ(), "CGO_ENABLED=0")
	if output, err := compile.CombinedOutput(); err != nil {
		return 1, fmt.Errorf("compiling the test base's program: %w\n%s", err, output)
	}
	content, err := os.ReadFile(program)
	toolProgram = string(content)
	if err != nil {
		return 1, err
	}
	return m.Run(), nil
}

const password = "s3cr3t-of-the-push-user"

var inputsHash = strings.Repeat("0123456789abcdef", 4)

// workplace is a registry with a base image, and a directory with a request.
type workplace struct {
	t        *testing.T
	registry *registrytest.Registry
	access   registry.Access
	request  request.Request
	options  Options
	output   bytes.Buffer
	// shown is what the last build wrote.
	shown string
}

func newWorkplace(t *testing.T, containerfile string) *workplace {
	t.Helper()
	w := &workplace{t: t, registry: registrytest.New(t)}
	base := w.registry.Push(t, "os/base", registrytest.ImageSpec{
		Files:  map[string]string{"/bin/tool": toolProgram, "/etc/": "", "/tmp/": ""},
		Labels: registrytest.Bootable(), Layers: 2,
	})
	extensions := w.registry.Push(t, "os/extensions", registrytest.ImageSpec{
		Files: map[string]string{"/packages/a": "a package"}, Labels: map[string]string{"io.openshift.os.extensions": "true"},
	})
	auth := w.registry.AddUser("user", password)
	w.options = Options{Dir: t.TempDir(), Storage: w.storage(), Out: &w.output}
	w.write(request.FilePullAuth, auth)
	w.write(request.FilePushAuth, auth)
	bundle, err := os.ReadFile(w.registry.CAFile)
	if err != nil {
		t.Fatal(err)
	}
	w.write(request.FileTrustBundle, bundle)
	kept := filepath.Join(t.TempDir(), "config.json")
	if err := os.WriteFile(kept, auth, 0o600); err != nil {
		t.Fatal(err)
	}
	w.access = registry.Access{AuthFile: kept, TrustBundle: w.registry.CAFile, Architecture: "amd64"}
	w.request = request.Request{
		Name: "worker-1", InputsHash: inputsHash, BaseImage: base, ExtensionsImage: extensions,
		Ignition:      json.RawMessage(`{"ignition":{"version":"3.4.0"},"storage":{"files":[{"path":"/etc/motd","mode":416,"contents":{"source":"data:,hello"}}]}}`),
		Containerfile: containerfile, Architecture: "amd64",
		PushSpec: w.registry.Host + "/os/worker:worker-1",
	}
	return w
}

// storage is removed only after everything in it is unmounted.
func (w *workplace) storage() string {
	// Not t.TempDir: the names of tests have commas, which part mount options.
	directory, err := os.MkdirTemp("", "imagemode-storage-")
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = os.RemoveAll(directory) })
	w.t.Cleanup(func() {
		_ = unix.Unmount(filepath.Join(directory, "images", "overlay"), unix.MNT_DETACH)
	})
	return directory
}

func (w *workplace) write(name string, content []byte) {
	w.t.Helper()
	path := filepath.Join(w.options.Dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		w.t.Fatal(err)
	}
	if err := os.WriteFile(path, content, 0o600); err != nil {
		w.t.Fatal(err)
	}
}

func (w *workplace) writeRequest() {
	w.t.Helper()
	encoded, err := request.Encode(&w.request)
	if err != nil {
		w.t.Fatal(err)
	}
	w.write(request.FileRequest, encoded)
}

func (w *workplace) build() (request.Result, error) {
	w.t.Helper()
	w.writeRequest()
	w.registry.Requests()
	result, err := Build(context.Background(), w.options)
	w.shown = w.output.String()
	w.t.Log(w.shown)
	w.output.Reset()
	return result, err
}

// mustBuild builds and reads the result back.
func (w *workplace) mustBuild() (request.Result, *registry.Image) {
	w.t.Helper()
	result, err := w.build()
	if err != nil {
		w.t.Fatal(err)
	}
	image, err := registry.Inspect(context.Background(), w.access, w.request.PushSpec)
	if err != nil {
		w.t.Fatal(err)
	}
	if image.Digest.String() != result.Digest {
		w.t.Errorf("the tag is %s, reported was %s", image.Digest, result.Digest)
	}
	return result, image
}

// files reads everything in the layers above the base's.
func (w *workplace) files(image *registry.Image, skip int) map[string]string {
	w.t.Helper()
	files := map[string]string{}
	source, _, err := registry.Open(context.Background(), w.access, image.Reference())
	if err != nil {
		w.t.Fatal(err)
	}
	defer source.Close()
	for _, layer := range image.Layers[skip:] {
		stream, _, err := source.GetBlob(context.Background(), layer, none.NoCache)
		if err != nil {
			w.t.Fatal(err)
		}
		unpacker, err := gzip.NewReader(stream)
		if err != nil {
			w.t.Fatal(err)
		}
		archive := tar.NewReader(unpacker)
		for header, err := archive.Next(); !errors.Is(err, io.EOF); header, err = archive.Next() {
			if err != nil {
				w.t.Fatal(err)
			}
			content, err := io.ReadAll(archive)
			if err != nil {
				w.t.Fatal(err)
			}
			files["/"+header.Name] = string(content)
		}
		stream.Close()
	}
	return files
}
