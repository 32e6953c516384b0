package streams

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestResolveDefault(t *testing.T) {
	for name, tc := range map[string]struct {
		streams    []string
		candidates Candidates
		want       Default
	}{
		"spec comes first": {
			[]string{"a", "b", "c", "d"}, Candidates{Spec: "b", Requested: "a", Status: "c", Version: "a", Option: "d"}, Default{Name: "b", Origin: FromSpec},
		},
		"then what the control plane asks for": {[]string{"a", "b", "c"}, Candidates{Requested: "b", Status: "c"}, Default{Name: "b", Origin: FromRequest}},
		"then the previous status":             {[]string{"a", "b", "c"}, Candidates{Status: "c", Version: "b", Option: "b"}, Default{Name: "c", Origin: FromStatus}},
		"a status that is gone is passed by":   {[]string{"a", "b"}, Candidates{Status: "c", Option: "b"}, Default{Name: "b", Origin: FromOption}},
		"then the only stream":                 {[]string{"a"}, Candidates{Version: "b", Option: "b"}, Default{Name: "a", Origin: FromOnlyStream}},
		"then the installed version's":         {[]string{"a", "b"}, Candidates{Version: "b", Option: "a"}, Default{Name: "b", Origin: FromVersion}},
		"a version's that does not exist":      {[]string{"a", "b"}, Candidates{Version: "x", Option: "b"}, Default{Name: "b", Origin: FromOption}},
		"then the option":                      {[]string{"a", "b"}, Candidates{Option: "b"}, Default{Name: "b", Origin: FromOption}},
		"an option that does not exist":        {[]string{"a", "b"}, Candidates{Option: "x"}, Default{Name: "a", Origin: FromFirstName}},
		"else the first by name":               {[]string{"a", "b"}, Candidates{}, Default{Name: "a", Origin: FromFirstName}},
		"a spec that is gone is not replaced":  {[]string{"a", "b"}, Candidates{Spec: "x", Status: "b", Option: "b"}, Default{Name: "a", Origin: FromFirstName, Gone: "x"}},
		"not even by the only stream":          {[]string{"a"}, Candidates{Spec: "x"}, Default{Name: "a", Origin: FromFirstName, Gone: "x"}},

		"of a partial result the only stream is not chosen":     {[]string{"a"}, Candidates{IsPartial: true}, Default{}},
		"nor the first by name":                                 {[]string{"a", "b"}, Candidates{IsPartial: true}, Default{}},
		"but one that is named, as no other stream changes it":  {[]string{"a", "b"}, Candidates{IsPartial: true, Version: "b"}, Default{Name: "b", Origin: FromVersion}},
		"or the previous one, so that a registry moves nothing": {[]string{"a", "b"}, Candidates{IsPartial: true, Status: "b"}, Default{Name: "b", Origin: FromStatus}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, ResolveDefault(sets(tc.streams...), tc.candidates)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// The cases of a cluster's life: what it was, what it has, what it gets.
func TestTheDefaultOfClusters(t *testing.T) {
	both, okd := []string{"rhel-10", "rhel-9"}, []string{"centos-10", "centos-9"}
	upgraded := []HistoryEntry{{"5.0.1", true}, {"4.21.3", true}, {"4.19.0", true}}
	for name, tc := range map[string]struct {
		streams      []string
		history      []HistoryEntry
		desired      string
		spec, status string
		want         Default
	}{
		"upgraded from 4.x, without an object before": {streams: both, history: upgraded, desired: "5.0.1", want: Default{Name: "rhel-9", Origin: FromVersion}},
		"an object with spec before":                  {streams: both, history: upgraded, desired: "5.0.1", spec: "rhel-10", want: Default{Name: "rhel-10", Origin: FromSpec}},
		"an object with an empty spec before":         {streams: both, history: upgraded, desired: "5.0.1", status: "rhel-10", want: Default{Name: "rhel-10", Origin: FromStatus}},
		"new, 5.0": {
			streams: both, history: []HistoryEntry{{"5.0.0", true}}, desired: "5.0.0", want: Default{Name: "rhel-10", Origin: FromVersion},
		},
		"new, 5.0, still being installed": {
			streams: both, history: []HistoryEntry{{"5.0.0", false}}, desired: "5.0.0", want: Default{Name: "rhel-10", Origin: FromVersion},
		},
		"new, 5.0, with the installer's manifest": {streams: both, desired: "5.0.0", spec: "rhel-9", want: Default{Name: "rhel-9", Origin: FromSpec}},
		"new, 4.x":                          {streams: both, desired: "4.22.0", want: Default{Name: "rhel-9", Origin: FromVersion}},
		"the first update not completed":    {streams: both, history: []HistoryEntry{{"5.0.0", false}, {"4.21.0", true}}, desired: "5.0.0", want: Default{Name: "rhel-9", Origin: FromVersion}},
		"OKD":                               {streams: okd, desired: "5.0.0-okd-scos.1", want: Default{Name: "centos-10", Origin: FromVersion}},
		"a payload with one stream":         {streams: []string{"rhel-9"}, desired: "5.0.0", want: Default{Name: "rhel-9", Origin: FromOnlyStream}},
		"the chosen default has vanished":   {streams: []string{"rhel-10"}, history: upgraded, desired: "6.0.0", spec: "rhel-9", want: Default{Name: "rhel-10", Origin: FromFirstName, Gone: "rhel-9"}},
		"no ClusterVersion":                 {streams: both, want: Default{Name: "rhel-10", Origin: FromFirstName}},
		"a version that nobody can read":    {streams: both, desired: "next", want: Default{Name: "rhel-10", Origin: FromFirstName}},
		"a nightly of 5.0 is of 5.0":        {streams: both, desired: "5.0.0-0.nightly-2026-05-01", want: Default{Name: "rhel-10", Origin: FromVersion}},
		"a pruned history, oldest 4.x kept": {streams: both, history: []HistoryEntry{{"5.1.0", true}, {"4.20.9", true}}, desired: "5.1.0", want: Default{Name: "rhel-9", Origin: FromVersion}},
	} {
		t.Run(name, func(t *testing.T) {
			candidates := Candidates{Spec: tc.spec, Status: tc.status, Version: BuiltinDefault(InstallVersion(tc.history, tc.desired))}
			if diff := cmp.Diff(tc.want, ResolveDefault(sets(tc.streams...), candidates)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestInstallVersion(t *testing.T) {
	for name, tc := range map[string]struct {
		history []HistoryEntry
		want    string
	}{
		"no history":                      {nil, "desired"},
		"none completed":                  {[]HistoryEntry{{"2", false}, {"1", false}}, "desired"},
		"the earliest that was completed": {[]HistoryEntry{{"3", false}, {"2", true}, {"1", true}}, "1"},
		"an entry without a version":      {[]HistoryEntry{{"2", true}, {"", true}}, "2"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := InstallVersion(tc.history, "desired"); got != tc.want {
				t.Errorf("%q, want %q", got, tc.want)
			}
		})
	}
}

func TestBuiltinDefault(t *testing.T) {
	for version, want := range map[string]string{
		"4.1.0": "rhel-9", "4.23.0": "rhel-9", "5.0.0": "rhel-10", "6.1.2": "rhel-10", "5.0.0-0.nightly": "rhel-10", "v4.20.1": "rhel-9",
		"4.20.0-okd-scos.3": "centos-10", "": "", "five": "", "5": "",
	} {
		if got := BuiltinDefault(version); got != want {
			t.Errorf("version %q: %q, want %q", version, got, want)
		}
	}
}

func TestNextMinor(t *testing.T) {
	for name, tc := range map[string]struct {
		current string
		offered []string
		want    string
	}{
		"nothing offered":                {"4.21.3", nil, ""},
		"patches only":                   {"4.21.3", []string{"4.21.4", "4.21.9"}, ""},
		"the last of the next minor":     {"4.21.3", []string{"4.22.1", "4.21.9", "4.22.10", "4.22.2"}, "4.22.10"},
		"the next major":                 {"4.22.3", []string{"5.0.0", "4.22.4"}, "5.0.0"},
		"an older one":                   {"4.21.3", []string{"4.20.9"}, ""},
		"what cannot be read is no next": {"4.21.3", []string{"next", "4.22.0-rc.1"}, "4.22.0-rc.1"},
		"a version that cannot be read":  {"", []string{"4.22.0"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			if got := NextMinor(tc.current, tc.offered); got != tc.want {
				t.Errorf("%q, want %q", got, tc.want)
			}
		})
	}
}
