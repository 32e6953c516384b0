package ignition

import (
	"archive/tar"
	"bytes"
	"strings"
	"testing"

	"github.com/klauspost/compress/gzip"
)

// layerOf packs one entry as it is: what tar itself would not write is cut off.
func layerOf(t *testing.T, header tar.Header) []byte {
	t.Helper()
	var packed bytes.Buffer
	packer := gzip.NewWriter(&packed)
	archive := tar.NewWriter(packer)
	if err := archive.WriteHeader(&header); err != nil {
		t.Fatal(err)
	}
	if err := packer.Close(); err != nil {
		t.Fatal(err)
	}
	return packed.Bytes()
}

// TestLintRefusesWhatNoLayerMayHold is about the second look: NewLayer makes none
// of these.
func TestLintRefusesWhatNoLayerMayHold(t *testing.T) {
	for name, test := range map[string]struct {
		header tar.Header
		reason string
	}{
		"a name that climbs out":           {tar.Header{Typeflag: tar.TypeSymlink, Name: "../../etc/shadow", Linkname: "a"}, "leads through . or .."},
		"a name that climbs in the middle": {tar.Header{Typeflag: tar.TypeSymlink, Name: "usr/../etc/shadow", Linkname: "a"}, "leads through . or .."},
		"an absolute name with a dot":      {tar.Header{Typeflag: tar.TypeSymlink, Name: "/./etc/a", Linkname: "a"}, "leads through . or .."},
		"a device":                         {tar.Header{Typeflag: tar.TypeBlock, Name: "etc/disk", Devmajor: 8}, "only files, directories and links"},
		"a character device":               {tar.Header{Typeflag: tar.TypeChar, Name: "etc/mem", Devmajor: 1, Devminor: 1}, "only files, directories and links"},
		"a pipe":                           {tar.Header{Typeflag: tar.TypeFifo, Name: "etc/pipe"}, "only files, directories and links"},
		"a hard link":                      {tar.Header{Typeflag: tar.TypeLink, Name: "etc/a", Linkname: "../../etc/shadow"}, "only files, directories and links"},
		"a file in /var":                   {tar.Header{Typeflag: tar.TypeSymlink, Name: "var/a", Linkname: "a"}, "/var is not updated"},
		"a file in /run":                   {tar.Header{Typeflag: tar.TypeSymlink, Name: "run/a", Linkname: "a"}, "empty at every boot"},
		"a name that is not UTF-8":         {tar.Header{Typeflag: tar.TypeSymlink, Name: "etc/\xff", Linkname: "a", Format: tar.FormatGNU}, "not UTF-8"},
	} {
		t.Run(name, func(t *testing.T) {
			problems, err := Lint(layerOf(t, test.header))
			said := ""
			for _, problem := range problems {
				said += problem.Reason + "; "
			}
			if err != nil || !strings.Contains(said, test.reason) {
				t.Errorf("got %q, %v; want %q", said, err, test.reason)
			}
		})
	}
}

// TestLintOfAnAbsurdSizeEnds: a header may promise any size.
func TestLintOfAnAbsurdSizeEnds(t *testing.T) {
	if _, err := Lint(layerOf(t, tar.Header{Typeflag: tar.TypeReg, Name: "etc/a", Size: 1 << 60})); err == nil {
		t.Error("a file of an exabyte passed")
	}
}
