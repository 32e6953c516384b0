package ignition

import (
	"archive/tar"
	"bytes"
	"strings"
	"testing"
	"time"
)

// TestAnArchiveIsWhatTheLibraryWrites compares every byte.
func TestAnArchiveIsWhatTheLibraryWrites(t *testing.T) {
	entries := []*entry{
		{path: "/etc", kind: tar.TypeDir, mode: 0o755},
		{path: "/etc/a", kind: tar.TypeReg, mode: 0o644, data: []byte("content")},
		{path: "/etc/block", kind: tar.TypeReg, mode: 0o4755, data: bytes.Repeat([]byte("b"), blockSize)},
		{path: "/etc/empty", kind: tar.TypeReg, mode: 0o600, owner: owner{uid: 1000, gid: 1<<21 - 1}},
		{path: "/etc/link", kind: tar.TypeSymlink, mode: 0o777, target: "../usr/a"},
		{path: "/etc/far", kind: tar.TypeSymlink, mode: 0o777, target: strings.Repeat("a", 101)},
		{path: "/etc/owner", kind: tar.TypeReg, mode: 0o644, owner: owner{uid: 1 << 21, gid: 1<<32 - 2}},
		{path: "/etc/ä", kind: tar.TypeReg, mode: 0o644, data: []byte("x")},
		{path: "/" + strings.Repeat("a", 100), kind: tar.TypeReg, mode: 0o644},
		{path: "/" + strings.Repeat("a", 101), kind: tar.TypeReg, mode: 0o644},
		{path: "/" + strings.Repeat("a", 99), kind: tar.TypeDir, mode: 0o755},
		{path: "/" + strings.Repeat("a", 100) + "d", kind: tar.TypeDir, mode: 0o755},
		{path: "/usr/" + strings.Repeat("b/", 60) + "c", kind: tar.TypeReg, mode: 0o644, data: []byte("far down")},
	}
	var want, got bytes.Buffer
	library := tar.NewWriter(&want)
	own := archiveWriter{to: &got}
	for _, e := range entries {
		name := e.path[1:]
		if e.kind == tar.TypeDir {
			name += "/"
		}
		header := &tar.Header{
			Typeflag: e.kind, Name: name, Linkname: e.target, Mode: e.mode,
			Uid: e.owner.uid, Gid: e.owner.gid, Size: int64(len(e.data)), ModTime: time.Unix(0, 0),
		}
		if err := library.WriteHeader(header); err != nil {
			t.Fatal(err)
		}
		if _, err := library.Write(e.data); err != nil {
			t.Fatal(err)
		}
		if err := own.add(e); err != nil {
			t.Fatal(err)
		}
		if err := library.Flush(); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(want.Bytes(), got.Bytes()) {
			t.Fatalf("%s is written in another way", e.path)
		}
	}
	if err := library.Close(); err != nil {
		t.Fatal(err)
	}
	if err := own.close(); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(want.Bytes(), got.Bytes()) {
		t.Error("the end is written in another way")
	}
}
