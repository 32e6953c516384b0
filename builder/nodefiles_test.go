package builder

import (
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/coreos/ignition/v2/config/v3_6/types"
	"github.com/google/go-cmp/cmp"

	"github.com/imagemode/imagemode/builder/request"
	"github.com/imagemode/imagemode/ignition"
)

// ignitionOf gives an Ignition config with files.
func ignitionOf(t *testing.T, files map[string]string) json.RawMessage {
	t.Helper()
	var list []any
	for path, content := range files {
		list = append(list, map[string]any{"path": path, "contents": map[string]string{"source": "data:," + url.PathEscape(content)}})
	}
	raw, err := json.Marshal(map[string]any{"ignition": map[string]string{"version": "3.4.0"}, "storage": map[string]any{"files": list}})
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

func parsed(t *testing.T, raw json.RawMessage) types.Config {
	t.Helper()
	config, err := ignition.Parse(raw)
	if err != nil {
		t.Fatal(err)
	}
	return config
}

func TestNodeFiles(t *testing.T) {
	directory := filepath.Join(t.TempDir(), "node")
	config := ignitionOf(t, map[string]string{
		"/etc/motd": "hello",
		"/etc/containers/registries.conf.d/mirror.conf":        "# mirror",
		"/etc/docker/certs.d/registry.example.com:5000/ca.crt": "certificate",
		"/etc/containers/policy.json":                          `{"default":[{"type":"reject"}],"transports":{"docker":{"a.example.com":[{"type":"sigstoreSigned","keyPath":"/etc/pki/a.pub"}]}}}`,
		"/etc/pki/a.pub":                                       "a key",
	})
	got, err := writeNodeFiles(parsed(t, config), directory)
	if err != nil || got != directory {
		t.Fatalf("%q, %v", got, err)
	}
	files := map[string]string{}
	err = eachPath(directory, func(name string, content []byte) { files[name] = string(content) })
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{
		"registries.conf":                          "",
		"registries.conf.d/mirror.conf":            "# mirror",
		"certs.d/registry.example.com:5000/ca.crt": "certificate",
		"keys/etc/pki/a.pub":                       "a key",
		"policy.json": fmt.Sprintf(`{"default":[{"type":"reject"}],"transports":{"docker":{"a.example.com":[{"keyPath":%q,"type":"sigstoreSigned"}]}}}`,
			filepath.Join(directory, "keys/etc/pki/a.pub")),
	}
	if diff := cmp.Diff(want, files); diff != "" {
		t.Error(diff)
	}
	if got, err := writeNodeFiles(parsed(t, ignitionOf(t, map[string]string{"/etc/motd": "a"})), directory); got != "" || err != nil {
		t.Errorf("a config without such files: %q, %v", got, err)
	}
}

func eachPath(directory string, visit func(string, []byte)) error {
	return filepath.WalkDir(directory, func(path string, entry os.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := os.ReadFile(path)
		name, _ := filepath.Rel(directory, path)
		visit(name, content)
		return err
	})
}

func TestMirrorsAndPolicyOfTheNodesHoldInABuild(t *testing.T) {
	const text = "FROM configs\nRUN [\"/bin/tool\", \"write\", \"/usr/share/a\", \"b\"]\n"
	for name, test := range map[string]struct {
		files func(*workplace) map[string]string
		fails string
	}{
		"a mirror takes the place of a registry that is not there": {
			files: func(w *workplace) map[string]string {
				host := w.registry.Host
				w.request.BaseImage = strings.Replace(w.request.BaseImage, host, "quay.example.com", 1)
				return map[string]string{"/etc/containers/registries.conf": fmt.Sprintf(
					"[[registry]]\nprefix = \"quay.example.com\"\nlocation = \"quay.example.com\"\nblocked = false\n[[registry.mirror]]\nlocation = %q\n", host)}
			},
		},
		"a policy that refuses the base": {
			files: func(w *workplace) map[string]string {
				return map[string]string{"/etc/containers/policy.json": `{"default":[{"type":"reject"}]}`}
			},
			fails: "policy",
		},
		"a policy that takes the base only": {
			files: func(w *workplace) map[string]string {
				return map[string]string{"/etc/containers/policy.json": fmt.Sprintf(
					`{"default":[{"type":"reject"}],"transports":{"docker":{%q:[{"type":"insecureAcceptAnything"}]}}}`, w.registry.Host+"/os/base")}
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorkplace(t, text)
			w.request.Ignition = ignitionOf(t, test.files(w))
			result, err := w.build()
			if test.fails == "" {
				if err != nil {
					t.Fatal(err)
				}
				return
			}
			if err == nil || result.Failure.Class != request.Image || !strings.Contains(result.Failure.Message, test.fails) {
				t.Errorf("got %v, %+v", err, result.Failure)
			}
		})
	}
}
