package registry

import (
	"context"

	"go.podman.io/image/v5/image"
	"go.podman.io/image/v5/manifest"
)

// Existence of an image in a registry. It has three answers, because a
// registry that is down must not look like a lost image.
type Existence string

// The answers.
const (
	// Present: the registry has it and lets these credentials read it.
	Present Existence = "Present"
	// Gone: the registry says that it has no such image.
	Gone Existence = "Gone"
	// Unknown: no answer, or one that does not tell (see the error's class).
	Unknown Existence = "Unknown"
)

// Exists asks whether the manifest of an image can be read. The error is nil
// for Present and Gone; for Unknown it is an *Error that says why.
func Exists(ctx context.Context, access Access, ref string) (Existence, error) {
	_, err := ResolveDigest(ctx, access, ref)
	switch {
	case err == nil:
		return Present, nil
	case IsGone(err):
		return Gone, nil
	}
	return Unknown, err
}

// ResolveDigest gives the digest (sha256:<64 hex>) of the manifest that a
// reference leads to: for a tag of a multi-architecture image, the index's.
func ResolveDigest(ctx context.Context, access Access, ref string) (string, error) {
	var found string
	err := Retry(ctx, func() error {
		sys, err := access.System()
		if err != nil {
			return err
		}
		parsed, err := Reference(ref)
		if err != nil {
			return err
		}
		source, err := parsed.NewImageSource(ctx, sys)
		if err != nil {
			return wrapOpen(ref, err)
		}
		defer source.Close()
		raw, _, err := image.UnparsedInstance(source, nil).Manifest(ctx)
		if err != nil {
			return Wrap(ref, err)
		}
		digest, err := manifest.Digest(raw)
		found = digest.String()
		return err
	})
	return found, Wrap(ref, err)
}
