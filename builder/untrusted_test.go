package builder

import (
	"archive/tar"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/imagemode/imagemode/builder/request"
	"github.com/imagemode/imagemode/registry"
	"github.com/imagemode/imagemode/registry/registrytest"
)

// TestALayerOfTheBaseWritesNothingOutside unpacks bases whose layers mean to.
func TestALayerOfTheBaseWritesNothingOutside(t *testing.T) {
	outside := filepath.Join(t.TempDir(), "escaped")
	up := strings.Repeat("../", 20)
	for name, entries := range map[string][]*tar.Header{
		"a name that climbs out": {{Typeflag: tar.TypeDir, Name: up + outside[1:], Mode: 0o755}},
		"an absolute name":       {{Typeflag: tar.TypeDir, Name: outside, Mode: 0o755}},
		"a link that leads out, and a file behind it": {
			{Typeflag: tar.TypeSymlink, Name: "etc/out", Linkname: up + filepath.Dir(outside)[1:]},
			{Typeflag: tar.TypeDir, Name: "etc/out/escaped", Mode: 0o755},
		},
		"a hard link to what is outside": {{Typeflag: tar.TypeLink, Name: "etc/out", Linkname: up + "etc/hostname"}},
		"a device":                       {{Typeflag: tar.TypeBlock, Name: "etc/disk", Devmajor: 7, Devminor: 99, Mode: 0o600}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorkplace(t, "FROM configs\nRUN [\"/bin/tool\", \"write\", \"/usr/share/a\", \"b\"]\n")
			w.request.BaseImage = w.registry.Push(t, "os/hostile", registrytest.ImageSpec{
				Files:   map[string]string{"/bin/tool": toolProgram, "/etc/": "", "/tmp/": ""},
				Entries: entries, Labels: registrytest.Bootable(),
			})
			_, err := w.build()
			if err != nil && !strings.Contains(err.Error(), "outside") && !strings.Contains(err.Error(), "breakout") && !strings.Contains(err.Error(), "no such file") {
				t.Errorf("the build failed for another reason: %v", err)
			}
			if _, err := os.Lstat(outside); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("%s was written outside: %v", outside, err)
			}
			if image, err := registry.Inspect(context.Background(), w.access, w.request.PushSpec); err == nil {
				for path := range w.files(image, 1) {
					if strings.Contains(path, "escaped") || path == "/etc/disk" {
						t.Errorf("the image got %s", path)
					}
				}
			}
		})
	}
}

// TestALayerOfAnAbsurdSizeIsAnError: a header may promise any size.
func TestALayerOfAnAbsurdSizeIsAnError(t *testing.T) {
	for name, text := range map[string]string{
		"unpacked for a RUN":     "FROM configs\nRUN [\"/bin/tool\", \"write\", \"/usr/share/a\", \"b\"]\n",
		"read for what is in it": "",
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorkplace(t, text)
			w.request.BaseImage = w.registry.Push(t, "os/hostile", registrytest.ImageSpec{
				Files:   map[string]string{"/bin/tool": toolProgram, "/etc/": "", "/tmp/": ""},
				Entries: []*tar.Header{{Typeflag: tar.TypeReg, Name: "etc/large", Size: 1 << 50, Mode: 0o644}},
				Labels:  registrytest.Bootable(),
			})
			w.ignition(`"storage":{"files":[{"path":"/etc/large","append":[{"source":"data:,more"}]}]}`)
			if result, err := w.build(); err == nil || result.Failure.Message == "" {
				t.Errorf("got %+v, %v", result, err)
			}
		})
	}
}

// TestAContainerfileOfOddBytesFailsBeforeAnythingIsAsked: no registry and no
// process has to do with it.
func TestAContainerfileOfOddBytesFailsBeforeAnythingIsAsked(t *testing.T) {
	odd := make([]byte, 4096)
	seed := uint32(1)
	for i := range odd {
		seed = seed*1664525 + 1013904223
		odd[i] = byte(seed >> 24)
	}
	w := newWorkplace(t, string(odd))
	result, err := w.build()
	if err == nil || result.Failure.Class != request.Containerfile || result.Failure.Line == 0 {
		t.Errorf("got %+v, %v", result.Failure, err)
	}
	if asked := w.registry.Requests(); len(asked) > 0 {
		t.Errorf("the registry was asked %v", asked)
	}
}
