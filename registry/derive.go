package registry

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/docker/distribution/registry/api/errcode"
	errcodev2 "github.com/docker/distribution/registry/api/v2"
	"github.com/opencontainers/go-digest"
	v1 "github.com/opencontainers/image-spec/specs-go/v1"
	"go.podman.io/image/v5/docker"
	"go.podman.io/image/v5/docker/reference"
	"go.podman.io/image/v5/pkg/blobinfocache/none"
	"go.podman.io/image/v5/types"
	"golang.org/x/sync/errgroup"
)

// Source is an image to start from.
type Source struct {
	Access Access
	// Image by tag or digest.
	Image string
}

// Target is where a new image goes.
type Target struct {
	Access Access
	// Repository is host[:port]/repository, or oci:DIRECTORY.
	Repository string
	// Tags it gets; none: it can be had by its digest only.
	Tags []string
	// Progress is called, one call at a time, with the bytes of layers that were
	// streamed so far; nil: nobody looks.
	Progress func(copied int64)
}

// Change is what a new image has besides what it is made from.
type Change struct {
	// Layers on top, the lowest first.
	Layers []NewLayer
	// Labels to set; an empty value takes a label away.
	Labels map[string]string
}

// NewLayer is a layer that the image does not have yet.
type NewLayer struct {
	// Data is a tar, compressed by gzip, and Digest is its digest. Nil: the
	// repository has the layer already, of Size bytes.
	Data   []byte
	Size   int64
	Digest digest.Digest
	// DiffID is the digest of the tar itself.
	DiffID digest.Digest
	// CreatedBy says in the image's history where the layer comes from.
	CreatedBy string
}

// size is that of the compressed layer in bytes.
func (l NewLayer) size() int64 {
	if l.Data == nil {
		return l.Size
	}
	return int64(len(l.Data))
}

// Derive makes a new image from one in a registry, without fetching its layers
// where the registry lets them be reused: in the same repository always, from
// another repository of the same registry if it can mount them. Other layers
// are streamed through, one piece at a time.
//
// The same source and the same change give the same digest. The image it
// returns has been pushed, and has its tags.
func Derive(ctx context.Context, from Source, to Target, change Change) (*Image, Transfer, error) {
	var derived *Image
	var transfer Transfer
	err := Retry(ctx, func() error {
		transfer = Transfer{}
		var err error
		derived, err = deriveOnce(ctx, from, to, change, &transfer)
		return err
	})
	if err != nil {
		return nil, transfer, Wrap(to.Repository, err)
	}
	return derived, transfer, nil
}

func deriveOnce(ctx context.Context, from Source, to Target, change Change, transfer *Transfer) (*Image, error) {
	source, base, err := Open(ctx, from.Access, from.Image)
	if err != nil {
		return nil, err
	}
	defer source.Close()
	derived, err := Preview(base, to.Repository, change)
	if err != nil {
		return nil, err
	}
	target, err := openTarget(ctx, to, unnamed(derived))
	if err != nil {
		return nil, err
	}
	defer target.Close()
	blobs := &blobMover{source: source, base: base, target: target, repository: to.Repository, transfer: transfer, progress: to.Progress}
	isSame := base.Repository == to.Repository
	if !isSame {
		if err := blobs.moveLayers(ctx); err != nil {
			return nil, err
		}
	}
	if err := putNewBlobs(ctx, target, derived, change); err != nil {
		return nil, Wrap(to.Repository, err)
	}
	err = putManifest(ctx, target, derived)
	if isSame && isBlobUnknown(err) {
		// A mirror answered for the source: the repository itself lacks the layers.
		if err = blobs.moveLayers(ctx); err == nil {
			err = putManifest(ctx, target, derived)
		}
	}
	if err != nil {
		return nil, Wrap(to.Repository, err)
	}
	if transfer.Reused+transfer.Copied == 0 {
		transfer.Reused = len(base.Layers)
	}
	return derived, tag(ctx, to, derived)
}

// Preview gives the image that Derive would push to a repository, without a
// request to any registry.
func Preview(base *Image, repository string, change Change) (*Image, error) {
	derived, err := edit(base, change)
	if err != nil {
		return nil, err
	}
	if IsLayout(repository) && derived.MediaType != v1.MediaTypeImageManifest {
		return nil, fmt.Errorf("image %s is %s, and an OCI image layout takes OCI images only", base.Reference(), derived.MediaType)
	}
	derived.Repository = repository
	return derived, nil
}

// unnamed is the tag of an image that is to have none: a registry finds it by
// its digest, a layout needs a name for that.
func unnamed(img *Image) string {
	if IsLayout(img.Repository) {
		return digestName(img.Digest)
	}
	return ""
}

// PushReference gives the reference under which a repository is written to; tag
// "" is by digest, which a layout does not have.
func PushReference(repository, tag string) (types.ImageReference, error) {
	if IsLayout(repository) {
		return Reference(Named(repository, tag))
	}
	named, err := reference.ParseNormalizedNamed(repository)
	if err != nil {
		return nil, fmt.Errorf("repository %q: %w", repository, err)
	}
	if tag == "" {
		return docker.NewReferenceUnknownDigest(named)
	}
	tagged, err := reference.WithTag(named, tag)
	if err != nil {
		return nil, fmt.Errorf("repository %s, tag %q: %w", repository, tag, err)
	}
	return docker.NewReference(tagged)
}

// openTarget opens a repository for writing; tag "" is by digest.
func openTarget(ctx context.Context, to Target, tag string) (types.ImageDestination, error) {
	sys, err := to.Access.System()
	if err != nil {
		return nil, err
	}
	ref, err := PushReference(to.Repository, tag)
	if err != nil {
		return nil, err
	}
	target, err := ref.NewImageDestination(ctx, sys)
	return target, Wrap(to.Repository, err)
}

// putNewBlobs pushes the layers of a change and the config.
func putNewBlobs(ctx context.Context, target types.ImageDestination, derived *Image, change Change) error {
	for _, layer := range change.Layers {
		if layer.Data == nil {
			continue
		}
		if err := putBlob(ctx, target, layer.Data, layer.Digest, false); err != nil {
			return fmt.Errorf("pushing a layer: %w", err)
		}
	}
	if err := putBlob(ctx, target, derived.Config, digest.FromBytes(derived.Config), true); err != nil {
		return fmt.Errorf("pushing the config: %w", err)
	}
	return nil
}

// putBlob pushes without asking first whether the blob is there: a digest in
// BlobInfo costs a request of its own. So the digest is compared here.
func putBlob(ctx context.Context, target types.ImageDestination, data []byte, want digest.Digest, isConfig bool) error {
	info := types.BlobInfo{Size: int64(len(data))}
	pushed, err := target.PutBlob(ctx, bytes.NewReader(data), info, none.NoCache, isConfig)
	if err != nil {
		return err
	}
	if pushed.Digest != want {
		return fmt.Errorf("the registry has %s, pushed was %s", pushed.Digest, want)
	}
	return nil
}

func putManifest(ctx context.Context, target types.ImageDestination, img *Image) error {
	if err := target.PutManifest(ctx, img.Manifest, nil); err != nil {
		return err
	}
	return target.Commit(ctx, nil) // a layout writes its index then; a registry does nothing
}

// isBlobUnknown reports whether a manifest was refused because of a layer that
// the repository does not have.
func isBlobUnknown(err error) bool {
	var coder errcode.ErrorCoder
	if errors.As(err, &coder) {
		code := coder.ErrorCode()
		return code == errcodev2.ErrorCodeManifestBlobUnknown || code == errcodev2.ErrorCodeBlobUnknown
	}
	return err != nil && strings.Contains(err.Error(), "blob unknown")
}

// Tag gives an image that is in a repository more tags there.
func Tag(ctx context.Context, access Access, img *Image, tags ...string) error {
	to := Target{Access: access, Repository: img.Repository, Tags: tags}
	return Wrap(img.Reference(), Retry(ctx, func() error { return tag(ctx, to, img) }))
}

func tag(ctx context.Context, to Target, img *Image) error {
	names := slices.Compact(slices.Clone(to.Tags))
	group, ctx := errgroup.WithContext(ctx)
	if IsLayout(img.Repository) {
		names = append(names, digestName(img.Digest))
		group.SetLimit(1) // each changes the one index of the layout
	}
	for _, name := range names {
		group.Go(func() error { return Wrap(Named(to.Repository, name), putTag(ctx, to, img, name)) })
	}
	return group.Wait()
}

func putTag(ctx context.Context, to Target, img *Image, name string) error {
	target, err := openTarget(ctx, to, name)
	if err != nil {
		return err
	}
	err = putManifest(ctx, target, img)
	return errors.Join(err, target.Close())
}
