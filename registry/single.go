package registry

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	v1 "github.com/opencontainers/image-spec/specs-go/v1"
)

// PushSingle pushes an image of one layer under the tags of a target: something
// that is kept in a repository beside the images made for nodes. It is an OCI
// image with the labels.
func PushSingle(ctx context.Context, to Target, layer NewLayer, labels map[string]string) error {
	config, err := json.Marshal(v1.Image{
		Platform: v1.Platform{OS: "linux", Architecture: to.Access.Architecture},
		Config:   v1.ImageConfig{Labels: labels},
		RootFS:   v1.RootFS{Type: "layers", DiffIDs: []digest.Digest{layer.DiffID}},
		History:  []v1.History{{CreatedBy: layer.CreatedBy}},
	})
	if err != nil {
		return fmt.Errorf("encode an image config: %w", err)
	}
	manifest, err := json.Marshal(v1.Manifest{
		Versioned: specs.Versioned{SchemaVersion: 2},
		MediaType: v1.MediaTypeImageManifest,
		Config:    v1.Descriptor{MediaType: v1.MediaTypeImageConfig, Digest: digest.FromBytes(config), Size: int64(len(config))},
		Layers:    []v1.Descriptor{{MediaType: v1.MediaTypeImageLayerGzip, Digest: layer.Digest, Size: int64(len(layer.Data))}},
	})
	if err != nil {
		return fmt.Errorf("encode a manifest: %w", err)
	}
	single := &Image{
		Repository: to.Repository, Digest: digest.FromBytes(manifest), MediaType: v1.MediaTypeImageManifest,
		Manifest: manifest, Config: config,
	}
	push := func() error { return pushSingle(ctx, to, single, layer) }
	return Wrap(to.Repository, Retry(ctx, push))
}

func pushSingle(ctx context.Context, to Target, single *Image, layer NewLayer) error {
	for _, name := range to.Tags {
		target, err := openTarget(ctx, to, name)
		if err != nil {
			return err
		}
		err = putNewBlobs(ctx, target, single, Change{Layers: []NewLayer{layer}})
		if err == nil {
			err = putManifest(ctx, target, single)
		}
		if closeErr := target.Close(); err == nil {
			err = closeErr
		}
		if err != nil {
			return err
		}
	}
	return nil
}
