package streams

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestClassify(t *testing.T) {
	for name, tc := range map[string]struct {
		labels map[string]string
		stream string
		role   Role
	}{
		"an OS image":                    {map[string]string{LabelStream: "rhel-9", LabelBootc: "1"}, "rhel-9", RoleOS},
		"bootc may be true":              {map[string]string{LabelStream: "rhel-9", LabelBootc: "TRUE"}, "rhel-9", RoleOS},
		"an extensions image":            {map[string]string{LabelStream: "rhel-9", LabelExtensions: "true"}, "rhel-9", RoleExtensions},
		"both: an OS image":              {map[string]string{LabelStream: "rhel-9", LabelBootc: "1", LabelExtensions: "true"}, "rhel-9", RoleOS},
		"case does not matter":           {map[string]string{LabelStream: "RHEL-9", LabelExtensions: "True"}, "rhel-9", RoleExtensions},
		"no stream":                      {map[string]string{LabelBootc: "1"}, "", ""},
		"an empty stream":                {map[string]string{LabelStream: " ", LabelBootc: "1"}, "", ""},
		"no role":                        {map[string]string{LabelStream: "rhel-9"}, "", ""},
		"a role that is denied":          {map[string]string{LabelStream: "rhel-9", LabelBootc: "false", LabelExtensions: "no"}, "", ""},
		"extensions are not said by a 1": {map[string]string{LabelStream: "rhel-9", LabelExtensions: "1"}, "", ""},
		"no labels":                      {nil, "", ""},
		"anything else is no extensions": {map[string]string{LabelStream: "rhel-9", "io.openshift.release": "5.0"}, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			if stream, role := Classify(tc.labels); stream != tc.stream || role != tc.role {
				t.Errorf("%q as %q, want %q as %q", stream, role, tc.stream, tc.role)
			}
		})
	}
}

func osOf(stream, tag string) Candidate {
	return Candidate{Image: string(set(stream).OSImage), Origin: "tag " + tag, Labels: map[string]string{LabelStream: stream, LabelBootc: "1"}}
}

func extensionsOf(stream, tag string) Candidate {
	return Candidate{Image: string(set(stream).OSExtensionsImage), Origin: "tag " + tag, Labels: map[string]string{LabelStream: stream, LabelExtensions: "true"}}
}

func with(candidate Candidate, label, value string) Candidate {
	candidate.Labels[label] = value
	return candidate
}

func image(candidate Candidate, image string) Candidate {
	candidate.Image = image
	return candidate
}

func TestGroup(t *testing.T) {
	for name, tc := range map[string]struct {
		candidates []Candidate
		streams    []string
		traits     map[string]Traits
		problems   []string
	}{
		"nothing":         {},
		"one stream":      {candidates: []Candidate{osOf("a", "a"), extensionsOf("a", "a-extensions")}, streams: []string{"a"}},
		"several streams": {candidates: []Candidate{osOf("b", "b"), extensionsOf("a", "ae"), osOf("a", "a"), extensionsOf("b", "be")}, streams: []string{"a", "b"}},
		"an OS image without extensions is left out, and the rest works": {
			candidates: []Candidate{osOf("a", "a"), osOf("b", "b"), extensionsOf("b", "be")}, streams: []string{"b"},
			problems: []string{"tag a is its OS image, and no image has the labels"},
		},
		"an extensions image without OS": {candidates: []Candidate{extensionsOf("a", "ae")}, problems: []string{"tag ae is its extensions image, and no image has"}},
		"two OS images: the later one": {
			candidates: []Candidate{image(osOf("a", "first"), "registry.example.com/os/other"+digest), osOf("a", "second"), extensionsOf("a", "ae")},
			streams:    []string{"a"}, problems: []string{"tag first and tag second are both its OS image"},
		},
		"the same image twice is none too many": {candidates: []Candidate{osOf("a", "first"), osOf("a", "second"), extensionsOf("a", "ae")}, streams: []string{"a"}},
		"images of nothing are passed over": {
			candidates: []Candidate{{Image: "x", Origin: "tag x"}, osOf("a", "a"), extensionsOf("a", "ae")}, streams: []string{"a"},
		},
		"a name that the API refuses": {
			candidates: []Candidate{osOf("a_b", "x"), osOf("a", "a"), extensionsOf("a", "ae")}, streams: []string{"a"},
			problems: []string{"cannot be the name of a stream"},
		},
		"an image by tag": {
			candidates: []Candidate{image(osOf("a", "a"), "registry.example.com/os/a:1"), osOf("b", "b"), extensionsOf("b", "be")}, streams: []string{"b"},
			problems: []string{"has no digest"},
		},
		"what the OS image can do": {
			candidates: []Candidate{with(with(osOf("a", "a"), LabelRuntimes, "runc, CRUN,"), LabelDeprecated, "yes"), with(extensionsOf("a", "ae"), LabelRuntimes, "x")},
			streams:    []string{"a"}, traits: map[string]Traits{"a": {Runtimes: []string{"crun", "runc"}, Deprecated: true}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := Group("source", tc.candidates)
			if diff := cmp.Diff(sets(tc.streams...), got.Streams); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff(tc.traits, got.Traits); diff != "" {
				t.Error(diff)
			}
			checkProblems(t, got.Problems, tc.problems...)
		})
	}
}

func checkProblems(t *testing.T, got []Problem, want ...string) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("problems %+v, want %d", got, len(want))
	}
	for i := range want {
		if !strings.Contains(got[i].Reason, want[i]) {
			t.Errorf("problem %q does not say %q", got[i].Reason, want[i])
		}
	}
}

func TestKeepKnown(t *testing.T) {
	imagesOf := func(names ...string) (images []string) {
		for _, name := range names {
			images = append(images, string(set(name).OSImage), string(set(name).OSExtensionsImage))
		}
		return images
	}
	for name, tc := range map[string]struct {
		found, previous []string
		gaps            Gaps
		want            []string
	}{
		"a complete result is as it is":                        {[]string{"a"}, []string{"a", "b"}, Gaps{Named: imagesOf("a", "b")}, []string{"a"}},
		"of the same payload, not read: kept":                  {[]string{"a"}, []string{"a", "b"}, Gaps{Named: imagesOf("a", "b"), Unread: imagesOf("b")[:1]}, []string{"a", "b"}},
		"not named any more: gone, though another is not read": {[]string{"a"}, []string{"a", "b", "c"}, Gaps{Named: imagesOf("a", "c"), Unread: imagesOf("c")}, []string{"a", "c"}},
		"read, and no stream any more: gone":                   {[]string{"a"}, []string{"a", "b", "c"}, Gaps{Named: imagesOf("a", "b", "c"), Unread: imagesOf("c")}, []string{"a", "c"}},
		"another payload's images are not kept":                {[]string{"a"}, []string{"a", "b"}, Gaps{Named: append(imagesOf("a"), "registry.example.com/os/new-b"+digest), Unread: []string{"registry.example.com/os/new-b" + digest}}, []string{"a"}},
		"a payload that is not read takes nothing away":        {nil, []string{"a", "b"}, Gaps{PayloadUnread: true}, []string{"a", "b"}},
		"neither does a broken one":                            {nil, []string{"a", "b"}, Gaps{PayloadBroken: true}, []string{"a", "b"}},
		"what was found counts":                                {[]string{"b"}, []string{"a", "b"}, Gaps{PayloadUnread: true}, []string{"a", "b"}},
	} {
		t.Run(name, func(t *testing.T) {
			known := map[string]Traits{"b": {Deprecated: true}}
			got := KeepKnown(Merge(Source{Streams: sets(tc.found...)}), sets(tc.previous...), known, tc.gaps)
			if diff := cmp.Diff(sets(tc.want...), got.Streams); diff != "" {
				t.Error(diff)
			}
			if kept := len(tc.want) - len(tc.found); len(got.Problems) != kept {
				t.Errorf("problems %v, want one for each of %d kept", got.Problems, kept)
			}
		})
	}
}
