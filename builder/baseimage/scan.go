package baseimage

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"

	"github.com/klauspost/compress/gzip"
	"github.com/opencontainers/go-digest"
	"go.podman.io/image/v5/pkg/compression"

	"github.com/imagemode/imagemode/ignition"
)

// Bounds of what is read and kept. OS images have some 100,000 files and a few
// gigabytes.
const (
	maxEntries  = 4 << 20
	maxUnpacked = 64 << 30
	// maxKept is the size in bytes up to which the content of a file is kept, and
	// maxKeptTotal that of all of them in a layer.
	maxKept      = 64 << 10
	maxKeptTotal = 16 << 20
)

// keptTrees hold files whose content a config may need.
var keptTrees = []string{"/etc", "/usr/lib/passwd", "/usr/lib/group", "/usr/lib/systemd/system", "/usr/lib/bootc"}

// Names with a meaning in a layer, of the OCI image specification.
const (
	whiteoutPrefix = ".wh."
	whiteoutOpaque = ".wh..wh..opq"
)

// entry is one thing in a layer.
type entry struct {
	ignition.Found
	size    int64
	content []byte
	// isKept: content is that of the file.
	isKept bool
}

// scan is what is in one layer.
type scan struct {
	entries map[string]*entry
	// hidden are the paths of the layers below that are not there any more, with
	// all that is in them; opaque the directories of which only the content goes.
	hidden, opaque map[string]bool
	kept           int64
	// names of a skeleton.
	names names
}

func newScan() *scan {
	return &scan{entries: map[string]*entry{}, hidden: map[string]bool{}, opaque: map[string]bool{}}
}

// add notes one entry of a tar.
func (s *scan) add(header *tar.Header, body io.Reader) error {
	if header.Uname == namesOwner {
		return s.readNames(body)
	}
	name := clean(header.Name)
	directory, base := path.Split(name)
	switch {
	case base == whiteoutOpaque:
		s.opaque[path.Clean(directory)] = true
		return nil
	case strings.HasPrefix(base, whiteoutPrefix):
		s.hidden[directory+strings.TrimPrefix(base, whiteoutPrefix)] = true
		return nil
	}
	kind := header.Typeflag
	switch kind {
	case tar.TypeXGlobalHeader:
		return nil
	case tar.TypeGNUSparse, tar.TypeCont:
		kind = tar.TypeReg
	}
	if len(s.entries) >= maxEntries {
		return fmt.Errorf("it has more than %d files", maxEntries)
	}
	e := &entry{
		Found: ignition.Found{
			Kind: kind, Mode: header.Mode & 0o7777, UID: header.Uid, GID: header.Gid, Target: header.Linkname,
		},
		size: header.Size,
	}
	s.entries[name] = e
	switch {
	case kind == tar.TypeLink:
		e.Target = clean(header.Linkname)
	case kind == tar.TypeReg && isKeptPath(name):
		return s.keep(e, body)
	}
	return nil
}

// keep reads the content of a file that may be asked for.
func (s *scan) keep(e *entry, body io.Reader) error {
	if e.size > maxKept || s.kept+e.size > maxKeptTotal {
		return nil
	}
	content, err := io.ReadAll(body)
	s.kept += e.size
	e.content, e.isKept = content, true
	return err
}

// linked gives the files whose content may be asked for under the name of a
// hard link only. Images exported from ostree have their files so.
func (s *scan) linked() map[string]*entry {
	linked := map[string]*entry{}
	for name, e := range s.entries {
		if e.Kind != tar.TypeLink || !isKeptPath(name) {
			continue
		}
		if target := s.entries[e.Target]; target != nil && target.Kind == tar.TypeReg && !target.isKept {
			linked[e.Target] = target
		}
	}
	return linked
}

func isKeptPath(name string) bool {
	for _, tree := range keptTrees {
		if name == tree || strings.HasPrefix(name, tree+"/") {
			return true
		}
	}
	return false
}

// hides reports whether what the layers below have at name is not there any
// more: taken away, or below something that is no directory.
func (s *scan) hides(name string) bool {
	if s.hidden[name] {
		return true
	}
	for dir := path.Dir(name); dir != "/"; dir = path.Dir(dir) {
		if s.hidden[dir] || s.opaque[dir] {
			return true
		}
		if e, has := s.entries[dir]; has && e.Kind != tar.TypeDir {
			return true
		}
	}
	return s.opaque["/"]
}

// Walk visits the entries of a layer, whose digest is compared.
func Walk(layer Layer, visit func(*tar.Header) error) error {
	stream, err := layer.Open()
	if err != nil {
		return err
	}
	defer stream.Close()
	return readLayer(stream, layer.Digest, func(header *tar.Header, _ io.Reader) error { return visit(header) })
}

// readLayer visits the entries of a layer and compares its digest.
func readLayer(stream io.Reader, want digest.Digest, visit func(*tar.Header, io.Reader) error) error {
	verifier := want.Verifier()
	compressed := io.TeeReader(stream, verifier)
	unpacked, err := unpack(compressed)
	if err != nil {
		return err
	}
	defer unpacked.Close()
	archive := tar.NewReader(io.LimitReader(unpacked, maxUnpacked))
	for {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		if err := visit(header, archive); err != nil {
			return err
		}
	}
	// What is behind the end of the archive belongs to the digest, too.
	for _, rest := range []io.Reader{unpacked, compressed} {
		if _, err := io.Copy(io.Discard, rest); err != nil {
			return err
		}
	}
	if !verifier.Verified() {
		return errors.New("its content does not have this digest")
	}
	return nil
}

// unpack finds out how a layer is compressed. The library's own way with gzip
// reads ahead in other threads, which pays for what is written to disk only.
func unpack(compressed io.Reader) (io.ReadCloser, error) {
	format, decompress, whole, err := compression.DetectCompressionFormat(compressed)
	switch {
	case err != nil:
		return nil, err
	case decompress == nil:
		return io.NopCloser(whole), nil
	case format.Name() == compression.Gzip.Name():
		return gzip.NewReader(whole)
	}
	return decompress(whole)
}
