package binaries

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestVersionFlagsSplitTheVersion(t *testing.T) {
	flags := versionFlags("v1.37.2")
	for _, want := range []string{
		"-X=k8s.io/component-base/version.gitVersion=v1.37.2",
		"-X=k8s.io/component-base/version.gitMajor=1",
		"-X=k8s.io/client-go/pkg/version.gitMinor=37",
	} {
		if !strings.Contains(flags, want) {
			t.Errorf("%s is missing from %s", want, flags)
		}
	}
}

func TestKeyChangesWithEverythingThatGoesIn(t *testing.T) {
	dir := t.TempDir()
	source := filepath.Join(dir, "main.go")
	if err := os.WriteFile(source, []byte("package main"), 0o600); err != nil {
		t.Fatal(err)
	}
	base := target{name: "x", path: "./x", sources: []string{"main.go"}}
	key := func(t *testing.T, target target, common string) string {
		t.Helper()
		key, err := target.key(dir, common)
		if err != nil {
			t.Fatal(err)
		}
		return key
	}
	first := key(t, base, "go1")
	if key(t, base, "go1") != first {
		t.Error("the key of the same inputs differs")
	}
	tagged, withCgo, linked := base, base, base
	tagged.tags, withCgo.cgo, linked.ldflags = []string{"seccomp"}, true, "-X=a.b=c"
	for sentence, other := range map[string]string{
		"other versions or compiler": key(t, base, "go2"),
		"another tag":                key(t, tagged, "go1"),
		"cgo":                        key(t, withCgo, "go1"),
		"another link flag":          key(t, linked, "go1"),
	} {
		if other == first {
			t.Errorf("%s: the key is the same", sentence)
		}
	}
	if err := os.WriteFile(source, []byte("package main // changed"), 0o600); err != nil {
		t.Fatal(err)
	}
	if key(t, base, "go1") == first {
		t.Error("another source: the key is the same")
	}
}

func TestKubernetesVersionComesFromTheModule(t *testing.T) {
	version, err := kubernetesVersion("..")
	if err != nil || !strings.HasPrefix(version, "v1.") {
		t.Errorf("version %q, error %v", version, err)
	}
}
