package registry

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
	containertypes "github.com/google/go-containerregistry/pkg/v1/types"
	"go.podman.io/image/v5/docker"
	"go.podman.io/image/v5/docker/reference"
	"go.podman.io/image/v5/pkg/docker/config"
)

// Tags lists the tags of a repository, host[:port]/path. A repository that does
// not exist has none.
func Tags(ctx context.Context, access Access, repository string) ([]string, error) {
	var tags []string
	err := Retry(ctx, func() error {
		sys, err := access.System()
		if err != nil {
			return err
		}
		named, err := reference.ParseNormalizedNamed(repository)
		if err != nil {
			return fmt.Errorf("repository %q: %w", repository, err)
		}
		ref, err := docker.NewReference(reference.TagNameOnly(named))
		if err != nil {
			return err
		}
		tags, err = docker.GetRepositoryTags(ctx, sys, ref)
		return Wrap(repository, err)
	})
	if IsGone(err) {
		return nil, nil
	}
	return tags, Wrap(repository, err)
}

// ErrCannotUntag says that a registry does not delete a tag without its image.
var ErrCannotUntag = errors.New("the registry deletes no tag by itself")

// Untag deletes a tag, host[:port]/path:tag, and leaves what it names. One that
// does not exist is no error. go.podman.io/image would delete the image behind
// it, with all other tags of it.
func Untag(ctx context.Context, access Access, image string) error {
	tag, err := name.NewTag(image, name.StrictValidation)
	if err != nil {
		return fmt.Errorf("tag %q: %w", image, err)
	}
	err = remove(ctx, access, tag)
	var answer *transport.Error
	if errors.As(err, &answer) && (answer.StatusCode == http.StatusMethodNotAllowed || answer.StatusCode == http.StatusBadRequest) {
		return Wrap(image, fmt.Errorf("%w: %w", ErrCannotUntag, err))
	}
	return Wrap(image, err)
}

// markerLabel tells whoever looks at the image what it is.
const markerLabel = "dev.imagemode.given-up"

// marker is an image of no layers and always the same digest.
var marker = mustMark()

func mustMark() v1.Image {
	image := mutate.ConfigMediaType(mutate.MediaType(empty.Image, containertypes.OCIManifestSchema1), containertypes.OCIConfigJSON)
	image, err := mutate.Config(image, v1.Config{Labels: map[string]string{markerLabel: "true"}})
	if err != nil {
		panic(err) // no layers, nothing to read
	}
	return image
}

// MarkerDigest is the digest of the image that Mark moves tags to.
func MarkerDigest() string {
	digest, err := marker.Digest()
	if err != nil {
		panic(err) // of bytes in memory
	}
	return digest.String()
}

// Mark moves a tag, host[:port]/path:tag, to an image that nobody uses. It is for
// registries that delete no tag by itself (ErrCannotUntag).
func Mark(ctx context.Context, access Access, image string) error {
	tag, err := name.NewTag(image, name.StrictValidation)
	if err != nil {
		return fmt.Errorf("tag %q: %w", image, err)
	}
	options, err := access.remoteOptions(tag.Context().Name())
	if err != nil {
		return err
	}
	return Retry(ctx, func() error {
		return Wrap(image, remote.Write(tag, marker, append(options, remote.WithContext(ctx))...))
	})
}

// Delete deletes an image by digest, host[:port]/path@sha256:…, with all its
// tags. One that does not exist is no error.
func Delete(ctx context.Context, access Access, image string) error {
	digest, err := name.NewDigest(image, name.StrictValidation)
	if err != nil {
		return fmt.Errorf("image %q: %w", image, err)
	}
	return Wrap(image, remove(ctx, access, digest))
}

func remove(ctx context.Context, access Access, ref name.Reference) error {
	options, err := access.remoteOptions(ref.Context().Name())
	if err != nil {
		return err
	}
	err = Retry(ctx, func() error {
		return Wrap(ref.Name(), remote.Delete(ref, append(options, remote.WithContext(ctx))...))
	})
	var answer *transport.Error
	if errors.As(err, &answer) && answer.StatusCode == http.StatusNotFound {
		return nil
	}
	return err
}

// remoteOptions give the access in the form of go-containerregistry.
func (a Access) remoteOptions(repository string) ([]remote.Option, error) {
	sys, err := a.System()
	if err != nil {
		return nil, err
	}
	named, err := reference.ParseNormalizedNamed(repository)
	if err != nil {
		return nil, fmt.Errorf("repository %q: %w", repository, err)
	}
	found, err := config.GetCredentialsForRef(sys, named)
	if err != nil {
		return nil, fmt.Errorf("credentials for %s: %w", repository, err)
	}
	credentials := authn.FromConfig(authn.AuthConfig{
		Username: found.Username, Password: found.Password, IdentityToken: found.IdentityToken,
	})
	pool, err := a.certificates()
	if err != nil {
		return nil, err
	}
	roundTripper := remote.DefaultTransport.(*http.Transport).Clone()
	if pool != nil {
		roundTripper.TLSClientConfig = &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
	}
	return []remote.Option{remote.WithAuth(credentials), remote.WithTransport(roundTripper)}, nil
}
