package builder

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"

	"go.podman.io/image/v5/pkg/blobinfocache/none"
	"go.podman.io/image/v5/types"

	"github.com/imagemode/imagemode/builder/baseimage"
	"github.com/imagemode/imagemode/builder/request"
	"github.com/imagemode/imagemode/ignition"
	"github.com/imagemode/imagemode/registry"
)

// makeLayer makes the layer of the config without a look into the base image.
// nil: it takes one. What no image can hold is refused in either case.
func makeLayer(job *job) (*ignition.Layer, error) {
	layer, err := layerOn(job, ignition.DefaultBase())
	if errors.Is(err, ignition.ErrBaseUnread) {
		return nil, nil
	}
	return layer, err
}

func layerOn(job *job, base ignition.Base) (*ignition.Layer, error) {
	layer, err := ignition.NewLayer(job.config, base, job.request.KernelArguments)
	if err != nil {
		return nil, err
	}
	problems, err := ignition.Lint(layer.Data)
	if err != nil {
		return nil, err
	}
	if len(problems) > 0 {
		return nil, &ignition.RefusedError{Problems: problems}
	}
	return layer, nil
}

// configLayer gives the layer of the config for the image that it goes on. It
// reads that image only if the config needs something of it.
func configLayer(ctx context.Context, job *job, from *registry.Image) (*ignition.Layer, error) {
	if job.layer != nil {
		return job.layer, nil
	}
	job.out.printf("  the config needs to know what %s has", from.Reference())
	var source types.ImageSource
	var image *registry.Image
	err := registry.Retry(ctx, func() (err error) {
		source, image, err = registry.Open(ctx, job.access(from.Repository), from.Reference())
		return err
	})
	if err != nil {
		return nil, err
	}
	defer source.Close()
	files := baseimage.New(layersOf(ctx, source, image))
	var base ignition.Base = files
	if skeleton, kept := findSkeleton(ctx, job, from); kept != nil {
		defer kept.Close()
		job.out.printf("  an earlier build has kept the names of its files")
		base = files.Over(skeleton)
	}
	var layer *ignition.Layer
	err = registry.Retry(ctx, func() (err error) {
		layer, err = layerOn(job, base)
		return err
	})
	if err != nil {
		return nil, err
	}
	if files.IsRead() {
		keepSkeleton(ctx, job, from, files)
	}
	return layer, nil
}

// layersOf gives the layers of an image for reading.
func layersOf(ctx context.Context, source types.ImageSource, image *registry.Image) []baseimage.Layer {
	layers := make([]baseimage.Layer, len(image.Layers))
	for i, layer := range image.Layers {
		layers[i] = baseimage.Layer{Digest: layer.Digest, Open: func() (io.ReadCloser, error) {
			stream, _, err := source.GetBlob(ctx, layer, none.NoCache)
			if err != nil {
				return nil, registry.Wrap(image.Reference(), err)
			}
			return &layerStream{stream, image.Reference()}, nil
		}}
	}
	return layers
}

// layerStream makes what breaks a stream off an error of the registry, which is
// tried again.
type layerStream struct {
	io.ReadCloser
	image string
}

func (s *layerStream) Read(p []byte) (int, error) {
	n, err := s.ReadCloser.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		err = registry.Wrap(s.image, err)
	}
	return n, err
}

// labelSkeleton says on a skeleton of which image it is one.
const labelSkeleton = "dev.imagemode.skeleton-of"

// skeletonKey says where the skeleton of an image is kept: among the results of
// steps, which go when nothing has used them for a while.
func skeletonKey(image *registry.Image) string {
	sum := sha256.Sum256([]byte("skeleton 1\n" + image.Digest.String()))
	return hex.EncodeToString(sum[:])
}

// findSkeleton looks for the skeleton that an earlier build kept; a nil source:
// there is none, or the registry does not say.
func findSkeleton(ctx context.Context, job *job, from *registry.Image) (baseimage.Layer, types.ImageSource) {
	key := skeletonKey(from)
	source, image, err := registry.Open(ctx, job.access(job.repository), job.repository+":"+request.StepTag(key))
	if err != nil {
		return baseimage.Layer{}, nil
	}
	if image.Parsed.Config.Labels[labelSkeleton] != from.Digest.String() || len(image.Layers) != 1 {
		_ = source.Close() // nothing was written
		return baseimage.Layer{}, nil
	}
	job.skeleton = key
	return layersOf(ctx, source, image)[0], source
}

// keepSkeleton keeps the skeleton of an image that had to be read to its last
// layer. The build does not depend on it.
func keepSkeleton(ctx context.Context, job *job, from *registry.Image, files *baseimage.Image) {
	key := skeletonKey(from)
	skeleton, err := files.Skeleton()
	if err == nil {
		to := registry.Target{Access: job.access(job.repository), Repository: job.repository, Tags: []string{request.StepTag(key)}}
		err = registry.PushSingle(ctx, to, registry.NewLayer{
			Data: skeleton.Data, Digest: skeleton.Digest, DiffID: skeleton.DiffID, CreatedBy: "imagemode: the names of the files of another image",
		}, map[string]string{labelSkeleton: from.Digest.String()})
	}
	if err != nil {
		job.out.printf("  the next build has to read the base image again: %v", err)
		return
	}
	job.skeleton = key
	job.out.printf("  all of it was read; the names of its files are kept for the next build, %d bytes", len(skeleton.Data))
}
