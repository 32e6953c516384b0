package osimagestream

import (
	"context"
	"errors"
	"maps"

	"github.com/imagemode/imagemode/builder/request"
	"github.com/imagemode/imagemode/controllers/osimagestream/streams"
	"github.com/imagemode/imagemode/registry"
)

// ImageReader reads what registries say of images. Its errors are
// *registry.Error; nothing is retried.
type ImageReader interface {
	// Labels reads the labels of an image's config.
	Labels(ctx context.Context, image string) (map[string]string, error)
	// File reads one file of an image, of at most limit bytes.
	File(ctx context.Context, image, path string, limit int64) ([]byte, error)
}

// registryImages asks the real registries.
type registryImages struct{ access registry.Access }

// Labels returns those that matter for streams.
func (r registryImages) Labels(ctx context.Context, image string) (map[string]string, error) {
	if err := refuseLayout(image); err != nil {
		return nil, err
	}
	source, found, err := registry.Open(ctx, r.access, image)
	if err != nil {
		return nil, err
	}
	return labelsOfStreams(found.Parsed.Config.Labels), source.Close()
}

// labelsOfStreams keeps the labels that matter. Of values that are too long that of
// the stream's name is cut, to be reported; the others say nothing.
func labelsOfStreams(all map[string]string) map[string]string {
	labels := maps.Clone(all)
	maps.DeleteFunc(labels, func(label, value string) bool {
		return !isOfStreams(label) || len(value) > maxLabel && label != streams.LabelStream
	})
	if name := labels[streams.LabelStream]; len(name) > maxLabel {
		labels[streams.LabelStream] = streams.Truncate(name, maxLabel)
	}
	return labels
}

// File reads it as registry.ReadFile does.
func (r registryImages) File(ctx context.Context, image, path string, limit int64) ([]byte, error) {
	if err := refuseLayout(image); err != nil {
		return nil, err
	}
	return registry.ReadFile(ctx, r.access, image, path, limit)
}

// refuseLayout keeps what a payload or a user names from being read out of this
// program's own file system.
func refuseLayout(image string) error {
	if !registry.IsLayout(image) {
		return nil
	}
	return &registry.Error{Class: request.Image, Image: image, Err: errors.New("it is a directory, and not an image in a registry")}
}

// maxLabel bounds the value of a label in bytes: all of them are names or short
// lists, and they are kept in an object.
const maxLabel = 256

func isOfStreams(label string) bool {
	for _, known := range streams.Labels {
		if label == known {
			return true
		}
	}
	return false
}
