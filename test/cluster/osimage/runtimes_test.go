package osimage

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/pelletier/go-toml/v2"
)

func TestStreamsDifferInTheirRuntimes(t *testing.T) {
	binaries := t.TempDir()
	if err := os.WriteFile(filepath.Join(binaries, "runc"), []byte("runc"), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]struct {
		label, standard string
		handlers, files []string
	}{
		"debian-12": {"crun,runc", "runc", []string{"crun", "runc"}, []string{"etc/containerd/config.toml", "usr/bin/runc"}},
		"debian-13": {"crun", "crun", []string{"crun"}, []string{"etc/containerd/config.toml"}},
	} {
		t.Run(name, func(t *testing.T) {
			recipe, err := recipeOf(name)
			if err != nil {
				t.Fatal(err)
			}
			files, err := recipe.runtimeFiles(binaries)
			if err != nil {
				t.Fatal(err)
			}
			var paths []string
			for _, file := range files {
				paths = append(paths, file.path)
			}
			if diff := cmp.Diff(want.files, paths); diff != "" {
				t.Error(diff)
			}
			standard, handlers := handlersOf(t, files[0].content)
			if diff := cmp.Diff(want.handlers, handlers); diff != "" || standard != want.standard {
				t.Errorf("default %q, handlers %s", standard, diff)
			}
			if recipe.runtimesLabel() != want.label || !slices.Contains(recipe.Packages, "crun") {
				t.Errorf("label %q, packages %v", recipe.runtimesLabel(), recipe.Packages)
			}
		})
	}
}

// handlersOf reads the default runtime and the names of all from containerd's
// configuration.
func handlersOf(t *testing.T, content []byte) (standard string, handlers []string) {
	t.Helper()
	var config struct {
		Plugins map[string]struct {
			Containerd struct {
				Default  string                    `toml:"default_runtime_name"`
				Runtimes map[string]map[string]any `toml:"runtimes"`
			} `toml:"containerd"`
		} `toml:"plugins"`
	}
	if err := toml.Unmarshal(content, &config); err != nil {
		t.Fatalf("%v\n%s", err, content)
	}
	containerd := config.Plugins["io.containerd.cri.v1.runtime"].Containerd
	for name, settings := range containerd.Runtimes {
		if binary := settings["options"].(map[string]any)["BinaryName"]; binary != "/usr/bin/"+name {
			t.Errorf("runtime %s runs %v", name, binary)
		}
		handlers = append(handlers, name)
	}
	slices.Sort(handlers)
	return containerd.Default, handlers
}
