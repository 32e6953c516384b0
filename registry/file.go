package registry

import (
	"archive/tar"
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"strings"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"go.podman.io/image/v5/pkg/blobinfocache/none"
	"go.podman.io/image/v5/types"

	"github.com/imagemode/imagemode/builder/request"
)

// maxUnpacked bounds what is unpacked of one layer, in bytes.
const maxUnpacked = 2 << 30

// errDeleted says that a layer takes the file away.
var errDeleted = errors.New("deleted by a layer")

// ReadFile reads one regular file of an image, by its path without a leading
// slash, of at most limit bytes. Layers are fetched from the last backwards, as
// far as needed; what was fetched is checked against its digest. Links are not
// followed. A file that the image does not have is an error for which
// errors.Is(err, fs.ErrNotExist) holds. Nothing is retried.
func ReadFile(ctx context.Context, access Access, ref, name string, limit int64) ([]byte, error) {
	source, img, err := Open(ctx, access, ref)
	if err != nil {
		return nil, err
	}
	defer source.Close()
	for i := len(img.Layers) - 1; i >= 0; i-- {
		content, err := readFromLayer(ctx, source, img.Layers[i], name, limit)
		switch {
		case err == nil:
			return content, nil
		case errors.Is(err, errDeleted):
			i = 0 // nothing below counts
		case !errors.Is(err, fs.ErrNotExist):
			return nil, blame(ref, fmt.Errorf("layer %s: %w", img.Layers[i].Digest, err))
		}
	}
	return nil, &Error{Class: request.Image, Image: ref, Err: fmt.Errorf("file %s: %w", name, fs.ErrNotExist)}
}

// contentError says what is wrong with the file itself.
type contentError string

func (e contentError) Error() string { return string(e) }

func blame(ref string, err error) error {
	if content := contentError(""); errors.As(err, &content) {
		return &Error{Class: request.Image, Image: ref, Err: err}
	}
	return Wrap(ref, err)
}

// readFromLayer reads a layer to its end, so that its digest can be checked.
func readFromLayer(ctx context.Context, source types.ImageSource, layer types.BlobInfo, name string, limit int64) ([]byte, error) {
	stream, _, err := source.GetBlob(ctx, layer, none.NoCache)
	if err != nil {
		return nil, err
	}
	defer stream.Close()
	verifier := layer.Digest.Verifier()
	checked := io.TeeReader(stream, verifier)
	content, found := searchLayer(checked, name, limit)
	if found != nil && !errors.Is(found, fs.ErrNotExist) && !errors.Is(found, errDeleted) {
		return nil, found
	}
	if _, err := io.Copy(io.Discard, checked); err != nil {
		return nil, err
	}
	if !verifier.Verified() {
		return nil, contentError("the registry sent other bytes than the digest says")
	}
	return content, found
}

// searchLayer finds a file in a compressed or plain tar.
func searchLayer(packed io.Reader, name string, limit int64) ([]byte, error) {
	plain, closer, err := unpack(packed)
	if err != nil {
		return nil, err
	}
	defer closer()
	archive := tar.NewReader(io.LimitReader(plain, maxUnpacked))
	isDeleted := false
	for {
		header, err := archive.Next()
		switch {
		case errors.Is(err, io.EOF) && isDeleted:
			return nil, errDeleted
		case errors.Is(err, io.EOF):
			return nil, fs.ErrNotExist
		case err != nil:
			return nil, err
		}
		entry := strings.TrimPrefix(path.Clean("/"+header.Name), "/")
		isDeleted = isDeleted || hides(entry, name)
		if entry == name {
			return readEntry(archive, header, limit)
		}
	}
}

func readEntry(archive io.Reader, header *tar.Header, limit int64) ([]byte, error) {
	if header.Typeflag != tar.TypeReg {
		return nil, contentError(header.Name + " is no regular file")
	}
	if header.Size > limit {
		return nil, contentError(fmt.Sprintf("%s has %d bytes, and %d are read at most", header.Name, header.Size, limit))
	}
	return io.ReadAll(archive)
}

// hides reports whether an entry of a layer is a whiteout that takes away what
// layers below have under name.
func hides(entry, name string) bool {
	directory, base := path.Split(entry)
	if base == ".wh..wh..opq" {
		return strings.HasPrefix(name, directory)
	}
	hidden, isWhiteout := strings.CutPrefix(base, ".wh.")
	return isWhiteout && (name == directory+hidden || strings.HasPrefix(name, directory+hidden+"/"))
}

// unpack takes off the compression that the first bytes tell.
func unpack(packed io.Reader) (io.Reader, func(), error) {
	buffered := bufio.NewReader(packed)
	magic, err := buffered.Peek(4)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, nil, err
	}
	switch {
	case bytes.HasPrefix(magic, []byte{0x1f, 0x8b}):
		reader, err := gzip.NewReader(buffered)
		return reader, func() {}, err
	case bytes.Equal(magic, []byte{0x28, 0xb5, 0x2f, 0xfd}):
		reader, err := zstd.NewReader(buffered, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(256<<20))
		if err != nil {
			return nil, nil, err
		}
		return reader, reader.Close, nil
	}
	return buffered, func() {}, nil
}
