package local

import (
	"context"
	"path/filepath"

	"github.com/imagemode/imagemode/registry"
)

// Relabel pushes an image of the registry with other labels, into a repository of
// the same registry. It returns the new image by digest.
func Relabel(ctx context.Context, image, repository string, labels map[string]string) (string, error) {
	access := registry.Access{AuthFile: filepath.Join(registryDir, "push.json"), TrustBundle: CAFile}
	derived, _, err := registry.Derive(ctx,
		registry.Source{Access: access, Image: image},
		registry.Target{Access: access, Repository: repository, Tags: []string{"relabelled"}},
		registry.Change{Labels: labels})
	if err != nil {
		return "", err
	}
	return repository + "@" + derived.Digest.String(), nil
}
