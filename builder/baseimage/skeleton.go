package baseimage

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/klauspost/compress/gzip"
	"github.com/opencontainers/go-digest"

	"github.com/imagemode/imagemode/ignition"
)

// Skeleton is the one layer of a skeleton.
type Skeleton struct {
	// Data is a tar, compressed by gzip, with Digest; DiffID is that of the tar.
	Data   []byte
	Digest digest.Digest
	DiffID digest.Digest
}

// Skeleton makes the skeleton of an image of which all layers have been read:
// the same files as seen from above, those without content as a list of names.
func (i *Image) Skeleton() (*Skeleton, error) {
	if !i.IsRead() {
		return nil, fmt.Errorf("not all layers of the base image have been read")
	}
	entries, err := i.flatten()
	if err != nil {
		return nil, err
	}
	list := names{}
	var rest []string
	for _, name := range slices.Sorted(maps.Keys(entries)) {
		if e := entries[name]; fits(name, e) {
			list = list.appendName(name, e)
		} else {
			rest = append(rest, name)
		}
	}
	var data bytes.Buffer
	compressor, err := gzip.NewWriterLevel(&data, gzip.BestSpeed)
	if err != nil {
		return nil, err
	}
	diffID := digest.Canonical.Digester()
	archive := tar.NewWriter(io.MultiWriter(compressor, diffID.Hash()))
	if err := list.write(archive); err != nil {
		return nil, err
	}
	for _, name := range rest {
		if err := entries[name].write(archive, name); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	if err := archive.Close(); err != nil {
		return nil, err
	}
	if err := compressor.Close(); err != nil {
		return nil, err
	}
	return &Skeleton{Data: data.Bytes(), Digest: digest.FromBytes(data.Bytes()), DiffID: diffID.Digest()}, nil
}

// flatten gives what is seen from above.
func (i *Image) flatten() (map[string]*entry, error) {
	above := newScan()
	for layer := len(i.scans) - 1; layer >= 0; layer-- {
		seen := map[string]*entry{}
		for name, e := range i.scans[layer].entries {
			if _, covered := above.entries[name]; covered || above.hides(name) {
				continue
			}
			at, err := i.followHardLink(&position{layer, name, e})
			if err != nil {
				return nil, err
			}
			seen[name] = at.entry
		}
		maps.Copy(above.entries, seen)
		maps.Copy(above.hidden, i.scans[layer].hidden)
		maps.Copy(above.opaque, i.scans[layer].opaque)
	}
	return above.entries, nil
}

func (e *entry) write(archive *tar.Writer, name string) error {
	header := &tar.Header{
		Typeflag: e.Kind,
		Name:     name[1:],
		Linkname: e.Target,
		Mode:     e.Mode,
		Uid:      e.UID,
		Gid:      e.GID,
		Size:     int64(len(e.content)),
		ModTime:  time.Unix(0, 0),
	}
	switch {
	case name == "/":
		header.Name = "./"
	case e.Kind == tar.TypeDir:
		header.Name += "/"
	}
	if err := archive.WriteHeader(header); err != nil {
		return err
	}
	_, err := archive.Write(e.content)
	return err
}

func (n names) write(archive *tar.Writer) error {
	header := &tar.Header{Typeflag: tar.TypeReg, Name: "names", Uname: namesOwner, Size: int64(len(n)), ModTime: time.Unix(0, 0)}
	if err := archive.WriteHeader(header); err != nil {
		return err
	}
	_, err := archive.Write(n)
	return err
}

// Over gives an image that answers from its skeleton and reads content that the
// skeleton does not have from the image itself. A skeleton that cannot be read
// is no loss: then all is read from the image.
func (i *Image) Over(skeleton Layer) *Over {
	return &Over{skeleton: New([]Layer{skeleton}), image: i}
}

// Over is an image with its skeleton: an ignition.Base.
type Over struct {
	skeleton *Image
	image    *Image
}

var _ ignition.Base = (*Over)(nil)

// names gives what answers for names and attributes.
func (o *Over) names() *Image {
	if o.skeleton == nil {
		return o.image
	}
	if _, err := o.skeleton.scan(0); err != nil {
		o.skeleton = nil
		return o.image
	}
	return o.skeleton
}

// Find is that of Image.
func (o *Over) Find(name string) (*ignition.Found, error) { return o.names().Find(name) }

// List is that of Image.
func (o *Over) List(name string) ([]string, error) { return o.names().List(name) }

// Read is that of Image.
func (o *Over) Read(name string) ([]byte, error) {
	if kept := o.names(); kept == o.skeleton {
		if e := kept.scans[0].entry(name); e != nil && e.isKept {
			return e.content, nil
		}
	}
	return o.image.Read(name)
}
