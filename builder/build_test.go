package builder

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/imagemode/imagemode/builder/request"
	"github.com/imagemode/imagemode/registry"
)

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
			steps: []string{"base", "configs", "user", "verify", "publish"}, layers: 5,
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
