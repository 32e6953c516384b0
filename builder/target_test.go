package builder

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/imagemode/imagemode/builder/request"
	"github.com/imagemode/imagemode/registry"
)

func TestAnImageLayoutTakesThePlaceOfTheRepository(t *testing.T) {
	for name, text := range map[string]string{
		"config only":         "",
		"a text from configs": "FROM configs\nRUN [\"/bin/tool\", \"expect\", \"/etc/motd\", \"hello\"]\nRUN [\"/bin/tool\", \"write\", \"/usr/share/a\", \"b\"]\n",
		"a text from base":    writesOnBase,
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorkplace(t, text)
			w.options.KeepCredentials = true
			w.options.Output = "oci:" + filepath.Join(t.TempDir(), "image")
			result, err := w.build()
			if err != nil {
				t.Fatal(err)
			}
			built := registry.Named(w.options.Output, "worker-1")
			image, err := registry.Inspect(context.Background(), registry.Access{Architecture: "amd64"}, built)
			if err != nil || image.Digest.String() != result.Digest {
				t.Errorf("%s is %v, %v; want %s", built, image, err, result.Digest)
			}
			if found, err := registry.Exists(context.Background(), w.access, w.request.PushSpec); found != registry.Gone {
				t.Errorf("the repository: %s, %v", found, err)
			}
			again, err := w.build()
			if err != nil || again.Digest != result.Digest {
				t.Errorf("%s, then %s, %v", result.Digest, again.Digest, err)
			}
			if diff := cmp.Diff([]string{"inputs"}, reused(again)); diff != "" {
				t.Error(diff)
			}
			w.options.Output = ""
			_, pushed := w.mustBuild()
			// buildah compresses all layers anew for a layout.
			if diff := cmp.Diff(pushed.Parsed.RootFS, image.Parsed.RootFS); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestARequestOfAWorkstationIsBuilt without what only a cluster knows.
func TestARequestOfAWorkstationIsBuilt(t *testing.T) {
	w := newWorkplace(t, "")
	w.options.KeepCredentials = true
	w.options.Output = "oci:" + filepath.Join(t.TempDir(), "image")
	w.request.InputsHash, w.request.PushSpec = "", ""
	raw, err := json.Marshal(w.request)
	if err != nil {
		t.Fatal(err)
	}
	w.write(request.FileRequest, raw)
	result, err := Build(context.Background(), w.options)
	if err != nil {
		t.Fatal(err)
	}
	built := registry.Named(w.options.Output, w.request.Name)
	image, err := registry.Inspect(context.Background(), registry.Access{Architecture: "amd64"}, built)
	if err != nil || image.Digest.String() != result.Digest {
		t.Errorf("%s is %v, %v; want %s", built, image, err, result.Digest)
	}
	again, err := Build(context.Background(), w.options)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"inputs"}, reused(again)); diff != "" {
		t.Error(diff)
	}
	planned, err := DryRun(context.Background(), w.options)
	if err != nil || len(planned) != 1 || !planned[0].Reused {
		t.Errorf("planned %v, %v; want the image that is there", planned, err)
	}
}

func TestDryRun(t *testing.T) {
	tests := map[string]struct {
		text   string
		before bool
		change func(*workplace)
		want   []string
	}{
		"nothing is there, a text from configs": {
			text: "FROM configs\nRUN [\"/bin/tool\"]\n",
			want: []string{"base", "configs key", "user key", "verify", "publish"},
		},
		"nothing is there, a text from base": {
			text: "FROM base\nRUN [\"/bin/tool\"]\n",
			want: []string{"base", "user key", "configs after user", "verify", "publish"},
		},
		"another config on a text from base": {
			text: writesOnBase, before: true, change: (*workplace).otherConfig,
			want: []string{"base", "user key reused", "configs key", "verify", "publish"},
		},
		"nothing changed": {
			text: writesOnBase, before: true, want: []string{"inputs key reused"},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			w := newWorkplace(t, test.text)
			w.options.KeepCredentials = true
			if test.before {
				w.mustBuild()
			}
			if test.change != nil {
				test.change(w)
			}
			planned, requests := w.dryRun()
			var got []string
			for _, step := range planned {
				got = append(got, briefly(step))
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Error(diff)
			}
			for _, request := range requests {
				if request[:3] != "GET" && request[:4] != "HEAD" {
					t.Errorf("something was written: %s", request)
				}
			}
		})
	}
}

// TestADryRunMakesNoLayout: it looks for earlier builds in one that may not be there.
func TestADryRunMakesNoLayout(t *testing.T) {
	w := newWorkplace(t, "FROM configs\nRUN [\"/bin/tool\"]\n")
	directory := filepath.Join(t.TempDir(), "new")
	w.options.Output = outputPrefix + filepath.Join(directory, "layout")
	planned, _ := w.dryRun()
	if len(planned) != 5 {
		t.Errorf("planned %v", planned)
	}
	if _, err := os.Stat(directory); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%s is there: %v", directory, err)
	}
}

func briefly(step Planned) string {
	text := step.Name
	if step.Key != "" {
		text += " key"
	}
	if step.Reused {
		text += " reused"
	}
	if step.After != "" {
		text += " after " + step.After
	}
	return text
}

// TestADryRunTellsTheKeysOfTheBuild: otherwise what it says of reuse is a guess.
func TestADryRunTellsTheKeysOfTheBuild(t *testing.T) {
	w := newWorkplace(t, "FROM configs\nRUN [\"/bin/tool\", \"write\", \"/a\", \"a\"]\n")
	w.options.KeepCredentials = true
	planned, _ := w.dryRun()
	built, _ := w.mustBuild()
	for i, step := range built.Steps {
		if planned[i].Name != step.Name || planned[i].Key != step.Key {
			t.Errorf("planned %s, built %+v", planned[i], step)
		}
	}
}

func (w *workplace) dryRun() ([]Planned, []string) {
	w.t.Helper()
	w.writeRequest()
	w.registry.Requests()
	planned, err := DryRun(context.Background(), w.options)
	if err != nil {
		w.t.Fatal(err)
	}
	return planned, w.registry.Requests()
}
