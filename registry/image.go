package registry

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/opencontainers/go-digest"
	v1 "github.com/opencontainers/image-spec/specs-go/v1"
	"go.podman.io/image/v5/image"
	"go.podman.io/image/v5/manifest"
	"go.podman.io/image/v5/signature"
	"go.podman.io/image/v5/types"
)

// Image is what a registry says about one image of one architecture.
type Image struct {
	// Repository is host[:port]/repository, without tag and digest, or
	// oci:DIRECTORY.
	Repository string
	// Digest of the manifest for the architecture; where the reference led to a
	// multi-architecture index, it is not the index's.
	Digest digest.Digest
	// MediaType of Manifest.
	MediaType string
	// Manifest and Config as they are in the registry.
	Manifest []byte
	Config   []byte
	// Parsed is Config, as far as the OCI specification knows it.
	Parsed v1.Image
	// Layers, the lowest first.
	Layers []types.BlobInfo
}

// Reference gives Repository@Digest, or the name that stands for it in a layout.
func (i *Image) Reference() string {
	if IsLayout(i.Repository) {
		return Named(i.Repository, digestName(i.Digest))
	}
	return i.Repository + "@" + i.Digest.String()
}

// StandsOn reports whether the lowest layers of an image are those of base.
func (i *Image) StandsOn(base *Image) bool {
	below, all := base.Parsed.RootFS.DiffIDs, i.Parsed.RootFS.DiffIDs
	return len(all) >= len(below) && slices.Equal(below, all[:len(below)])
}

// Size is the sum of the compressed layers in bytes.
func (i *Image) Size() int64 {
	var sum int64
	for _, layer := range i.Layers {
		sum += layer.Size
	}
	return sum
}

// Inspect reads manifest and config of an image; no layer is fetched. An image
// that does not exist is an error for which IsGone holds.
func Inspect(ctx context.Context, access Access, ref string) (*Image, error) {
	var found *Image
	err := Retry(ctx, func() error {
		source, img, err := Open(ctx, access, ref)
		if err != nil {
			return err
		}
		found = img
		return source.Close()
	})
	if err != nil {
		return nil, Wrap(ref, err)
	}
	return found, nil
}

// Open is Inspect with the connection left open, for reading blobs. The caller
// closes the source. Nothing is retried.
func Open(ctx context.Context, access Access, ref string) (types.ImageSource, *Image, error) {
	sys, err := access.System()
	if err != nil {
		return nil, nil, err
	}
	parsed, err := Reference(ref)
	if err != nil {
		return nil, nil, err
	}
	source, err := parsed.NewImageSource(ctx, sys)
	if err != nil {
		return nil, nil, wrapOpen(ref, err)
	}
	found, err := read(ctx, sys, source)
	if err != nil {
		_ = source.Close() // the error that counts is err
		return nil, nil, Wrap(ref, err)
	}
	if found.Repository, err = Repository(ref); err != nil {
		_ = source.Close()
		return nil, nil, err
	}
	return source, found, nil
}

// read reads the manifest for the architecture of sys and its config.
func read(ctx context.Context, sys *types.SystemContext, source types.ImageSource) (*Image, error) {
	instance, err := chooseInstance(ctx, sys, source)
	if err != nil {
		return nil, err
	}
	if err := checkPolicy(ctx, sys, instance); err != nil {
		return nil, err
	}
	raw, mediaType, err := instance.Manifest(ctx)
	if err != nil {
		return nil, err
	}
	img, err := image.FromUnparsedImage(ctx, sys, instance)
	if err != nil {
		return nil, err
	}
	found := &Image{MediaType: mediaType, Manifest: raw, Layers: img.LayerInfos()}
	if found.Digest, err = manifest.Digest(raw); err != nil {
		return nil, err
	}
	if found.Config, err = img.ConfigBlob(ctx); err != nil {
		return nil, err
	}
	if err := json.Unmarshal(found.Config, &found.Parsed); err != nil {
		return nil, fmt.Errorf("its config is not JSON as the image specification has it: %w", err)
	}
	return found, nil
}

// chooseInstance picks the architecture of sys from an index; another manifest
// is taken as it is.
func chooseInstance(ctx context.Context, sys *types.SystemContext, source types.ImageSource) (*image.UnparsedImage, error) {
	top := image.UnparsedInstance(source, nil)
	raw, mediaType, err := top.Manifest(ctx)
	if err != nil {
		return nil, err
	}
	if !manifest.MIMETypeIsMultiImage(mediaType) {
		return top, nil
	}
	list, err := manifest.ListFromBlob(raw, mediaType)
	if err != nil {
		return nil, err
	}
	chosen, err := list.ChooseInstance(sys)
	if err != nil {
		return nil, err
	}
	return image.UnparsedInstance(source, &chosen), nil
}

func checkPolicy(ctx context.Context, sys *types.SystemContext, instance types.UnparsedImage) error {
	policy, err := Policy(sys)
	if err != nil {
		return err
	}
	rules, err := signature.NewPolicyContext(policy)
	if err != nil {
		return err
	}
	defer func() { _ = rules.Destroy() }()
	if allowed, err := rules.IsRunningImageAllowed(ctx, instance); !allowed {
		return fmt.Errorf("the signature policy does not allow it: %w", err)
	}
	return nil
}
