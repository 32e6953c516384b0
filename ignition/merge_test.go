package ignition

import (
	"encoding/json"
	"testing"

	"github.com/coreos/ignition/v2/config/v3_6/types"
	"github.com/google/go-cmp/cmp"
)

// parse is Parse for texts that a test knows to be valid; the version is added.
func parse(t *testing.T, sections string) types.Config {
	t.Helper()
	config, err := Parse([]byte(`{"ignition":{"version":"3.6.0"}` + sections + `}`))
	if err != nil {
		t.Fatal(err)
	}
	return config
}

func TestMergeFollowsIgnitionsRules(t *testing.T) {
	for name, tc := range map[string]struct{ parent, child, want string }{
		"files of different paths are both kept, the parent's first": {
			parent: `,"storage":{"files":[{"path":"/etc/b"}]}`,
			child:  `,"storage":{"files":[{"path":"/etc/a"}]}`,
			want:   `,"storage":{"files":[{"path":"/etc/b"},{"path":"/etc/a"}]}`,
		},
		"a file of the same path takes the child's fields and keeps the others": {
			parent: `,"storage":{"files":[{"path":"/etc/a","mode":420,"contents":{"source":"data:,old"}}]}`,
			child:  `,"storage":{"files":[{"path":"/etc/a","contents":{"source":"data:,new"}}]}`,
			want:   `,"storage":{"files":[{"path":"/etc/a","mode":420,"contents":{"source":"data:,new"}}]}`,
		},
		"a link in the child takes the place of the parent's file": {
			parent: `,"storage":{"files":[{"path":"/etc/a","contents":{"source":"data:,old"}}]}`,
			child:  `,"storage":{"links":[{"path":"/etc/a","target":"/etc/b"}]}`,
			want:   `,"storage":{"links":[{"path":"/etc/a","target":"/etc/b"}]}`,
		},
		"a unit keeps its drop-ins and takes the child's enablement": {
			parent: `,"systemd":{"units":[{"name":"a.service","enabled":true,"dropins":[{"name":"1.conf","contents":"[Service]"}]}]}`,
			child:  `,"systemd":{"units":[{"name":"a.service","enabled":false,"dropins":[{"name":"2.conf","contents":"[Unit]"}]}]}`,
			want: `,"systemd":{"units":[{"name":"a.service","enabled":false,"dropins":[` +
				`{"name":"1.conf","contents":"[Service]"},{"name":"2.conf","contents":"[Unit]"}]}]}`,
		},
		"SSH keys of a user are joined": {
			parent: `,"passwd":{"users":[{"name":"core","sshAuthorizedKeys":["one"]}]}`,
			child:  `,"passwd":{"users":[{"name":"core","sshAuthorizedKeys":["two"]}]}`,
			want:   `,"passwd":{"users":[{"name":"core","sshAuthorizedKeys":["one","two"]}]}`,
		},
		"appended fragments of a file add up": {
			parent: `,"storage":{"files":[{"path":"/etc/a","append":[{"source":"data:,1"}]}]}`,
			child:  `,"storage":{"files":[{"path":"/etc/a","append":[{"source":"data:,2"}]}]}`,
			want:   `,"storage":{"files":[{"path":"/etc/a","append":[{"source":"data:,1"},{"source":"data:,2"}]}]}`,
		},
		"an empty child changes nothing":       {parent: `,"storage":{"files":[{"path":"/a"}]}`, want: `,"storage":{"files":[{"path":"/a"}]}`},
		"an empty parent gives the child back": {child: `,"storage":{"files":[{"path":"/a"}]}`, want: `,"storage":{"files":[{"path":"/a"}]}`},
	} {
		t.Run(name, func(t *testing.T) {
			got := Merge(parse(t, tc.parent), parse(t, tc.child))
			if diff := cmp.Diff(asJSON(t, parse(t, tc.want)), asJSON(t, got)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestMergeWithAnAbsentConfigKeepsTheVersion(t *testing.T) {
	absent, err := Parse(nil)
	if err != nil {
		t.Fatal(err)
	}
	if got := Merge(parse(t, ""), absent).Ignition.Version; got != "3.6.0" {
		t.Errorf("version = %q, want 3.6.0", got)
	}
}

func TestMergeLeavesItsArgumentsAsTheyWere(t *testing.T) {
	parent := parse(t, `,"storage":{"files":[{"path":"/a","mode":420}]}`)
	child := parse(t, `,"storage":{"files":[{"path":"/a","mode":384},{"path":"/b"}]}`)
	before := asJSON(t, parent) + asJSON(t, child)
	Merge(parent, child)
	if diff := cmp.Diff(before, asJSON(t, parent)+asJSON(t, child)); diff != "" {
		t.Error(diff)
	}
}

func asJSON(t *testing.T, config types.Config) string {
	t.Helper()
	raw, err := json.Marshal(config)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}
