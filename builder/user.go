package builder

import (
	"context"
	"time"

	"github.com/opencontainers/go-digest"
	"go.podman.io/buildah"
	"go.podman.io/buildah/define"

	"github.com/imagemode/imagemode/builder/request"
	"github.com/imagemode/imagemode/containerfiles"
	"github.com/imagemode/imagemode/registry"
)

// runUser builds the user's Containerfile and pushes the result without a tag.
func runUser(ctx context.Context, job *job, from *registry.Image) (*registry.Image, error) {
	return inWorkshop(job, func(w *workshop) (*registry.Image, error) {
		return w.buildAndPush(ctx, job.plan, from)
	})
}

// inWorkshop gives work the local side of a build.
func inWorkshop(job *job, work func(*workshop) (*registry.Image, error)) (*registry.Image, error) {
	workshop, err := openWorkshop(job)
	if err != nil {
		return nil, err
	}
	defer workshop.close()
	return work(workshop)
}

// buildAndPush builds a text, lints the result and pushes it without a tag.
func (w *workshop) buildAndPush(ctx context.Context, plan *containerfiles.Plan, from *registry.Image) (*registry.Image, error) {
	if err := w.copyLayers(ctx, from); err != nil {
		return nil, err
	}
	var id string
	var image *registry.Image
	for _, part := range []struct {
		name string
		run  func() error
	}{
		{"built", func() (err error) { id, err = w.build(ctx, plan, from); return err }},
		{"linted", func() error { return w.lint(ctx, id) }},
		{"pushed", func() (err error) { image, err = w.push(ctx, id); return err }},
	} {
		started := time.Now()
		if err := part.run(); err != nil {
			return nil, err
		}
		w.job.out.printf("  %s in %s", part.name, time.Since(started).Round(time.Millisecond))
	}
	return image, nil
}

// copyLayers brings the layers of the image below a text into the repository that
// is pushed to.
func (w *workshop) copyLayers(ctx context.Context, from *registry.Image) error {
	if from.Repository == w.job.repository || registry.IsLayout(w.job.repository) {
		return nil
	}
	to := w.job.target()
	transfer, err := registry.CopyLayers(ctx, w.job.source(from), to)
	if err == nil {
		w.job.out.printf("  %s", transfer)
	}
	return err
}

// push sends an image of the store to the repository, without a tag. What a
// push that broke off had sent already is not sent again.
func (w *workshop) push(ctx context.Context, id string) (*registry.Image, error) {
	tag := ""
	if registry.IsLayout(w.job.repository) {
		tag = "built-" + w.job.request.InputsHash
	}
	target, err := registry.PushReference(w.job.repository, tag)
	if err != nil {
		return nil, err
	}
	var digest digest.Digest
	err = registry.Retry(ctx, func() error {
		_, digest, err = buildah.Push(ctx, id, target, buildah.PushOptions{
			Store:         w.store,
			SystemContext: w.sys,
			Compression:   define.Gzip,
			ManifestType:  define.OCIv1ImageManifest,
			RetryDelay:    registry.RetryDelay,
			ReportWriter:  w.job.out.bars(),
		})
		return err
	})
	if err != nil {
		return nil, registry.Wrap(w.job.repository, err)
	}
	pushed := w.job.repository + "@" + digest.String()
	if tag != "" {
		pushed = registry.Named(w.job.repository, tag)
	}
	return registry.Inspect(ctx, w.job.access(w.job.repository), pushed)
}

// missingExtensions refuses a text that refers to an extensions image where
// the stream has none: buildah would look for it in public registries.
func missingExtensions(r *request.Request, plan *containerfiles.Plan) error {
	if plan.UsesExtensions && r.ExtensionsImage == "" {
		return &containerfiles.Error{Message: "it refers to the extensions image, and the OS stream has none"}
	}
	return nil
}
