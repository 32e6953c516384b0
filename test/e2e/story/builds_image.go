package story

import (
	"archive/tar"
	"context"
	"errors"
	"io"
	"path"

	"github.com/klauspost/compress/gzip"
	"go.podman.io/image/v5/pkg/blobinfocache/none"
	"go.podman.io/image/v5/types"

	"github.com/imagemode/imagemode/registry"
	"github.com/imagemode/imagemode/test/e2e/local"
)

// maxAddedFile bounds what is kept of one file of an image.
const maxAddedFile = 1 << 20

// Content is what an image has besides the image it was made from.
type Content struct {
	*registry.Image
	// Added are the files in its own layers, by path, the last of each.
	Added map[string]string
}

// ContentOf reads an image of the local registry, or reached through another
// host that leads there.
func (s *Story) ContentOf(ctx context.Context, image string) (*Content, error) {
	access := registry.Access{AuthFile: local.AuthFile("push"), TrustBundle: local.CAFile}
	source, found, err := registry.Open(ctx, access, atRegistry(image))
	if err != nil {
		return nil, err
	}
	defer source.Close()
	base, err := registry.Inspect(ctx, access, atRegistry(found.Parsed.Config.Labels["baseOSContainerImage"]))
	if err != nil {
		return nil, err
	}
	content := &Content{Image: found, Added: map[string]string{}}
	for _, layer := range found.Layers[len(base.Layers):] {
		if err := content.addLayer(ctx, source, layer); err != nil {
			return nil, err
		}
	}
	return content, nil
}

func (c *Content) addLayer(ctx context.Context, source types.ImageSource, layer types.BlobInfo) error {
	stream, _, err := source.GetBlob(ctx, layer, none.NoCache)
	if err != nil {
		return err
	}
	defer stream.Close()
	unpacker, err := gzip.NewReader(stream)
	if err != nil {
		return err
	}
	for archive := tar.NewReader(unpacker); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		kept, err := io.ReadAll(io.LimitReader(archive, maxAddedFile))
		if err != nil {
			return err
		}
		if header.Typeflag == tar.TypeReg {
			c.Added[path.Clean("/"+header.Name)] = string(kept)
		}
	}
}

// atRegistry names an image by the registry's own host.
func atRegistry(image string) string {
	for i := range image {
		if image[i] == '/' {
			return local.Registry + image[i:]
		}
	}
	return image
}
