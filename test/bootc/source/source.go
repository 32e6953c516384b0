// Package source reads container images from a registry for the stand-in: first
// the manifest and configuration, by which an image is accepted or refused, and
// only then the layers.
package source

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"time"

	digest "github.com/opencontainers/go-digest"
	imgspecv1 "github.com/opencontainers/image-spec/specs-go/v1"
	"go.podman.io/image/v5/docker"
	"go.podman.io/image/v5/docker/reference"
	"go.podman.io/image/v5/image"
	"go.podman.io/image/v5/manifest"
	"go.podman.io/image/v5/pkg/blobinfocache/none"
	"go.podman.io/image/v5/signature"
	"go.podman.io/image/v5/types"
)

// Canonicalize returns an image name as bootc records it: a name with both tag
// and digest loses the tag, since the digest alone decides.
func Canonicalize(name string) (string, error) {
	named, err := reference.ParseNormalizedNamed(name)
	if err != nil {
		return "", fmt.Errorf("Parsing image reference %s: %w", name, err)
	}
	canonical, ok := named.(reference.Canonical)
	if !ok {
		return name, nil
	}
	return reference.TrimNamed(named).Name() + "@" + canonical.Digest().String(), nil
}

// Image is an image of this machine's platform whose manifest and configuration
// have been read. Close it after use.
type Image struct {
	// Name is the name it was opened by, Digest that of the platform's manifest,
	// also where the name leads to an index.
	Name    string
	Digest  digest.Digest
	Config  imgspecv1.Image
	Layers  []types.BlobInfo
	context *types.SystemContext
	source  types.ImageSource
}

// Open reads manifest and configuration after the signature policy has accepted
// the image.
func Open(ctx context.Context, system *types.SystemContext, name string) (*Image, error) {
	named, err := reference.ParseNormalizedNamed(name)
	if err != nil {
		return nil, fmt.Errorf("Parsing image reference %s: %w", name, err)
	}
	imageReference, err := docker.NewReference(reference.TagNameOnly(named))
	if err != nil {
		return nil, err
	}
	raw, err := imageReference.NewImageSource(ctx, system)
	if err != nil {
		return nil, fmt.Errorf("Creating importer: %w", err)
	}
	opened := &Image{Name: name, context: system, source: raw}
	if err := opened.read(ctx); err != nil {
		raw.Close()
		return nil, fmt.Errorf("Preparing import: %w", err)
	}
	return opened, nil
}

func (i *Image) read(ctx context.Context) error {
	unparsed := image.UnparsedInstance(i.source, nil)
	if err := accept(ctx, i.context, unparsed); err != nil {
		return err
	}
	content, err := i.platformManifest(ctx, unparsed)
	if err != nil {
		return err
	}
	if i.Digest, err = manifest.Digest(content); err != nil {
		return err
	}
	parsed, err := image.FromUnparsedImage(ctx, i.context, image.UnparsedInstance(i.source, &i.Digest))
	if err != nil {
		return err
	}
	config, err := parsed.OCIConfig(ctx)
	if err != nil {
		return err
	}
	i.Config, i.Layers = *config, parsed.LayerInfos()
	return nil
}

// platformManifest is the manifest itself, or the one an index has for this
// machine's platform.
func (i *Image) platformManifest(ctx context.Context, unparsed *image.UnparsedImage) ([]byte, error) {
	content, kind, err := unparsed.Manifest(ctx)
	if err != nil || !manifest.MIMETypeIsMultiImage(kind) {
		return content, err
	}
	index, err := manifest.ListFromBlob(content, kind)
	if err != nil {
		return nil, err
	}
	chosen, err := index.ChooseInstance(i.context)
	if err != nil {
		return nil, err
	}
	content, _, err = i.source.GetManifest(ctx, &chosen)
	return content, err
}

// accept applies containers-policy.json.
func accept(ctx context.Context, system *types.SystemContext, unparsed types.UnparsedImage) error {
	policy, err := signature.DefaultPolicy(system)
	if err != nil {
		return err
	}
	policyContext, err := signature.NewPolicyContext(policy)
	if err != nil {
		return err
	}
	defer func() { _ = policyContext.Destroy() }()
	_, err = policyContext.IsRunningImageAllowed(ctx, unparsed)
	return err
}

// Check refuses what cannot be booted here, by label and architecture.
func (i *Image) Check() error {
	_, isBootc := i.Config.Config.Labels["containers.bootc"]
	_, isBootable := i.Config.Config.Labels["ostree.bootable"]
	if !isBootc && !isBootable {
		return errors.New("Target image does not have ostree.bootable label")
	}
	if i.Config.Architecture != runtime.GOARCH {
		return fmt.Errorf("Image has architecture %s; expected %s", i.Config.Architecture, runtime.GOARCH)
	}
	return nil
}

// IsMissingBootcLabel tells that the image is bootable by the older label only.
func (i *Image) IsMissingBootcLabel() bool {
	_, isBootc := i.Config.Config.Labels["containers.bootc"]
	return !isBootc
}

// Version is the image's version label; empty when it has none.
func (i *Image) Version() string {
	return i.Config.Config.Labels["org.opencontainers.image.version"]
}

// Created is the time the image says it was made: label, then configuration.
func (i *Image) Created() *time.Time {
	if created, err := time.Parse(time.RFC3339, i.Config.Config.Labels["org.opencontainers.image.created"]); err == nil {
		return &created
	}
	return i.Config.Created
}

// Fetch brings every layer that is not there into the directory, as
// sha256/<hex>, and returns the paths from the lowest layer up.
func (i *Image) Fetch(ctx context.Context, directory string, progress func(string, ...any)) ([]string, error) {
	paths := make([]string, 0, len(i.Layers))
	for n, layer := range i.Layers {
		path := filepath.Join(directory, layer.Digest.Algorithm().String(), layer.Digest.Encoded())
		paths = append(paths, path)
		_, err := os.Stat(path)
		if err == nil {
			continue
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		progress("Fetching layer %d of %d, %s (%d bytes)", n+1, len(i.Layers), layer.Digest, layer.Size)
		if err := i.fetchOne(ctx, layer, path); err != nil {
			return nil, fmt.Errorf("Fetching layer %s: %w", layer.Digest, err)
		}
	}
	return paths, nil
}

// fetchOne gives the file its name only when the content has its digest.
func (i *Image) fetchOne(ctx context.Context, layer types.BlobInfo, path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	blob, _, err := i.source.GetBlob(ctx, layer, none.NoCache)
	if err != nil {
		return err
	}
	defer blob.Close()
	file, err := os.CreateTemp(filepath.Dir(path), ".fetching-")
	if err != nil {
		return err
	}
	defer os.Remove(file.Name())
	defer file.Close()
	if err := copyVerified(file, blob, layer.Digest); err != nil {
		return err
	}
	return os.Rename(file.Name(), path)
}

// Close ends the connection to the registry.
func (i *Image) Close() error { return i.source.Close() }
