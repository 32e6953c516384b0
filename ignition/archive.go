package ignition

import (
	"archive/tar"
	"bytes"
	"cmp"
	"crypto/sha256"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
	"sync"

	"github.com/klauspost/compress/gzip"
	"github.com/opencontainers/go-digest"
)

// whiteoutPrefix marks a name in a layer that takes away what the layers below
// have: part of the OCI image specification.
const whiteoutPrefix = ".wh."

// entry is one thing in a layer.
type entry struct {
	// path is absolute and clean.
	path  string
	kind  byte // tar.TypeReg, tar.TypeDir or tar.TypeSymlink
	mode  int64
	owner owner
	// given is what the config itself says of mode and owner. What is below /var
	// keeps the rest as the node has it.
	given given
	// target of a link.
	target string
	data   []byte
}

type given struct{ mode, user, group bool }

func newFile(path, content string) *entry {
	return &entry{path: path, kind: tar.TypeReg, mode: 0o644, data: []byte(content)}
}

func newLink(path, target string) *entry {
	return &entry{path: path, kind: tar.TypeSymlink, mode: 0o777, target: target}
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

// takeAway hides what the layers below have at a path, unless this layer has
// something there itself.
func (t tree) takeAway(name string) {
	if _, own := t[name]; own {
		return
	}
	hidden := path.Join(path.Dir(name), whiteoutPrefix+path.Base(name))
	t[hidden] = &entry{path: hidden, kind: tar.TypeReg}
}

// addParents names the directories above every entry: extraction makes missing
// ones with a mode of its own choice. parent makes the entry of a directory.
func (t tree) addParents(parent func(dir string) (*entry, error)) error {
	for _, e := range t.sorted() {
		for dir := path.Dir(e.path); dir != "/"; dir = path.Dir(dir) {
			above, exists := t[dir]
			if exists && above.kind != tar.TypeDir {
				return refuse(e.path, fmt.Errorf("it is below %s, which is not a directory in the same config", dir))
			}
			if exists {
				continue
			}
			above, err := parent(dir)
			if err != nil {
				return err
			}
			t[dir] = above
		}
	}
	return nil
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

// packLevel takes half the time of the library's default, for a layer that is as
// small: configs are texts.
const packLevel = 2

// packers are kept for the next layer: each has tables of some megabytes.
var packers = sync.Pool{New: func() any {
	packer, err := gzip.NewWriterLevel(nil, packLevel)
	if err != nil {
		panic(err) // the level is one of the library's
	}
	return packer
}}

// pack writes the entries as a gzip-compressed tar. The same entries give the
// same bytes: sorted, no times, no names of owners, one compressor.
func (t tree) pack() (packed, error) {
	entries, size := t.sorted(), 0
	for _, e := range entries {
		size += 2*blockSize + len(e.data)
	}
	var buffer bytes.Buffer
	buffer.Grow(size / 4)
	compressor := packers.Get().(*gzip.Writer)
	defer packers.Put(compressor)
	compressor.Reset(&buffer)
	uncompressed := sha256.New()
	archive := archiveWriter{to: io.MultiWriter(compressor, uncompressed)}
	for _, e := range entries {
		if err := archive.add(e); err != nil {
			return packed{}, fmt.Errorf("%s: %w", e.path, err)
		}
	}
	if err := archive.close(); err != nil {
		return packed{}, err
	}
	if err := compressor.Close(); err != nil {
		return packed{}, err
	}
	return packed{
		data:   buffer.Bytes(),
		digest: digest.FromBytes(buffer.Bytes()),
		diffID: digest.NewDigest(digest.SHA256, uncompressed),
	}, nil
}

// hasWhiteoutName reports whether an element of a path means something else in
// a layer than on a node.
func hasWhiteoutName(name string) bool {
	return strings.Contains(name, "/"+whiteoutPrefix)
}
