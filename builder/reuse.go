package builder

import (
	"context"

	"github.com/imagemode/imagemode/builder/request"
	"github.com/imagemode/imagemode/registry"
)

// findStep gives the image that an earlier build kept for a key; nil: there is
// none. What cannot be looked up is built: if the registry is out of order, the
// push will say so.
func findStep(ctx context.Context, job *job, key string, from *registry.Image) *registry.Image {
	if key == "" {
		return nil
	}
	found := lookUp(ctx, job, request.StepTag(key))
	if found == nil {
		return nil
	}
	if !found.StandsOn(from) {
		job.out.printf("  %s does not stand on %s and is made anew", found.Reference(), from.Reference())
		return nil
	}
	return found
}

// findWhole gives the image that an earlier build, of any pool, made from the
// same inputs; nil: there is none.
func findWhole(ctx context.Context, job *job) *registry.Image {
	found := lookUp(ctx, job, request.InputsTag(job.request.InputsHash))
	if found == nil {
		return nil
	}
	if revision := found.Parsed.Config.Labels[labelRevision]; revision != job.request.InputsHash {
		job.out.printf("  %s is made from the inputs %q, going by its label, and is not taken", found.Reference(), revision)
		return nil
	}
	if err := checkImage(job, found); err != nil {
		job.out.printf("  %v; it is not taken", err)
		return nil
	}
	return found
}

// lookUp gives the image of a tag in the repository that is pushed to; nil:
// there is none, or it cannot be told.
func lookUp(ctx context.Context, job *job, tag string) *registry.Image {
	found, err := registry.Inspect(ctx, job.access(job.repository), registry.Named(job.repository, tag))
	switch {
	case err == nil:
		return found
	case !registry.IsGone(err):
		job.out.printf("  looking for an earlier result: %v", err)
	}
	return nil
}

// takeWhole gives an image that is there already the tag of this build.
func takeWhole(ctx context.Context, job *job, image *registry.Image) error {
	return registry.Tag(ctx, job.access(job.repository), image, job.tag)
}
