package ignition

import (
	"archive/tar"
	"bytes"
	"cmp"
	"fmt"
	"io"
	"path"
	"slices"
	"time"

	"github.com/klauspost/compress/gzip"
	"github.com/opencontainers/go-digest"
)

// entry is one thing in a layer.
type entry struct {
	// path is absolute and clean.
	path string
	kind byte // tar.TypeReg, tar.TypeDir or tar.TypeSymlink
	mode int64
	uid  int
	gid  int
	// target of a link.
	target string
	data   []byte
}

// tree collects entries by path.
type tree map[string]*entry

// add puts an entry in; two different entries of one path are an error, because
// only one of them could be delivered.
func (t tree) add(e *entry) error {
	if old, exists := t[e.path]; exists && !(old.kind == tar.TypeDir && e.kind == tar.TypeDir) {
		return fmt.Errorf("%s is delivered twice: by a file, directory or link, and by a unit or another spelling of the path", e.path)
	}
	t[e.path] = e
	return nil
}

// addParents names the directories above every entry: extraction makes missing
// ones with a mode of its own choice.
func (t tree) addParents(base Base) error {
	for _, e := range t.sorted() {
		for dir := path.Dir(e.path); dir != "/"; dir = path.Dir(dir) {
			switch parent, exists := t[dir]; {
			case !exists:
				t[dir] = &entry{path: dir, kind: tar.TypeDir, mode: base.directoryMode(dir)}
			case parent.kind != tar.TypeDir:
				return fmt.Errorf("%s is below %s, which is not a directory in the same config", e.path, dir)
			}
		}
	}
	return nil
}

func (b Base) directoryMode(dir string) int64 {
	if mode, special := b.Modes[dir]; special {
		return mode
	}
	return 0o755
}

// sorted gives the entries by path: parents come before what is in them.
func (t tree) sorted() []*entry {
	entries := make([]*entry, 0, len(t))
	for _, e := range t {
		entries = append(entries, e)
	}
	slices.SortFunc(entries, func(a, b *entry) int { return cmp.Compare(a.path, b.path) })
	return entries
}

// packed is a layer as it goes to a registry.
type packed struct {
	data   []byte
	digest digest.Digest
	diffID digest.Digest
}

// pack writes the entries as a gzip-compressed tar. The same entries give the
// same bytes: sorted, no times, no names of owners, one compressor.
func (t tree) pack() (packed, error) {
	var buffer bytes.Buffer
	compressor := gzip.NewWriter(&buffer)
	uncompressed := digest.Canonical.Digester()
	archive := tar.NewWriter(io.MultiWriter(compressor, uncompressed.Hash()))
	for _, e := range t.sorted() {
		if err := e.write(archive); err != nil {
			return packed{}, fmt.Errorf("%s: %w", e.path, err)
		}
	}
	if err := archive.Close(); err != nil {
		return packed{}, err
	}
	if err := compressor.Close(); err != nil {
		return packed{}, err
	}
	return packed{
		data:   buffer.Bytes(),
		digest: digest.FromBytes(buffer.Bytes()),
		diffID: uncompressed.Digest(),
	}, nil
}

func (e *entry) write(archive *tar.Writer) error {
	name := e.path[1:]
	if e.kind == tar.TypeDir {
		name += "/"
	}
	// Without a format tar takes USTAR where it can and PAX for long names.
	header := &tar.Header{
		Typeflag: e.kind,
		Name:     name,
		Linkname: e.target,
		Mode:     e.mode,
		Uid:      e.uid,
		Gid:      e.gid,
		Size:     int64(len(e.data)),
		ModTime:  time.Unix(0, 0),
	}
	if err := archive.WriteHeader(header); err != nil {
		return err
	}
	_, err := archive.Write(e.data)
	return err
}
