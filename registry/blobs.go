package registry

import (
	"context"
	"fmt"
	"io"
	"strings"
	"sync"

	"github.com/opencontainers/go-digest"
	"go.podman.io/image/v5/docker"
	"go.podman.io/image/v5/docker/reference"
	"go.podman.io/image/v5/pkg/blobinfocache/memory"
	"go.podman.io/image/v5/pkg/blobinfocache/none"
	"go.podman.io/image/v5/types"
	"golang.org/x/sync/errgroup"
)

// Transfer counts how the layers of a base came into another repository.
type Transfer struct {
	// Reused layers were there already or were mounted by the registry.
	Reused int
	// Copied layers were streamed through this program, CopiedBytes in all.
	Copied      int
	CopiedBytes int64
}

func (t Transfer) String() string {
	if t.Copied == 0 {
		return fmt.Sprintf("%d layers reused, none copied", t.Reused)
	}
	return fmt.Sprintf("%d layers reused, %d copied (%d bytes) because the registry could not reuse them", t.Reused, t.Copied, t.CopiedBytes)
}

// parallelBlobs is how many layers are asked for side by side: more brings
// nothing on a network with 20 ms, and opens as many connections.
const parallelBlobs = 16

// blobMover brings the layers of base into another repository.
type blobMover struct {
	source     types.ImageSource
	base       *Image
	target     types.ImageDestination
	repository string

	mutex    sync.Mutex
	transfer *Transfer
	// moved are the bytes streamed so far, of layers not yet done, too.
	moved    int64
	progress func(copied int64)
}

// Write takes note of bytes that are streamed.
func (b *blobMover) Write(data []byte) (int, error) {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	b.moved += int64(len(data))
	if b.progress != nil {
		b.progress(b.moved)
	}
	return len(data), nil
}

// CopyLayers brings the layers of an image into another repository, as they are:
// a program that pulls, changes and pushes an image compresses layers anew that it
// does not find there, and nodes that have them would fetch them again. No
// manifest is pushed.
func CopyLayers(ctx context.Context, from Source, to Target) (Transfer, error) {
	var transfer Transfer
	err := Retry(ctx, func() error {
		transfer = Transfer{}
		source, base, err := Open(ctx, from.Access, from.Image)
		if err != nil {
			return err
		}
		defer source.Close()
		target, err := openTarget(ctx, to, unnamed(&Image{Repository: to.Repository, Digest: base.Digest}))
		if err != nil {
			return err
		}
		defer target.Close()
		mover := &blobMover{source: source, base: base, target: target, repository: to.Repository, transfer: &transfer, progress: to.Progress}
		return mover.moveLayers(ctx)
	})
	return transfer, Wrap(to.Repository, err)
}

func (b *blobMover) moveLayers(ctx context.Context) error {
	cache, err := b.locations(ctx)
	if err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(parallelBlobs)
	seen := map[digest.Digest]bool{}
	for _, layer := range b.base.Layers {
		if seen[layer.Digest] {
			continue
		}
		seen[layer.Digest] = true
		group.Go(func() error { return b.moveLayer(ctx, layer, cache) })
	}
	return group.Wait()
}

func (b *blobMover) moveLayer(ctx context.Context, layer types.BlobInfo, cache types.BlobInfoCache) error {
	reused, _, err := b.target.TryReusingBlob(ctx, layer, cache, false)
	if err == nil && reused {
		b.count(0, true)
		return nil
	}
	// A registry that fails to mount may still take an upload.
	stream, _, err := b.source.GetBlob(ctx, layer, none.NoCache)
	if err != nil {
		return Wrap(b.base.Reference(), fmt.Errorf("reading layer %s: %w", layer.Digest, err))
	}
	defer stream.Close()
	verifier := layer.Digest.Verifier()
	info := types.BlobInfo{Digest: layer.Digest, Size: layer.Size}
	if _, err := b.target.PutBlob(ctx, io.TeeReader(stream, io.MultiWriter(verifier, b)), info, none.NoCache, false); err != nil {
		return Wrap(b.repository, fmt.Errorf("copying layer %s: %w", layer.Digest, err))
	}
	b.count(layer.Size, false)
	return nil
}

func (b *blobMover) count(size int64, reused bool) {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	if reused {
		b.transfer.Reused++
		return
	}
	b.transfer.Copied++
	b.transfer.CopiedBytes += size
}

// locations tells the destination in which repository of its own registry the
// layers of the base are: that is what it mounts from. The strings are those
// the library itself uses, learnt by reading the config: mirrors of
// registries.conf are applied in them.
func (b *blobMover) locations(ctx context.Context) (types.BlobInfoCache, error) {
	recorder := &locationRecorder{BlobInfoCache: none.NoCache}
	stream, _, err := b.source.GetBlob(ctx, configBlob(b.base), recorder)
	if err != nil {
		return nil, Wrap(b.base.Reference(), err)
	}
	_ = stream.Close() // only the request counts
	cache := memory.New()
	if IsLayout(b.repository) {
		return cache, nil
	}
	domain, err := registryOf(b.repository)
	if err != nil {
		return nil, err
	}
	if !recorder.known || recorder.scope.Opaque != domain {
		return cache, nil
	}
	for _, layer := range b.base.Layers {
		cache.RecordKnownLocation(docker.Transport, recorder.scope, layer.Digest, recorder.location)
		recordCompression(cache, layer)
	}
	return cache, nil
}

func configBlob(img *Image) types.BlobInfo {
	return types.BlobInfo{Digest: digest.FromBytes(img.Config), Size: int64(len(img.Config))}
}

func registryOf(repository string) (string, error) {
	named, err := reference.ParseNormalizedNamed(repository)
	if err != nil {
		return "", fmt.Errorf("repository %q: %w", repository, err)
	}
	return reference.Domain(named), nil
}

// locationRecorder learns by which strings the library calls a repository.
type locationRecorder struct {
	types.BlobInfoCache
	known    bool
	scope    types.BICTransportScope
	location types.BICLocationReference
}

func (r *locationRecorder) RecordKnownLocation(_ types.ImageTransport, scope types.BICTransportScope, _ digest.Digest, location types.BICLocationReference) {
	r.known, r.scope, r.location = true, scope, location
}

// recordCompression notes how a layer is compressed: the library mounts no
// blob of which it does not know. The method for it takes a struct of an
// internal package, which cannot be written here but can be inferred; if the
// library changes it, this does not compile.
func recordCompression(cache types.BlobInfoCache, layer types.BlobInfo) {
	data := zeroArgument(none.NoCache.RecordDigestCompressorData)
	data.BaseVariantCompressor = compressor(layer.MediaType)
	data.SpecificVariantCompressor = "unknown"
	asType(none.NoCache, cache).RecordDigestCompressorData(layer.Digest, data)
}

func zeroArgument[D any](func(digest.Digest, D)) (zero D) { return zero }

func asType[T any](_ T, value any) T { return value.(T) }

func compressor(mediaType string) string {
	switch {
	case strings.HasSuffix(mediaType, "+zstd") || strings.HasSuffix(mediaType, ".zstd"):
		return "zstd"
	case strings.HasSuffix(mediaType, "gzip"):
		return "gzip"
	}
	return "uncompressed"
}
