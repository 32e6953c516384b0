package builder

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
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

func (w *workplace) build() (request.Result, error) {
	w.t.Helper()
	encoded, err := request.Encode(&w.request)
	if err != nil {
		w.t.Fatal(err)
	}
	w.write(request.FileRequest, encoded)
	w.registry.Requests()
	result, err := Build(context.Background(), w.options)
	w.t.Log(w.output.String())
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

func stepNames(result request.Result) []string {
	var names []string
	for _, step := range result.Steps {
		names = append(names, step.Name)
	}
	return names
}

func TestBuild(t *testing.T) {
	tests := map[string]struct {
		containerfile string
		steps         []string
		layers        int
		files         map[string]string
	}{
		"without a Containerfile": {
			steps: []string{"base", "configs", "verify", "publish"}, layers: 3,
			files: map[string]string{"/etc/motd": "hello"},
		},
		"a Containerfile that adds nothing": {
			containerfile: "FROM configs AS final\n",
			steps:         []string{"base", "configs", "verify", "publish"}, layers: 3,
			files: map[string]string{"/etc/motd": "hello"},
		},
		"on configs": {
			containerfile: "FROM configs AS final\nRUN [\"/bin/tool\", \"expect\", \"/etc/motd\", \"hello\"]\n" +
				"RUN [\"/bin/tool\", \"write\", \"/usr/share/a\", \"b\"]\nLABEL a=b\n",
			steps: []string{"base", "configs", "user", "verify", "publish"}, layers: 4,
			files: map[string]string{"/etc/motd": "hello", "/usr/share/a": "b"},
		},
		"without a FROM": {
			containerfile: "RUN [\"/bin/tool\", \"write\", \"/usr/share/a\", \"b\"]\n",
			steps:         []string{"base", "configs", "user", "verify", "publish"}, layers: 4,
			files: map[string]string{"/etc/motd": "hello", "/usr/share/a": "b"},
		},
		"on base, the config layer comes last": {
			containerfile: "FROM base AS final\nRUN [\"/bin/tool\", \"write\", \"/etc/motd\", \"from the text\"]\n",
			steps:         []string{"base", "user", "configs", "verify", "publish"}, layers: 4,
			files: map[string]string{"/etc/motd": "hello"},
		},
		"on base, with a file of configs": {
			containerfile: "FROM base AS final\nCOPY --from=configs /etc/motd /usr/share/motd\n",
			steps:         []string{"base", "configs (as a source)", "user", "configs", "verify", "publish"}, layers: 4,
			files: map[string]string{"/etc/motd": "hello", "/usr/share/motd": "hello"},
		},
		"with the extensions image and a heredoc": {
			containerfile: "FROM configs AS tools\nCOPY <<EOF /usr/share/h\ntext\nEOF\nFROM tools AS final\n" +
				"RUN --mount=type=bind,from=extensions,target=/run/extensions [\"/bin/tool\", \"expect\", \"/run/extensions/packages/a\", \"a package\"]\n",
			steps: []string{"base", "configs", "user", "verify", "publish"},
			files: map[string]string{"/usr/share/h": "text\n"},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			w := newWorkplace(t, test.containerfile)
			result, image := w.mustBuild()
			if diff := cmp.Diff(test.steps, stepNames(result)); diff != "" {
				t.Error(diff)
			}
			if test.layers != 0 && len(image.Layers) != test.layers {
				t.Errorf("%d layers, want %d", len(image.Layers), test.layers)
			}
			files := w.files(image, 2)
			for path, want := range test.files {
				if files[path] != want {
					t.Errorf("%s holds %q, want %q", path, files[path], want)
				}
			}
			checkLabels(t, w, image)
			checkTraces(t, files)
		})
	}
}

func checkLabels(t *testing.T, w *workplace, image *registry.Image) {
	t.Helper()
	labels := image.Parsed.Config.Labels
	want := map[string]string{
		"containers.bootc":                  "1",
		"baseOSContainerImage":              w.request.BaseImage,
		"org.opencontainers.image.version":  "12.1",
		"org.opencontainers.image.created":  "2026-01-02T03:04:05Z",
		"org.opencontainers.image.revision": inputsHash,
	}
	for name, value := range want {
		if labels[name] != value {
			t.Errorf("label %s is %q, want %q", name, labels[name], value)
		}
	}
	byInputs := w.registry.Host + "/os/worker:inputs-" + inputsHash
	if digest, err := registry.ResolveDigest(context.Background(), w.access, byInputs); err != nil || digest != image.Digest.String() {
		t.Errorf("%s is %s, %v; want %s", byInputs, digest, err, image.Digest)
	}
}

// checkTraces looks for what a build may leave in an image.
func checkTraces(t *testing.T, files map[string]string) {
	t.Helper()
	for path, content := range files {
		if strings.Contains(content, password) {
			t.Errorf("%s holds the password", path)
		}
		for _, trace := range []string{"/etc/resolv.conf", "/etc/hosts", "/run/.containerenv", "/run/extensions/packages/a"} {
			if path == trace {
				t.Errorf("%s was left in the image", path)
			}
		}
	}
}

func TestAConfigBuildFetchesNoLayerAndIsTheSameAgain(t *testing.T) {
	w := newWorkplace(t, "")
	first, image := w.mustBuild()
	base, err := registry.Inspect(context.Background(), w.access, w.request.BaseImage)
	if err != nil {
		t.Fatal(err)
	}
	w.write(request.FilePullAuth, w.registry.AddUser("user", password))
	w.write(request.FilePushAuth, w.registry.AddUser("user", password))
	second, _ := w.mustBuild()
	if first.Digest != second.Digest {
		t.Errorf("%s, then %s", first.Digest, second.Digest)
	}
	for _, request := range w.registry.Requests() {
		for _, layer := range base.Layers {
			if strings.HasPrefix(request, "GET") && strings.Contains(request, layer.Digest.String()) {
				t.Errorf("a layer was fetched: %s", request)
			}
		}
	}
	if diff := cmp.Diff(base.Parsed.RootFS.DiffIDs, image.Parsed.RootFS.DiffIDs[:2]); diff != "" {
		t.Errorf("the base's layers are not the lowest: %s", diff)
	}
}

func TestARunFindsNoCredentials(t *testing.T) {
	reversed := []rune(password)
	slices.Reverse(reversed)
	w := newWorkplace(t, "")
	w.request.Containerfile = "FROM configs\nENV BUILD_DIRECTORY=" + w.options.Dir + "\n" +
		"RUN [\"/bin/tool\", \"search\", \"" + string(reversed) + "\"]\n"
	// The password alone is not enough: files hold it in base64.
	auth, err := os.ReadFile(filepath.Join(w.options.Dir, request.FilePushAuth))
	if err != nil {
		t.Fatal(err)
	}
	var decoded struct {
		Auths map[string]struct{ Auth string }
	}
	if err := json.Unmarshal(auth, &decoded); err != nil {
		t.Fatal(err)
	}
	encoded := []rune(decoded.Auths[w.registry.Host].Auth)
	slices.Reverse(encoded)
	w.request.Containerfile += "RUN [\"/bin/tool\", \"search\", \"" + string(encoded) + "\"]\n"
	if _, err := w.build(); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{request.FilePullAuth, request.FilePushAuth} {
		if isFile(filepath.Join(w.options.Dir, name)) {
			t.Errorf("%s is still there", name)
		}
	}
}

func TestBuildFailures(t *testing.T) {
	tests := map[string]struct {
		containerfile string
		change        func(*workplace)
		want          request.Failure
		lastLine      string
	}{
		"a RUN that fails": {
			containerfile: "FROM configs AS final\n# a comment\nRUN [\"/bin/tool\", \"write\", \"/a\", \"a\"]\nRUN [\"/bin/tool\", \\\n  \"fail\", \"7\", \"one\", \"two\"]\nLABEL a=b\n",
			want:          request.Failure{Class: request.Containerfile, Step: "user", Line: 4, ExitCode: 7, Message: "exit status 7"},
			lastLine:      "two",
		},
		"a RUN that fails in a text without FROM": {
			containerfile: "\nRUN [\"/bin/tool\", \"fail\", \"3\"]\n",
			want:          request.Failure{Class: request.Containerfile, Step: "user", Line: 2, ExitCode: 3, Message: "exit status 3"},
		},
		"a RUN that cannot reach a repository": {
			containerfile: "RUN [\"/bin/tool\", \"fail\", \"100\", \"E: Temporary failure resolving 'deb.example.com'\"]\n",
			want:          request.Failure{Class: request.Network, Step: "user", Line: 1, ExitCode: 100, Message: "could not reach the network"},
			lastLine:      "Temporary failure",
		},
		"a RUN that fills the disk": {
			containerfile: "RUN [\"/bin/tool\", \"fail\", \"1\", \"write: No space left on device\"]\n",
			want:          request.Failure{Class: request.Resources, Step: "user", Line: 1, ExitCode: 1, Message: "exit status 1"},
		},
		"a COPY of what is not there": {
			containerfile: "FROM configs\n\nCOPY --from=base /none /none\n",
			want:          request.Failure{Class: request.Containerfile, Step: "user", Line: 3, Message: "none"},
		},
		"an image in the text that is not there": {
			containerfile: "FROM HOST/os/none:1 AS a\nFROM configs\nCOPY --from=a /a /a\n",
			change: func(w *workplace) {
				w.request.Containerfile = strings.Replace(w.request.Containerfile, "HOST", w.registry.Host, 1)
			},
			want: request.Failure{Class: request.Image, Step: "user", Line: 1, Message: "os/none"},
		},
		"a text that does not parse": {
			containerfile: "FROM configs\nRUNN true\n",
			want:          request.Failure{Class: request.Containerfile, Step: "inputs", Line: 2, Message: "unknown instruction"},
		},
		"a base that is not there": {
			change: func(w *workplace) {
				w.request.BaseImage = w.registry.Host + "/os/base@sha256:" + inputsHash
			},
			want: request.Failure{Class: request.Image, Step: "base", Message: "os/base"},
		},
		"a base of another architecture": {
			change: func(w *workplace) {
				w.request.Architecture = "arm64"
			},
			want: request.Failure{Class: request.Image, Step: "base", Message: "architecture amd64"},
		},
		"a base that cannot boot": {
			change: func(w *workplace) { w.request.BaseImage = w.request.ExtensionsImage },
			want:   request.Failure{Class: request.Image, Step: "base", Message: "containers.bootc"},
		},
		"credentials that are refused": {
			change: func(w *workplace) { w.registry.AddUser("user", "another") },
			want:   request.Failure{Class: request.Authentication, Step: "base", Message: "os/base"},
		},
		"a push that is refused": {
			change: func(w *workplace) {
				w.registry.Fail(func(r *http.Request) int {
					if r.Method == http.MethodPost {
						return http.StatusForbidden
					}
					return 0
				})
			},
			want: request.Failure{Class: request.Authentication, Step: "configs", Message: "os/worker"},
		},
		"a config that no image can hold": {
			change: func(w *workplace) {
				w.request.Ignition = json.RawMessage(`{"ignition":{"version":"3.4.0"},"storage":{"files":[{"path":"/run/a","contents":{"source":"data:,"}}]}}`)
			},
			want: request.Failure{Class: request.Config, Step: "inputs", Message: "/run/a"},
		},
		"a config that does not parse": {
			change: func(w *workplace) { w.request.Ignition = json.RawMessage(`{"ignition":{"version":"9.0.0"}}`) },
			want:   request.Failure{Class: request.Config, Step: "inputs", Message: "9.0.0"},
		},
		"extensions": {
			change: func(w *workplace) { w.request.Extensions = []string{"usbguard"} },
			want:   request.Failure{Class: request.Config, Step: "inputs", Message: "not supported yet"},
		},
		"an image that bootc would not boot": {
			containerfile: "FROM configs\nCOPY --from=base /bin/tool /usr/bin/bootc\nRUN [\"/bin/tool\", \"write\", \"/usr/etc/a\", \"a\"]\n",
			want:          request.Failure{Class: request.Image, Step: "user", Message: "bootc container lint"},
			lastLine:      "Failed lint: etc-usretc",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			w := newWorkplace(t, test.containerfile)
			if test.change != nil {
				test.change(w)
			}
			result, err := w.build()
			if err == nil || result.Failure == nil {
				t.Fatalf("it was built: %+v", result)
			}
			got := *result.Failure
			if !strings.Contains(got.Message, test.want.Message) {
				t.Errorf("message %q, want one with %q", got.Message, test.want.Message)
			}
			last := strings.Join(got.LastLines, "\n")
			if !strings.Contains(last, test.lastLine) {
				t.Errorf("last lines %q, want %q", last, test.lastLine)
			}
			got.Message, got.LastLines = test.want.Message, nil
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Error(diff)
			}
			if strings.Contains(string(result.Encode()), password) {
				t.Error("the result holds the password")
			}
		})
	}
}

func TestLintPasses(t *testing.T) {
	w := newWorkplace(t, "FROM configs\nCOPY --from=base /bin/tool /usr/bin/bootc\n")
	w.mustBuild()
}
