package request

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestTagsThatABuildReliesOn(t *testing.T) {
	key, layer := strings.Repeat("a1", 32), "layer-"+strings.Repeat("b2", 16)
	for name, test := range map[string]struct {
		result Result
		want   []string
	}{
		"steps without a key have no tag": {
			result: Result{Steps: []Step{{Name: "base"}, {Name: "configs", Key: key}}, LayerTags: []string{layer}},
			want:   []string{"step-" + key, layer},
		},
		"the names of an image's files have one, after a failure too": {
			result: Result{Skeleton: key, Failure: &Failure{Class: Config}},
			want:   []string{"step-" + key},
		},
		"so has the copy of the agent's image": {
			result: Result{Agent: key},
			want:   []string{"step-" + key},
		},
		"an image found by its inputs relies on nothing": {
			result: Result{Steps: []Step{{Name: StepInputs, Key: key, Reused: true}}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, test.result.Tags()); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestAResultNamesOnlyTagsThatABuildWrites(t *testing.T) {
	digest := `"digest":"sha256:` + strings.Repeat("0", 64) + `"`
	for name, test := range map[string]struct{ message, err string }{
		"the tag of an image":        {`{` + digest + `,"layerTags":["worker-1"]}`, `"worker-1"`},
		"a skeleton that is no hash": {`{` + digest + `,"skeleton":"latest"}`, `"latest"`},
		"an agent that is no hash":   {`{` + digest + `,"agent":"latest"}`, `"latest"`},
		"a key that is no hash":      {`{` + digest + `,"steps":[{"name":"user","key":"latest","duration":"1s"}]}`, `"latest"`},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := DecodeResult([]byte(test.message)); err == nil || !strings.Contains(err.Error(), test.err) {
				t.Errorf("got %v, want an error with %s", err, test.err)
			}
		})
	}
}
