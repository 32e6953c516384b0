package ignition

import (
	"archive/tar"
	"bytes"
	"errors"
	"path"
	"strings"
	"testing"

	"github.com/vincent-petithory/dataurl"
)

// FuzzLayer looks for configs that make a layer which is not one: names that
// climb out or lead into /var, other bytes for the same input, a panic.
func FuzzLayer(f *testing.F) {
	for _, seed := range []string{
		`"storage":{"files":[{"path":"/etc/a","mode":420,"contents":{"source":"data:;base64,aGVsbG8="}},{"path":"/opt/b","contents":{"source":"data:,a%20b"}}]}`,
		`"storage":{"files":[{"path":"/etc/motd","append":[{"source":"data:,a"}]}],"directories":[{"path":"/srv"}],"links":[{"path":"/etc/l","target":"/etc/motd","hard":true}]}`,
		`"systemd":{"units":[{"name":"a@b.service","enabled":true,"contents":"[Install]\nWantedBy=%i.target\nAlso=a.socket"},{"name":"a.service","enabled":false},{"name":"c.service","mask":true}]}`,
		`"passwd":{"users":[{"name":"a","uid":7,"gecos":"x","groups":["b"]}],"groups":[{"name":"b","gid":8}]},"kernelArguments":{"shouldExist":["a=\"b c\""]}`,
	} {
		f.Add([]byte(config(seed)), "quiet a=b")
	}
	f.Fuzz(func(t *testing.T, raw []byte, argument string) {
		config, err := Parse(raw)
		if err != nil {
			return
		}
		layer, err := NewLayer(config, system(), []string{argument})
		var refused *RefusedError
		if errors.As(err, &refused) {
			return
		}
		if err != nil {
			t.Fatalf("neither a layer nor refused: %v", err)
		}
		checkNames(t, layer)
		again, err := NewLayer(config, system(), []string{argument})
		if err != nil || !bytes.Equal(layer.Data, again.Data) {
			t.Fatalf("other bytes, %v", err)
		}
		text, err := ForImage(config)
		if err != nil {
			t.Fatal(err)
		}
		same, err := Parse(text)
		if err != nil {
			t.Fatalf("the canonical text does not parse: %v\n%s", err, text)
		}
		if again, err = NewLayer(same, system(), []string{argument}); err != nil || again.DiffID != layer.DiffID {
			t.Fatalf("the canonical text makes another layer, %v", err)
		}
	})
}

func checkNames(t *testing.T, layer *Layer) {
	t.Helper()
	if problems, err := Lint(layer.Data); err != nil || len(problems) > 0 {
		t.Fatalf("lint: %v %v", problems, err)
	}
	for _, line := range readLayer(t, layer).entries {
		name := strings.SplitN(line, " ", 4)[3]
		if line[0] == tar.TypeSymlink {
			name, _, _ = strings.Cut(name, " -> ")
		}
		if name = strings.TrimSuffix(name, "/"); path.Clean("/"+name) != "/"+name {
			t.Fatalf("%q climbs", name)
		}
	}
}

// FuzzSource compares the decoding of data: URLs with the library that Ignition
// itself decodes them with.
func FuzzSource(f *testing.F) {
	for _, seed := range []string{"data:,", "data:,a%20b+c", "data:;base64,aGVsbG8=", "data:text/plain;charset=utf-8,x", `data:text/plain;a="b,c",x`, "data:;base64,aGVs\nbG8="} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, source string) {
		want, err := dataurl.DecodeString(source)
		if err != nil {
			return // Parse refuses it
		}
		got, err := decodeSource(source)
		if err != nil || !bytes.Equal(got, want.Data) {
			t.Errorf("%q: got %q, %v; want %q", source, got, err, want.Data)
		}
	})
}

// FuzzUnit looks for unit texts that make links outside of systemd's folder.
func FuzzUnit(f *testing.F) {
	f.Add("a@b.service", "[Install]\nWantedBy=c.target\nAlias=d@%i.service\nDefaultInstance=e\n")
	f.Add("a.timer", "[Install]\nWantedBy=%p.target %%\nUpheldBy=")
	f.Fuzz(func(t *testing.T, name, text string) {
		if !unitName.MatchString(name) {
			return
		}
		asked, err := (&unitFile{name, unitDir, text}).installation()
		if err != nil {
			return
		}
		for _, link := range asked.links {
			if path.Clean(link.path) != link.path || !isBelow(link.path, unitDir) {
				t.Errorf("a link at %q", link.path)
			}
			if path.Clean(link.target) != link.target || !isBelow(link.target, unitDir) {
				t.Errorf("a link to %q", link.target)
			}
		}
	})
}
