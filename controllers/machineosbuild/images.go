package machineosbuild

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/imagemode/imagemode/controllers/pullsecret"
	"github.com/imagemode/imagemode/registry"
)

// revisionLabel of an image holds the image inputs hash.
const revisionLabel = "org.opencontainers.image.revision"

// readTimeout ends a request to a registry that does not answer. A reconcile
// waits for it, and other MachineOSConfigs wait for the worker.
const readTimeout = 15 * time.Second

// Images is what is asked of registries. Credentials are those of access, and
// whoever implements it must not use any of its own. Errors are *registry.Error
// where a registry, or the way to it, is to blame.
type Images interface {
	// Read reads manifest and config of an image by tag or digest.
	Read(ctx context.Context, access ImageAccess, image string) (ImageFacts, error)
	// Exists asks for the manifest of an image, and has three answers.
	Exists(ctx context.Context, access ImageAccess, image string) (registry.Existence, error)
	// Tag gives an image by digest another tag of its repository.
	Tag(ctx context.Context, access ImageAccess, image, tag string) error
	// Tags lists the tags of a repository, host[:port]/path.
	Tags(ctx context.Context, access ImageAccess, repository string) ([]string, error)
	// Untag deletes a tag, host[:port]/path:tag, and leaves its image. A registry
	// that cannot answers with registry.ErrCannotUntag.
	Untag(ctx context.Context, access ImageAccess, image string) error
	// Mark moves a tag, host[:port]/path:tag, to an image that nobody uses: the one
	// with registry.MarkerDigest.
	Mark(ctx context.Context, access ImageAccess, image string) error
	// Delete deletes an image by digest, with all its tags.
	Delete(ctx context.Context, access ImageAccess, image string) error
}

// ImageAccess is how a registry is reached.
type ImageAccess struct {
	// Credentials is a docker config.json.
	Credentials []byte
	// TrustBundle is PEM, added to the system's certificates; empty: none.
	TrustBundle string
}

// ImageFacts is what is known of an image that could be read.
type ImageFacts struct {
	// Digest of the manifest, sha256:<64 hex>.
	Digest string
	// InputsHash is the image inputs hash in the image's label, 64 hex.
	InputsHash string
	// Size of the layers as they are in the registry, in bytes.
	Size int64
}

// registries asks the real ones.
type registries struct{ architecture string }

func (r registries) Read(ctx context.Context, access ImageAccess, image string) (facts ImageFacts, err error) {
	err = r.with(ctx, access, func(ctx context.Context, access registry.Access) error {
		found, err := registry.Inspect(ctx, access, image)
		if err == nil {
			facts = ImageFacts{Digest: found.Digest.String(), InputsHash: found.Parsed.Config.Labels[revisionLabel], Size: found.Size()}
		}
		return err
	})
	return facts, err
}

func (r registries) Exists(ctx context.Context, access ImageAccess, image string) (existence registry.Existence, err error) {
	existence = registry.Unknown
	err = r.with(ctx, access, func(ctx context.Context, access registry.Access) (err error) {
		existence, err = registry.Exists(ctx, access, image)
		return err
	})
	return existence, err
}

func (r registries) Tag(ctx context.Context, access ImageAccess, image, tag string) error {
	return r.with(ctx, access, func(ctx context.Context, access registry.Access) error {
		found, err := registry.Inspect(ctx, access, image)
		if err != nil {
			return err
		}
		return registry.Tag(ctx, access, found, tag)
	})
}

func (r registries) Tags(ctx context.Context, access ImageAccess, repository string) (tags []string, err error) {
	err = r.with(ctx, access, func(ctx context.Context, access registry.Access) (err error) {
		tags, err = registry.Tags(ctx, access, repository)
		return err
	})
	return tags, err
}

func (r registries) Untag(ctx context.Context, access ImageAccess, image string) error {
	return r.with(ctx, access, func(ctx context.Context, access registry.Access) error {
		return registry.Untag(ctx, access, image)
	})
}

func (r registries) Mark(ctx context.Context, access ImageAccess, image string) error {
	return r.with(ctx, access, func(ctx context.Context, access registry.Access) error {
		return registry.Mark(ctx, access, image)
	})
}

func (r registries) Delete(ctx context.Context, access ImageAccess, image string) error {
	return r.with(ctx, access, func(ctx context.Context, access registry.Access) error {
		return registry.Delete(ctx, access, image)
	})
}

// with writes credentials and certificates to files, since that is how they are
// passed on, and deletes them before it returns.
func (r registries) with(ctx context.Context, access ImageAccess, ask func(context.Context, registry.Access) error) error {
	directory, err := os.MkdirTemp("", "registry-")
	if err != nil {
		return fmt.Errorf("ask a registry: %w", err)
	}
	defer os.RemoveAll(directory)
	files := registry.Access{
		AuthFile:     filepath.Join(directory, "config.json"),
		TrustBundle:  filepath.Join(directory, "ca-bundle.crt"),
		Architecture: r.architecture,
	}
	err = errors.Join(
		os.WriteFile(files.AuthFile, access.Credentials, 0o600),
		os.WriteFile(files.TrustBundle, []byte(access.TrustBundle), 0o600),
	)
	if err != nil {
		return fmt.Errorf("ask a registry: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	return ask(ctx, files)
}

// accessWith is how the registry is reached with the Secret that ref names. The
// error names secret and field.
func (s *scope) accessWith(ref secretRef) (ImageAccess, error) {
	credentials, err := s.authsOf(ref)
	if err != nil {
		return ImageAccess{}, err
	}
	return s.accessFor(credentials)
}

// pullAccess is how a builder reaches registries that it pulls from.
func (s *scope) pullAccess() (ImageAccess, error) {
	credentials, err := s.pullAuths()
	if err != nil {
		return ImageAccess{}, err
	}
	return s.accessFor(credentials)
}

func (s *scope) accessFor(credentials pullsecret.Auths) (ImageAccess, error) {
	config, err := credentials.ConfigJSON()
	return ImageAccess{Credentials: config, TrustBundle: s.site.trustBundle}, err
}
