package streams

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"pgregory.net/rapid"
)

const digest = "@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

// set is a stream whose images carry its name.
func set(name string) mcfgv1.OSImageStreamSet {
	return mcfgv1.OSImageStreamSet{
		Name:              name,
		OSImage:           mcfgv1.ImageDigestFormat("registry.example.com/os/" + name + digest),
		OSExtensionsImage: mcfgv1.ImageDigestFormat("registry.example.com/os/" + name + "-extensions" + digest),
	}
}

func sets(names ...string) []mcfgv1.OSImageStreamSet {
	var list []mcfgv1.OSImageStreamSet
	for _, name := range names {
		list = append(list, set(name))
	}
	return list
}

func text(stream mcfgv1.OSImageStreamSet) string {
	return fmt.Sprintf("osImage: %s\nosExtensionsImage: %s\n", stream.OSImage, stream.OSExtensionsImage)
}

func TestConfigMapEntries(t *testing.T) {
	for name, tc := range map[string]struct {
		key, value string
		want       mcfgv1.OSImageStreamSet
		problem    string
	}{
		"a complete entry": {key: "debian-12", value: text(set("debian-12")), want: set("debian-12")},
		"without extensions the OS image stands in": {
			key: "debian-12", value: "osImage: 10.89.0.1:5000/os/debian-12" + digest,
			want: mcfgv1.OSImageStreamSet{
				Name: "debian-12", OSImage: "10.89.0.1:5000/os/debian-12" + digest, OSExtensionsImage: "10.89.0.1:5000/os/debian-12" + digest,
			},
		},
		"no OS image":             {key: "a", value: "osExtensionsImage: registry.example.com/e" + digest, problem: "osImage is missing"},
		"an image by tag":         {key: "a", value: "osImage: registry.example.com/os:12", problem: "has no digest"},
		"a digest that is short":  {key: "a", value: "osImage: registry.example.com/os@sha256:abc", problem: "64 hex"},
		"two namespaces":          {key: "a", value: "osImage: registry.example.com/a/b/c" + digest, problem: "one namespace at most"},
		"a scheme":                {key: "a", value: "osImage: https://registry.example.com/os" + digest, problem: "not of the form"},
		"an extensions image tag": {key: "a", value: "osImage: registry.example.com/os" + digest + "\nosExtensionsImage: registry.example.com/e:1", problem: "osExtensionsImage"},
		"a misspelt field":        {key: "a", value: "osimages: x", problem: "osimages"},
		"a text":                  {key: "a", value: "registry.example.com/os" + digest, problem: "not YAML with osImage"},
		"broken YAML":             {key: "a", value: "osImage: [", problem: "not YAML"},
		"nothing":                 {key: "a", value: "", problem: "osImage is missing"},
		"a huge entry":            {key: "a", value: "osImage: " + strings.Repeat("x", 5000), problem: "are read at most"},
		"a name that is none":     {key: "Debian_12", value: text(set("debian-12")), problem: "cannot be the name of a stream"},
	} {
		t.Run(name, func(t *testing.T) {
			source := FromConfigMap("ConfigMap ns/imagemode-streams", map[string]string{tc.key: tc.value, "good": text(set("good"))})
			want := []mcfgv1.OSImageStreamSet{set("good")}
			if tc.problem == "" {
				want = []mcfgv1.OSImageStreamSet{tc.want, set("good")}
				if len(source.Problems) > 0 {
					t.Errorf("problems: %v", source.Problems)
				}
			} else if len(source.Problems) != 1 || source.Problems[0].Stream != tc.key || !strings.Contains(source.Problems[0].Reason, tc.problem) {
				t.Errorf("problems = %+v, want one of %s that says %q", source.Problems, tc.key, tc.problem)
			}
			if diff := cmp.Diff(Merge(Source{Streams: want}).Streams, Merge(source).Streams); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestLaterSourcesWinPerStream(t *testing.T) {
	newer := set("a")
	newer.OSImage = "registry.example.com/newer" + digest
	merged := Merge(
		Source{Name: "first", Streams: sets("c", "a"), Problems: []Problem{{Source: "first", Reason: "one"}}},
		Source{Name: "second", Streams: []mcfgv1.OSImageStreamSet{newer, set("b")}, Problems: []Problem{{Source: "second", Reason: "two"}}},
	)
	if diff := cmp.Diff([]mcfgv1.OSImageStreamSet{newer, set("b"), set("c")}, merged.Streams); diff != "" {
		t.Error(diff)
	}
	if len(merged.Problems) != 2 {
		t.Errorf("problems = %v", merged.Problems)
	}
}

func TestTheHundredAndFirstStreamIsLeftOutByName(t *testing.T) {
	var many []mcfgv1.OSImageStreamSet
	for i := range 101 {
		many = append(many, set(fmt.Sprintf("s-%03d", i)))
	}
	merged := Merge(Source{Name: "ConfigMap", Streams: many})
	if len(merged.Streams) != 100 || len(merged.Problems) != 1 || merged.Problems[0].Stream != "s-100" {
		t.Errorf("%d streams, problems %v", len(merged.Streams), merged.Problems)
	}
}

func TestMergeDoesNotDependOnTheOrderOfASource(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		names := rapid.SliceOfNDistinct(rapid.StringMatching(`[a-z]{1,3}`), 0, 20, rapid.ID).Draw(t, "names")
		shuffled := rapid.Permutation(names).Draw(t, "shuffled")
		one := Merge(Source{Streams: sets(names...)})
		other := Merge(Source{Streams: sets(shuffled...)})
		if diff := cmp.Diff(one, other); diff != "" {
			t.Fatal(diff)
		}
	})
}

func TestResolve(t *testing.T) {
	object := func(spec, status string, names ...string) *mcfgv1.OSImageStream {
		return &mcfgv1.OSImageStream{
			Spec:   mcfgv1.OSImageStreamSpec{DefaultStream: spec},
			Status: mcfgv1.OSImageStreamStatus{DefaultStream: status, AvailableStreams: sets(names...)},
		}
	}
	for name, tc := range map[string]struct {
		object  *mcfgv1.OSImageStream
		request Request
		want    Resolution
		err     error
	}{
		"a pool's own stream":                    {object("a", "a", "a", "b", "c"), Request{Explicit: "b", Worker: "c"}, Resolution{set("b"), FromPool}, nil},
		"a custom pool takes the worker's":       {object("a", "a", "a", "c"), Request{Worker: "c"}, Resolution{set("c"), FromWorker}, nil},
		"else the default":                       {object("a", "a", "a", "b"), Request{}, Resolution{set("a"), FromDefault}, nil},
		"no object":                              {nil, Request{Explicit: "a"}, Resolution{}, NoStreamsError{}},
		"no status yet":                          {object("a", ""), Request{}, Resolution{}, NoStreamsError{}},
		"an unknown stream is not the default":   {object("a", "a", "a"), Request{Explicit: "x"}, Resolution{}, &UnknownStreamError{"x", FromPool, []string{"a"}}},
		"the worker's unknown stream is neither": {object("a", "a", "a"), Request{Worker: "x"}, Resolution{}, &UnknownStreamError{"x", FromWorker, []string{"a"}}},
		"a default that is gone is not replaced": {object("x", "a", "a", "b"), Request{}, Resolution{}, &DefaultGoneError{"x", []string{"a", "b"}}},
		"nor does it harm an explicit choice":    {object("x", "a", "a", "b"), Request{Explicit: "b"}, Resolution{set("b"), FromPool}, nil},
		"an object without spec has its status":  {object("", "b", "a", "b"), Request{}, Resolution{set("b"), FromDefault}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Resolve(tc.object, tc.request)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff(tc.err, err); diff != "" {
				t.Errorf("error: %s", diff)
			}
		})
	}
}

func TestOfImage(t *testing.T) {
	other := set("b")
	other.OSImage = mcfgv1.ImageDigestFormat("registry.example.com/os/b@sha256:" + strings.Repeat("1", 64))
	object := &mcfgv1.OSImageStream{Status: mcfgv1.OSImageStreamStatus{AvailableStreams: []Set{set("a"), other}}}
	for image, want := range map[string]string{
		"mirror.example.com/x@sha256:" + strings.Repeat("1", 64):   "b",
		string(set("a").OSImage):                                   "a",
		"registry.example.com/x@sha256:" + strings.Repeat("2", 64): "",
		"registry.example.com/os/a:tag":                            "",
	} {
		if got := OfImage(object, image); got != want {
			t.Errorf("%s: %q, want %q", image, got, want)
		}
	}
	if OfImage(nil, string(other.OSImage)) != "" {
		t.Error("no object has a stream")
	}
}

func TestResolveErrorsSayWhatToDo(t *testing.T) {
	for err, want := range map[error]string{
		NoStreamsError{}: "imagemode-streams",
		&UnknownStreamError{"x", FromPool, []string{"a", "b"}}: "a, b",
		&DefaultGoneError{"x", []string{"a", "b"}}:             "spec.defaultStream",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q does not say %q", err, want)
		}
	}
	if errors.Is(&UnknownStreamError{}, NoStreamsError{}) {
		t.Error("two kinds of error are taken for one")
	}
}

func TestProblemsAnnotationIsBounded(t *testing.T) {
	var problems []Problem
	for range 500 {
		problems = append(problems, Problem{Source: strings.Repeat("ü", 1000), Stream: strings.Repeat("s", 253), Reason: strings.Repeat("r", 1000)})
	}
	encoded := EncodeProblems(problems)
	if len(encoded) > 20_000 {
		t.Errorf("%d bytes", len(encoded))
	}
	var decoded []Problem
	if err := json.Unmarshal([]byte(encoded), &decoded); err != nil {
		t.Fatal(err)
	}
	if len(decoded) != 21 || decoded[20].Reason != "and 480 more" {
		t.Errorf("%d problems, the last %+v", len(decoded), decoded[len(decoded)-1])
	}
	if EncodeProblems(nil) != "" {
		t.Error("no problems should be the empty text")
	}
}
