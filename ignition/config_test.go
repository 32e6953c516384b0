package ignition

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/coreos/ignition/v2/config/v3_6/types"
	"github.com/google/go-cmp/cmp"
)

func TestParseAcceptsEveryStableVersionAndTranslatesItUp(t *testing.T) {
	for minor := range 7 {
		version := fmt.Sprintf("3.%d.0", minor)
		t.Run(version, func(t *testing.T) {
			config, err := Parse([]byte(`{"ignition":{"version":"` + version + `"},"storage":{"files":[{"path":"/etc/motd","mode":420}]}}`))
			if err != nil {
				t.Fatal(err)
			}
			if got := config.Ignition.Version; got != "3.6.0" {
				t.Errorf("version after parsing = %q, want 3.6.0", got)
			}
			if len(config.Storage.Files) != 1 || config.Storage.Files[0].Path != "/etc/motd" || *config.Storage.Files[0].Mode != 420 {
				t.Errorf("files = %+v", config.Storage.Files)
			}
		})
	}
}

func TestParseTakesAnAbsentConfigAsEmpty(t *testing.T) {
	want := types.Config{Ignition: types.Ignition{Version: "3.6.0"}}
	for name, raw := range map[string]string{"no text": "", "white space": " \n\t", "null": "null", "null in white space": " null\n"} {
		t.Run(name, func(t *testing.T) {
			config, err := Parse([]byte(raw))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, config); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestParseErrorsNameWhatIsWrongAndWhere(t *testing.T) {
	for name, tc := range map[string]struct {
		raw  string
		want []string
	}{
		"a syntax error has its line": {
			raw:  "{\n \"ignition\": {\"version\": \"3.4.0\"},\n nonsense\n}",
			want: []string{"line 3", "invalid character"},
		},
		"a value of the wrong type has its line": {
			raw:  "{\"ignition\": {\"version\": \"3.4.0\"},\n\"storage\": {\"files\": [{\"path\": 7}]}}",
			want: []string{"line 2", "cannot unmarshal number"},
		},
		"a relative path has its place": {
			raw:  "{\"ignition\": {\"version\": \"3.4.0\"},\n\"storage\": {\"files\": [{\"path\": \"etc/motd\"}]}}",
			want: []string{"$.storage.files.0.path", "line 2", "path not absolute"},
		},
		"every fatal finding is named": {
			raw:  `{"ignition": {"version": "3.4.0"}, "storage": {"files": [{"path": "a"}, {"path": "b"}]}}`,
			want: []string{"files.0.path", "files.1.path"},
		},
		"two files of one path are refused": {
			raw:  `{"ignition": {"version": "3.4.0"}, "storage": {"files": [{"path": "/a"}, {"path": "/a"}]}}`,
			want: []string{"files.1", "duplicate"},
		},
		"a missing version":            {raw: `{"storage": {}}`, want: []string{"ignition.version is missing", "3.6.0"}},
		"a version that is not one":    {raw: `{"ignition": {"version": "three"}}`, want: []string{`"three"`, "3.6.0"}},
		"spec 2 is named as such":      {raw: `{"ignition": {"version": "2.2.0"}}`, want: []string{`"2.2.0"`, "3.0.0 … 3.6.0"}},
		"an experimental spec":         {raw: `{"ignition": {"version": "3.7.0-experimental"}}`, want: []string{`"3.7.0-experimental"`}},
		"a JSON value of another kind": {raw: `[]`, want: []string{"cannot unmarshal array"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Parse([]byte(tc.raw))
			if err == nil {
				t.Fatal("no error")
			}
			for _, want := range tc.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error %q does not say %q", err, want)
				}
			}
		})
	}
}

func TestUnknownKeysAreFoundInEverySpec(t *testing.T) {
	for minor := range 7 {
		raw := fmt.Sprintf(`{"ignition":{"version":"3.%d.0"},"strage":{},"storage":{"files":[{"path":"/etc/a","contnts":{}}]}}`, minor)
		got := UnknownKeys([]byte(raw))
		slices.Sort(got)
		if diff := cmp.Diff([]string{"storage.files.0.contnts", "strage"}, got); diff != "" {
			t.Errorf("3.%d.0: %s", minor, diff)
		}
		if _, err := Parse([]byte(raw)); err != nil {
			t.Errorf("3.%d.0: they are an error: %v", minor, err)
		}
	}
	for name, raw := range map[string]string{
		"all keys known": `{"ignition":{"version":"3.4.0"},"storage":{"files":[{"path":"/etc/a"}]}}`, "no text": "", "no JSON": "{", "a later spec": `{"ignition":{"version":"3.99.0"},"new":{}}`,
	} {
		if got := UnknownKeys([]byte(raw)); len(got) != 0 {
			t.Errorf("%s: %v", name, got)
		}
	}
}
