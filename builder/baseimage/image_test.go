package baseimage

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"github.com/opencontainers/go-digest"

	"github.com/imagemode/imagemode/ignition"
)

// header describes an entry of a test's layer in one line: "file NAME CONTENT",
// "dir NAME", "link NAME TARGET" or "hard NAME TARGET".
func header(t testing.TB, line string) (*tar.Header, string) {
	t.Helper()
	words := append(strings.SplitN(line, " ", 3), "", "")
	kind, name, rest := words[0], words[1], words[2]
	switch kind {
	case "file":
		return &tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o640, Uid: 1, Gid: 2, Size: int64(len(rest))}, rest
	case "dir":
		return &tar.Header{Typeflag: tar.TypeDir, Name: name, Mode: 0o755}, ""
	case "link":
		return &tar.Header{Typeflag: tar.TypeSymlink, Name: name, Mode: 0o777, Linkname: rest}, ""
	case "hard":
		return &tar.Header{Typeflag: tar.TypeLink, Name: name, Linkname: rest}, ""
	}
	t.Fatalf("no kind of entry: %s", line)
	return nil, ""
}

func archive(t testing.TB, lines ...string) []byte {
	t.Helper()
	var buffer bytes.Buffer
	writer := tar.NewWriter(&buffer)
	for _, line := range lines {
		header, content := header(t, line)
		if err := writer.WriteHeader(header); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(writer, content); err != nil {
			t.Fatal(err)
		}
	}
	if err := writer.Close(); err != nil {
		t.Fatal(err)
	}
	return buffer.Bytes()
}

func gzipped(t testing.TB, data []byte) []byte {
	t.Helper()
	var buffer bytes.Buffer
	writer := gzip.NewWriter(&buffer)
	if _, err := writer.Write(data); err != nil {
		t.Fatal(err)
	}
	if err := writer.Close(); err != nil {
		t.Fatal(err)
	}
	return buffer.Bytes()
}

// opened counts how often each layer was opened.
type opened []int

func imageOf(layers ...[]byte) (*Image, opened) {
	counts := make(opened, len(layers))
	var list []Layer
	for i, data := range layers {
		list = append(list, Layer{Digest: digest.FromBytes(data), Open: func() (io.ReadCloser, error) {
			counts[i]++
			return io.NopCloser(bytes.NewReader(data)), nil
		}})
	}
	return New(list), counts
}

func describe(found *ignition.Found) string {
	if found == nil {
		return "nothing"
	}
	return strings.TrimSpace(fmt.Sprintf("%c %04o %d:%d %s", found.Kind, found.Mode, found.UID, found.GID, found.Target))
}

func layers(t *testing.T) [][]byte {
	t.Helper()
	return [][]byte{
		gzipped(t, archive(t, "dir ./", "dir ./etc/", "file ./etc/passwd lower", "file etc/gone x", "dir etc/opaque", "file etc/opaque/below x",
			"dir etc/replaced", "file etc/replaced/a x", "dir etc/removed/", "file etc/removed/a x", "link opt var/opt", "file usr/share/big content",
			"file sysroot/ostree/repo/objects/ab.file object", "hard etc/hard sysroot/ostree/repo/objects/ab.file")),
		archive(t, "file etc/passwd upper", "file etc/.wh.gone ", "file etc/opaque/.wh..wh..opq ", "file etc/opaque/above x", "file etc/replaced now-a-file", "file etc/.wh.removed "),
		gzipped(t, archive(t, "dir usr", "file usr/lib/passwd alt")),
	}
}

func TestFindSeesTheImageFromAbove(t *testing.T) {
	tests := map[string]string{
		"/":                 "5 0755 0:0",
		"/etc":              "5 0755 0:0",
		"/etc/passwd":       "0 0640 1:2",
		"/etc/gone":         "nothing",
		"/etc/opaque":       "5 0755 0:0",
		"/etc/opaque/above": "0 0640 1:2",
		"/etc/opaque/below": "nothing",
		"/etc/replaced":     "0 0640 1:2",
		"/etc/replaced/a":   "nothing",
		"/etc/removed":      "nothing",
		"/etc/removed/a":    "nothing",
		"/opt":              "2 0777 0:0 var/opt",
		"/etc/hard":         "0 0640 1:2",
		"/nowhere":          "nothing",
	}
	image, _ := imageOf(layers(t)...)
	skeleton := skeletonOf(t, image)
	for name, want := range tests {
		t.Run(name, func(t *testing.T) {
			for kind, base := range map[string]ignition.Base{"image": image, "skeleton": image.Over(skeleton)} {
				found, err := base.Find(name)
				if err != nil || describe(found) != want {
					t.Errorf("%s: got %s, %v; want %s", kind, describe(found), err, want)
				}
			}
		})
	}
}

func TestListSeesTheImageFromAbove(t *testing.T) {
	image, _ := imageOf(layers(t)...)
	for kind, base := range map[string]ignition.Base{"image": image, "skeleton": image.Over(skeletonOf(t, image))} {
		for name, want := range map[string][]string{
			"/etc": {"hard", "opaque", "passwd", "replaced"}, "/etc/opaque": {"above"}, "/": {"etc", "opt", "usr"}, "/nowhere": nil,
		} {
			names, err := base.List(name)
			names = slices.DeleteFunc(names, func(name string) bool { return name == "sysroot" })
			if diff := cmp.Diff(want, names); err != nil || diff != "" {
				t.Errorf("%s: %s: %v %s", kind, name, err, diff)
			}
		}
	}
}

// skeletonOf reads all of an image and gives its skeleton as a layer.
func skeletonOf(t *testing.T, image *Image) Layer {
	t.Helper()
	if _, err := image.Find("/nowhere"); err != nil {
		t.Fatal(err)
	}
	skeleton, err := image.Skeleton()
	if err != nil {
		t.Fatal(err)
	}
	again, err := image.Skeleton()
	if err != nil || again.Digest != skeleton.Digest {
		t.Errorf("the same image has another skeleton, %v", err)
	}
	return Layer{Digest: skeleton.Digest, Open: func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(skeleton.Data)), nil
	}}
}

func TestReadGivesTheContentThatIsSeen(t *testing.T) {
	for name, want := range map[string]string{
		"/etc/passwd": "upper", "/usr/lib/passwd": "alt", "/usr/share/big": "content", "/etc/hard": "object",
	} {
		t.Run(name, func(t *testing.T) {
			image, _ := imageOf(layers(t)...)
			content, err := image.Read(name)
			if err != nil || string(content) != want {
				t.Errorf("got %q, %v; want %q", content, err, want)
			}
			content, err = image.Over(skeletonOf(t, image)).Read(name)
			if err != nil || string(content) != want {
				t.Errorf("over a skeleton: got %q, %v; want %q", content, err, want)
			}
		})
	}
	image, _ := imageOf(layers(t)...)
	for _, name := range []string{"/nowhere", "/opt", "/etc"} {
		if _, err := image.Read(name); err == nil {
			t.Errorf("%s is no file and was read", name)
		}
	}
}

func TestOnlyTheLayersThatAreNeededAreRead(t *testing.T) {
	image, counts := imageOf(layers(t)...)
	for range 3 {
		if _, err := image.Read("/etc/passwd"); err != nil {
			t.Fatal(err)
		}
		if _, err := image.Find("/etc/opaque/below"); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(opened{0, 1, 1}, counts); diff != "" {
		t.Error(diff)
	}
	if image.IsRead() {
		t.Error("the lowest layer was not read")
	}
	if _, err := image.Skeleton(); err == nil {
		t.Error("there is a skeleton of what was not read")
	}
	skeleton := skeletonOf(t, image)
	before := slices.Clone(counts)
	over := image.Over(skeleton)
	for _, name := range []string{"/etc/passwd", "/nowhere", "/usr/share/none"} {
		if _, err := over.Find(name); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(before, counts); diff != "" {
		t.Errorf("a skeleton answers by itself: %s", diff)
	}
}

func TestASkeletonThatCannotBeReadIsNoLoss(t *testing.T) {
	image, _ := imageOf(layers(t)...)
	over := image.Over(Layer{Digest: digest.FromString("another"), Open: func() (io.ReadCloser, error) {
		return io.NopCloser(strings.NewReader("no skeleton")), nil
	}})
	if found, err := over.Find("/opt"); err != nil || found == nil {
		t.Errorf("found %v, %v", found, err)
	}
	if content, err := over.Read("/etc/passwd"); err != nil || string(content) != "upper" {
		t.Errorf("read %q, %v", content, err)
	}
	if names, err := over.List("/etc/opaque"); err != nil || len(names) != 1 {
		t.Errorf("listed %v, %v", names, err)
	}
	if !image.IsRead() {
		t.Error("the image was not read")
	}
}

func TestCompressions(t *testing.T) {
	plain := archive(t, "file etc/a content")
	encoder, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string][]byte{"none": plain, "gzip": gzipped(t, plain), "zstd": encoder.EncodeAll(plain, nil)} {
		t.Run(name, func(t *testing.T) {
			image, _ := imageOf(data)
			if content, err := image.Read("/etc/a"); err != nil || string(content) != "content" {
				t.Errorf("got %q, %v", content, err)
			}
		})
	}
}

func TestNothingIsTakenFromALayerOfAnotherDigest(t *testing.T) {
	image, _ := imageOf(archive(t, "file etc/passwd x"))
	image.layers[0].Digest = digest.FromString("another")
	if _, err := image.Find("/etc/passwd"); err == nil || !strings.Contains(err.Error(), "does not have this digest") {
		t.Errorf("got %v", err)
	}
}

func TestBadLayersAreErrors(t *testing.T) {
	for name, data := range map[string][]byte{
		"no tar":                     []byte(strings.Repeat("x", 2000)),
		"cut off":                    gzipped(t, archive(t, "file etc/a content"))[:40],
		"more behind the end":        append(gzipped(t, archive(t, "file etc/a content")), "garbage"...),
		"a hard link to nothing":     archive(t, "hard etc/a etc/b"),
		"a hard link to itself":      archive(t, "hard etc/a etc/a"),
		"a hard link to a hard link": archive(t, "hard etc/a etc/b", "hard etc/b etc/a"),
	} {
		t.Run(name, func(t *testing.T) {
			image, _ := imageOf(data)
			if found, err := image.Find("/etc/a"); err == nil {
				t.Errorf("got %s", describe(found))
			}
		})
	}
}

func FuzzLayer(f *testing.F) {
	f.Add([]byte("x"))
	f.Fuzz(func(t *testing.T, data []byte) {
		image, _ := imageOf(data)
		if _, err := image.Find("/etc/passwd"); err != nil {
			return
		}
		if _, err := image.Read("/etc/passwd"); err != nil {
			return
		}
	})
}
