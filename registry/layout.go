package registry

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/opencontainers/go-digest"
	"go.podman.io/image/v5/oci/layout"
	"go.podman.io/image/v5/types"

	"github.com/imagemode/imagemode/builder/request"
)

// layoutPrefix marks an OCI image layout, a directory, in the place of a
// repository: oci:DIRECTORY. Its images are named like tags,
// oci:DIRECTORY:NAME; one is found by its digest as sha256-<64 hex>.
const layoutPrefix = "oci:"

// IsLayout reports whether a repository is an OCI image layout.
func IsLayout(repository string) bool { return strings.HasPrefix(repository, layoutPrefix) }

// Layout gives the repository that an OCI image layout in a directory is. The
// directory need not be there to be read from. A path with a colon is an error: what
// is behind one is an image's name.
func Layout(directory string) (string, error) {
	path, err := filepath.Abs(directory)
	if err != nil {
		return "", err
	}
	if strings.Contains(path, ":") {
		return "", fmt.Errorf("the image layout %s: a colon in the path would part it from an image's name", path)
	}
	return layoutPrefix + path, nil
}

// MakeLayout makes the directory of a layout that is to be written to, if it is missing.
func MakeLayout(repository string) error {
	path := strings.TrimPrefix(repository, layoutPrefix)
	if err := os.MkdirAll(path, 0o755); err != nil {
		return fmt.Errorf("the image layout %s: %w", path, err)
	}
	return nil
}

// Named gives the reference of a tag of a repository.
func Named(repository, tag string) string { return repository + ":" + tag }

// digestName is the name by which a layout has an image for its digest.
func digestName(digest digest.Digest) string {
	return strings.ReplaceAll(digest.String(), ":", "-")
}

// layoutReference parses oci:DIRECTORY:NAME.
func layoutReference(image string) (types.ImageReference, error) {
	directory, name, found := strings.Cut(strings.TrimPrefix(image, layoutPrefix), ":")
	if !found || name == "" {
		return nil, fmt.Errorf("image reference %q: an image of a layout needs a name, oci:DIRECTORY:NAME", image)
	}
	reference, err := layout.NewReference(directory, name)
	if err != nil {
		return nil, wrapOpen(image, err)
	}
	return reference, nil
}

// layoutOf gives oci:DIRECTORY of oci:DIRECTORY:NAME.
func layoutOf(image string) string {
	directory, _, _ := strings.Cut(strings.TrimPrefix(image, layoutPrefix), ":")
	return layoutPrefix + directory
}

// wrapOpen is Wrap for an image that could not be opened: a layout that does not
// have it, or is not there yet, says so in its own way.
func wrapOpen(image string, err error) error {
	var missing layout.ImageNotFoundError
	if IsLayout(image) && (errors.As(err, &missing) || errors.Is(err, fs.ErrNotExist)) {
		return &Error{Class: request.Image, Image: image, Err: err}
	}
	return Wrap(image, err)
}
