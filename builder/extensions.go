package builder

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"go.podman.io/image/v5/docker/reference"

	"github.com/imagemode/imagemode/containerfiles"
	"github.com/imagemode/imagemode/registry"
)

// extensionsInputs are all that decides what is installed.
func extensionsInputs(job *job) any {
	return struct {
		Extensions []string `json:"extensions,omitempty"`
		Kernel     string   `json:"kernel,omitempty"`
		Image      string   `json:"image"`
		Script     string   `json:"script"`
		runInputs
	}{
		slices.Compact(slices.Sorted(slices.Values(job.request.Extensions))), job.request.KernelType,
		digestOf(job.request.ExtensionsImage), containerfiles.ExtensionsRecipe(), runInputsOf(job),
	}
}

// digestOf gives the digest of a reference by digest: the name of a mirror makes
// no difference.
func digestOf(image string) string {
	if named, err := reference.ParseNamed(image); err == nil {
		if digested, ok := named.(reference.Digested); ok {
			return digested.Digest().String()
		}
	}
	return image
}

// runExtensions installs the extensions and the kernel with the package manager
// of the base.
func runExtensions(ctx context.Context, job *job, from *registry.Image) (*registry.Image, error) {
	return inWorkshop(job, func(w *workshop) (*registry.Image, error) {
		var packages containerfiles.Packages
		err := w.withFiles(ctx, job.request.ExtensionsImage, func(root *os.Root) (err error) {
			packages, err = packagesFor(job.request, root)
			return err
		})
		if err != nil {
			return nil, err
		}
		plan, err := containerfiles.Extensions(packages)
		if err != nil {
			return nil, err
		}
		job.out.printf("  installing %s", strings.Join(slices.Concat(packages.Install, packages.NewKernel), " "))
		image, err := w.buildAndPush(ctx, plan, from)
		return image, asPackagesError(err)
	})
}

// packagesError is a package manager that failed on what the user asked for by
// name; there is no line of a text to point to.
type packagesError struct{ *userError }

func (e *packagesError) Error() string {
	return fmt.Sprintf("installing extensions: %v", e.err)
}

func (e *packagesError) Unwrap() error { return e.userError }

func asPackagesError(err error) error {
	var user *userError
	if errors.As(err, &user) {
		user.line, user.instruction = 0, ""
		return &packagesError{user}
	}
	return err
}
