package baseimage

import (
	"archive/tar"
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/imagemode/imagemode/ignition"
)

func TestNames(t *testing.T) {
	files := []string{"/a", "/a b", "/a-b", "/a/b", "/a/b/c", "/a/bc", "/b", "/usr/lib/x.so", "/ü"}
	slices.Sort(files)
	var list names
	for i, name := range files {
		list = list.appendName(name, &entry{Found: ignition.Found{Mode: int64(0o600 + i), UID: i, GID: 2 * i}})
	}
	for i, name := range files {
		found := list.find(name)
		if found == nil {
			t.Fatalf("%s is not found", name)
		}
		want := ignition.Found{Kind: tar.TypeReg, Mode: int64(0o600 + i), UID: i, GID: 2 * i}
		if diff := cmp.Diff(want, found.Found); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
	for _, name := range []string{"", "/", "/aa", "/a/", "/a/b/", "/a/b/c/d", "/z", "/usr/lib/x", "a"} {
		if found := list.find(name); found != nil {
			t.Errorf("%q is found: %v", name, found)
		}
	}
	for directory, want := range map[string][]string{
		"/": {"a", "a b", "a-b", "b", "ü"}, "/a": {"b", "bc"}, "/a/b": {"c"}, "/a/bc": nil, "/usr": nil, "/usr/lib": {"x.so"}, "/zz": nil,
	} {
		if diff := cmp.Diff(want, list.in(directory)); diff != "" {
			t.Errorf("%s: %s", directory, diff)
		}
	}
	if names(nil).find("/a") != nil || names(nil).in("/") != nil {
		t.Error("an empty list has names")
	}
}

func FuzzNames(f *testing.F) {
	f.Add([]byte("/a\x00644 0 0\n/b\x00755 1 2\n"), "/a")
	f.Fuzz(func(t *testing.T, list []byte, name string) {
		// A list from a registry may be anything.
		if found := names(list).find(name); found != nil && found.Kind != tar.TypeReg {
			t.Error(fmt.Sprint(found))
		}
		names(list).in(name)
	})
}
