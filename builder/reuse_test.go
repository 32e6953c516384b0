package builder

import (
	"context"
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/imagemode/imagemode/builder/request"
	"github.com/imagemode/imagemode/ignition"
	"github.com/imagemode/imagemode/registry"
	"github.com/imagemode/imagemode/registry/registrytest"
)

// otherConfig makes the request one for another file, as a changed MachineConfig
// does.
func (w *workplace) otherConfig() {
	w.request.Name, w.request.InputsHash = "worker-2", strings.Repeat("2", 64)
	w.request.PushSpec = w.registry.Host + "/os/worker:worker-2"
	w.request.Ignition = json.RawMessage(`{"ignition":{"version":"3.4.0"},"storage":{"files":[{"path":"/etc/motd","contents":{"source":"data:,bye"}}]}}`)
}

// reused gives the names of the steps that were not run.
func reused(result request.Result) []string {
	var names []string
	for _, step := range result.Steps {
		if step.Reused {
			names = append(names, step.Name)
		}
	}
	return names
}

const writesOnBase = "FROM base AS final\nRUN [\"/bin/tool\", \"write\", \"/usr/share/a\", \"b\"]\n"

func TestWhatIsReused(t *testing.T) {
	tests := map[string]struct {
		containerfile string
		change        func(*workplace)
		want          []string
		same          bool
	}{
		"nothing changed: the whole image": {
			containerfile: writesOnBase, want: []string{"inputs"}, same: true,
		},
		"another name for the same inputs: the whole image": {
			containerfile: writesOnBase, want: []string{"inputs"}, same: true,
			change: func(w *workplace) {
				w.request.Name, w.request.PushSpec = "infra-1", w.registry.Host+"/os/worker:infra-1"
			},
		},
		"another hash of the same inputs: every step": {
			containerfile: writesOnBase, want: []string{"user", "configs"},
			change: func(w *workplace) { w.request.InputsHash = strings.Repeat("3", 64) },
		},
		"another config on a text from base: the text": {
			containerfile: writesOnBase, want: []string{"user"}, change: (*workplace).otherConfig,
		},
		"another config on a text from configs: nothing": {
			containerfile: strings.Replace(writesOnBase, "base", "configs", 1), change: (*workplace).otherConfig,
		},
		"another text: the config below it": {
			containerfile: strings.Replace(writesOnBase, "base", "configs", 1), want: []string{"configs"},
			change: func(w *workplace) {
				w.request.InputsHash, w.request.Containerfile = strings.Repeat("4", 64), w.request.Containerfile+"LABEL a=b\n"
			},
		},
		"a rebuild: nothing that runs a program": {
			containerfile: strings.Replace(writesOnBase, "base", "configs", 1), want: []string{"configs"},
			change: func(w *workplace) { w.request.InputsHash, w.request.Rebuild = strings.Repeat("5", 64), 1 },
		},
		"a rebuild of a text that runs nothing: every step": {
			containerfile: "FROM base\nCOPY --from=extensions /packages/a /usr/share/a\n", want: []string{"user", "configs"},
			change: func(w *workplace) { w.request.InputsHash, w.request.Rebuild = strings.Repeat("5", 64), 1 },
		},
		"other package repositories: nothing that runs a program": {
			containerfile: strings.Replace(writesOnBase, "base", "configs", 1), want: []string{"configs"},
			change: func(w *workplace) {
				w.request.InputsHash = strings.Repeat("6", 64)
				w.write(request.DirYumRepos+"/a.repo", []byte("[a]"))
			},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			w := newWorkplace(t, test.containerfile)
			w.options.KeepCredentials = true
			first, _ := w.mustBuild()
			if test.change != nil {
				test.change(w)
			}
			second, image := w.mustBuild()
			if diff := cmp.Diff(test.want, reused(second)); diff != "" {
				t.Error(diff)
			}
			if (first.Digest == second.Digest) != test.same {
				t.Errorf("%s, then %s", first.Digest, second.Digest)
			}
			if got := image.Parsed.Config.Labels[labelRevision]; got != w.request.InputsHash {
				t.Errorf("revision %s, want %s", got, w.request.InputsHash)
			}
			w.checkTags(second)
		})
	}
}

// checkTags looks whether the tags that a result names are there.
func (w *workplace) checkTags(result request.Result) {
	w.t.Helper()
	for _, tag := range result.Tags() {
		if found, err := registry.Exists(context.Background(), w.access, w.registry.Host+"/os/worker:"+tag); found != registry.Present {
			w.t.Errorf("tag %s: %s %v", tag, found, err)
		}
	}
}

func TestAChangedConfigFetchesNoLayerOfATextFromBase(t *testing.T) {
	w := newWorkplace(t, writesOnBase)
	w.options.KeepCredentials = true
	_, image := w.mustBuild()
	w.otherConfig()
	if _, err := w.build(); err != nil {
		t.Fatal(err)
	}
	for _, request := range w.registry.Requests() {
		for _, layer := range image.Layers {
			if strings.HasPrefix(request, "GET") && strings.Contains(request, layer.Digest.String()) {
				t.Errorf("a layer was fetched: %s", request)
			}
		}
	}
}

func TestTheSameInputsOnAnotherMachineGiveTheSameImage(t *testing.T) {
	w := newWorkplace(t, "FROM configs\nCOPY --from=extensions /packages/a /usr/share/a\nLABEL a=b\n")
	w.options.KeepCredentials = true
	_, first := w.mustBuild()
	w.request.PushSpec = w.registry.Host + "/os/other:worker-1"
	w.options.Storage = w.storage()
	_, second := w.mustBuild()
	if diff := cmp.Diff(string(first.Config), string(second.Config)); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(string(first.Manifest), string(second.Manifest)); diff != "" {
		t.Error(diff)
	}
}

func TestTheBasesLayersStayAsTheyAreInAnotherRegistry(t *testing.T) {
	for name, text := range map[string]string{
		"config only": "", "a text from base": writesOnBase, "a text from configs": strings.Replace(writesOnBase, "base", "configs", 1),
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorkplace(t, text)
			target := registrytest.New(t)
			var bundle []byte
			for _, file := range []string{w.registry.CAFile, target.CAFile} {
				content, err := os.ReadFile(file)
				if err != nil {
					t.Fatal(err)
				}
				bundle = append(bundle, content...)
			}
			w.write(request.FileTrustBundle, bundle)
			w.request.PushSpec = target.Host + "/os/worker:worker-1"
			if _, err := w.build(); err != nil {
				t.Fatal(err)
			}
			base, err := registry.Inspect(context.Background(), w.access, w.request.BaseImage)
			if err != nil {
				t.Fatal(err)
			}
			image, err := registry.Inspect(context.Background(), registry.Access{TrustBundle: target.CAFile, AuthFile: target.NoAuth}, w.request.PushSpec)
			if err != nil {
				t.Fatal(err)
			}
			for i, layer := range base.Layers {
				if image.Layers[i].Digest != layer.Digest {
					t.Errorf("layer %d of the base is %s, in the image %s", i, layer.Digest, image.Layers[i].Digest)
				}
			}
		})
	}
}

func TestALineMoreRunsThatLineOnly(t *testing.T) {
	w := newWorkplace(t, writesOnBase)
	w.options.KeepCredentials = true
	w.mustBuild()
	// A pod has no storage of an earlier one.
	w.options.Storage = w.storage()
	w.request.InputsHash = strings.Repeat("7", 64)
	w.request.Containerfile += "RUN [\"/bin/tool\", \"write\", \"/usr/share/c\", \"d\"]\n"
	result, image := w.mustBuild()
	if !strings.Contains(w.shown, "Cache pulled from remote") {
		t.Error("the first RUN was run again")
	}
	files := w.files(image, 2)
	if files["/usr/share/a"] != "b" || files["/usr/share/c"] != "d" {
		t.Errorf("%v", files)
	}
	if len(result.LayerTags) < 2 {
		t.Errorf("layer tags %v", result.LayerTags)
	}
}

func TestARebuildTakesNoLayerOfAnEarlierBuild(t *testing.T) {
	w := newWorkplace(t, writesOnBase)
	w.options.KeepCredentials = true
	w.mustBuild() // the storage is kept, as on a workstation
	w.request.InputsHash, w.request.Rebuild = strings.Repeat("8", 64), 1
	w.mustBuild()
	if strings.Contains(w.shown, "cache") {
		t.Error("a RUN was not run again")
	}
}

func TestAnotherRecipeGivesOtherKeys(t *testing.T) {
	job := &job{request: &request.Request{}, layer: makeLayerFor(t), mounts: &runMounts{}}
	from := &registry.Image{Digest: "sha256:0"}
	newer := stepConfigs
	newer.recipe++
	if keyOf(job, stepConfigs, from) == keyOf(job, newer, from) {
		t.Error("the key does not depend on the recipe")
	}
	if keyOf(job, stepConfigs, from) != keyOf(job, stepContext, from) {
		t.Error("the config layer on base has two keys")
	}
	if keyOf(job, stepConfigs, from) == keyOf(job, stepConfigs, &registry.Image{Digest: "sha256:1"}) {
		t.Error("the key does not depend on the image below")
	}
}

func makeLayerFor(t *testing.T) *ignition.Layer {
	t.Helper()
	config := parsed(t, json.RawMessage(`{"ignition":{"version":"3.4.0"},"storage":{"files":[{"path":"/etc/motd","contents":{"source":"data:,a"}}]}}`))
	layer, err := makeLayer(&job{request: &request.Request{}, config: config})
	if err != nil {
		t.Fatal(err)
	}
	return layer
}
