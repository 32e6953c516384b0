package minimalimage

import (
	"archive/tar"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "github.com/google/go-containerregistry/pkg/v1"
)

func program(t *testing.T) Program {
	file := filepath.Join(t.TempDir(), "program")
	if err := os.WriteFile(file, []byte("not really a program"), 0o600); err != nil {
		t.Fatal(err)
	}
	return Program{File: file, Name: "tool", Architecture: "arm64"}
}

func TestTheSameProgramGivesTheSameDigest(t *testing.T) {
	var digests []string
	for range 2 {
		image, err := New(program(t)) // another file, with another time, each time
		if err != nil {
			t.Fatal(err)
		}
		digest, err := image.Digest()
		if err != nil {
			t.Fatal(err)
		}
		digests = append(digests, digest.String())
	}
	if digests[0] != digests[1] {
		t.Errorf("digests differ: %v", digests)
	}
}

func TestImageHoldsWhatAProgramExpects(t *testing.T) {
	image, err := New(program(t))
	if err != nil {
		t.Fatal(err)
	}
	config, err := image.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	if config.Architecture != "arm64" || config.OS != "linux" {
		t.Errorf("platform: %s/%s", config.OS, config.Architecture)
	}
	if diff := cmp.Diff([]string{"/usr/bin/tool"}, config.Config.Entrypoint); diff != "" {
		t.Error(diff)
	}
	want := map[string]int64{
		"etc/": 0o755, "etc/group": 0o644, "etc/passwd": 0o644, "root/": 0o700, "tmp/": 0o1777,
		"usr/": 0o755, "usr/bin/": 0o755, "usr/bin/tool": 0o755, "var/": 0o755, "var/tmp/": 0o1777,
	}
	if diff := cmp.Diff(want, modes(t, image)); diff != "" {
		t.Error(diff)
	}
}

func TestAServiceBringsNothingThatTheSystemHas(t *testing.T) {
	service := program(t)
	service.Unit = "[Service]\n"
	image, err := New(service)
	if err != nil {
		t.Fatal(err)
	}
	const units = "usr/lib/systemd/system/"
	want := map[string]int64{
		"usr/": 0o755, "usr/bin/": 0o755, "usr/bin/tool": 0o755, "usr/lib/": 0o755, "usr/lib/systemd/": 0o755, units: 0o755,
		units + "tool.service": 0o644, units + "multi-user.target.wants/": 0o755, units + "multi-user.target.wants/tool.service": 0o777,
	}
	if diff := cmp.Diff(want, modes(t, image)); diff != "" {
		t.Error(diff)
	}
}

// modes returns the mode of every entry of the image's one layer.
func modes(t *testing.T, image v1.Image) map[string]int64 {
	t.Helper()
	layers, err := image.Layers()
	if err != nil || len(layers) != 1 {
		t.Fatalf("layers: %d, %v", len(layers), err)
	}
	stream, err := layers[0].Uncompressed()
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]int64{}
	for archive := tar.NewReader(stream); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return found
		}
		if err != nil {
			t.Fatal(err)
		}
		found[header.Name] = header.Mode
	}
}
