package baseimage

import (
	"archive/tar"
	"fmt"
	"io"
	"path"
	"slices"

	"github.com/opencontainers/go-digest"

	"github.com/imagemode/imagemode/ignition"
)

// Layer is one layer of an image.
type Layer struct {
	// Digest of what Open gives. A layer that does not have it is an error.
	Digest digest.Digest
	// Open gives the layer as it is in the registry: a tar, uncompressed or
	// compressed by gzip or zstd. It is called when the layer is needed, a second
	// time for the content of a file that was not kept.
	Open func() (io.ReadCloser, error)
}

// Image is the files of an image: an ignition.Base. It is not safe for
// concurrent use.
type Image struct {
	layers []Layer
	// scans of the layers, nil where a layer has not been read.
	scans []*scan
}

var _ ignition.Base = (*Image)(nil)

// New gives the image with the layers, the lowest first. Nothing is read yet.
func New(layers []Layer) *Image {
	return &Image{layers: layers, scans: make([]*scan, len(layers))}
}

// Find gives what the image has at an absolute, clean name, no link followed;
// nil: nothing. Errors are those of reading a layer.
func (i *Image) Find(name string) (*ignition.Found, error) {
	at, err := i.locate(name, len(i.layers)-1)
	if err != nil || at == nil {
		return nil, err
	}
	found := at.entry.Found
	return &found, nil
}

// Read gives the content of the regular file at a name. More than
// ignition.MaxFileSize bytes are an error.
func (i *Image) Read(name string) ([]byte, error) {
	at, err := i.locate(name, len(i.layers)-1)
	switch {
	case err != nil:
		return nil, err
	case at == nil || at.entry.Kind != tar.TypeReg:
		return nil, fmt.Errorf("the base image has no file %s", name)
	case at.entry.isKept:
		return at.entry.content, nil
	case at.entry.size > ignition.MaxFileSize:
		return nil, fmt.Errorf("%s of the base image has more than %d bytes", name, ignition.MaxFileSize)
	}
	return i.readAgain(at)
}

// List gives the names in a directory, sorted. All layers are read.
func (i *Image) List(name string) ([]string, error) {
	for layer := range i.layers {
		if _, err := i.scan(layer); err != nil {
			return nil, err
		}
	}
	entries, err := i.flatten()
	if err != nil {
		return nil, err
	}
	var names []string
	for _, scan := range i.scans {
		names = append(names, scan.names.in(name)...)
	}
	for entry := range entries {
		if path.Dir(entry) == name && entry != name {
			names = append(names, path.Base(entry))
		}
	}
	slices.Sort(names)
	return names, nil
}

// IsRead reports whether all layers have been read.
func (i *Image) IsRead() bool {
	for _, scan := range i.scans {
		if scan == nil {
			return false
		}
	}
	return true
}

// position of an entry.
type position struct {
	layer int
	name  string
	entry *entry
}

// locate looks for name in the layers from top downwards; nil: there is nothing.
func (i *Image) locate(name string, top int) (*position, error) {
	for layer := top; layer >= 0; layer-- {
		scan, err := i.scan(layer)
		if err != nil {
			return nil, err
		}
		if e := scan.entry(name); e != nil {
			return i.followHardLink(&position{layer, name, e})
		}
		if scan.hides(name) {
			return nil, nil
		}
	}
	return nil, nil
}

// followHardLink goes on to what a hard link links to.
func (i *Image) followHardLink(at *position) (*position, error) {
	for range 2 {
		if at == nil || at.entry.Kind != tar.TypeLink {
			return at, nil
		}
		target, layer := at.entry.Target, at.layer
		scan, err := i.scan(layer)
		if err != nil {
			return nil, err
		}
		if e, has := scan.entries[target]; has && e != at.entry {
			at = &position{layer, target, e}
			continue
		}
		return nil, fmt.Errorf("layer %s: %s is linked to %s, which is not in the layer", i.layers[layer].Digest, at.name, target)
	}
	if at.entry.Kind == tar.TypeLink {
		return nil, fmt.Errorf("layer %s: %s is linked to a link", i.layers[at.layer].Digest, at.name)
	}
	return at, nil
}

// scan gives what is in a layer.
func (i *Image) scan(layer int) (*scan, error) {
	if i.scans[layer] == nil {
		scan := newScan()
		if err := i.read(layer, scan.add); err != nil {
			return nil, err
		}
		if err := i.keepLinked(layer, scan); err != nil {
			return nil, err
		}
		i.scans[layer] = scan
	}
	return i.scans[layer], nil
}

// keepLinked reads a layer again if hard links give files that may be asked for
// names that were not known to be such when they came by.
func (i *Image) keepLinked(layer int, scan *scan) error {
	linked := scan.linked()
	if len(linked) == 0 {
		return nil
	}
	return i.read(layer, func(header *tar.Header, body io.Reader) error {
		if e := linked[clean(header.Name)]; e != nil {
			return scan.keep(e, body)
		}
		return nil
	})
}

// readAgain fetches the content of a file that was not kept.
func (i *Image) readAgain(at *position) ([]byte, error) {
	var content []byte
	err := i.read(at.layer, func(header *tar.Header, body io.Reader) error {
		if clean(header.Name) != at.name || header.Typeflag != tar.TypeReg {
			return nil
		}
		var err error
		content, err = io.ReadAll(io.LimitReader(body, ignition.MaxFileSize+1))
		return err
	})
	return content, err
}

// read reads a layer to its end and compares its digest: nothing of a layer is
// taken before all of it is known to be the one that was asked for.
func (i *Image) read(layer int, visit func(*tar.Header, io.Reader) error) error {
	stream, err := i.layers[layer].Open()
	if err != nil {
		return fmt.Errorf("layer %s: %w", i.layers[layer].Digest, err)
	}
	defer stream.Close()
	if err := readLayer(stream, i.layers[layer].Digest, visit); err != nil {
		return fmt.Errorf("layer %s: %w", i.layers[layer].Digest, err)
	}
	return nil
}

// clean gives the absolute path of a name in a tar.
func clean(name string) string { return path.Clean("/" + name) }
