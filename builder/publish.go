package builder

import (
	"context"
	"time"

	"github.com/imagemode/imagemode/builder/request"
	"github.com/imagemode/imagemode/registry"
)

// runPublish sets the labels, gives the image its tags and reads it back. No
// label names a pool or a MachineConfig: one image may serve several.
func runPublish(ctx context.Context, job *job, image *registry.Image) (*registry.Image, error) {
	to := job.target(job.tag, request.InputsTag(job.request.InputsHash))
	published, transfer, err := registry.Derive(ctx, job.source(image), to, registry.Change{Labels: labelsFor(job, image)})
	if err != nil {
		return nil, err
	}
	if image.Repository != job.repository {
		job.out.printf("  %s", transfer)
	}
	back, err := registry.Inspect(ctx, job.access(job.repository), job.pushSpec())
	if err != nil {
		return nil, err
	}
	if back.Digest != published.Digest {
		return nil, imageErrorf("%s was pushed as %s and reads back as %s: something else pushed there, too",
			job.pushSpec(), published.Digest, back.Digest)
	}
	return back, checkImage(job, back)
}

func labelsFor(job *job, image *registry.Image) map[string]string {
	labels := map[string]string{
		labelBase:     job.request.BaseImage,
		labelRevision: job.request.InputsHash,
	}
	if created := createdOf(job.os); created.Unix() > 0 {
		labels[labelCreated] = created.Format(time.RFC3339)
	}
	if _, known := image.Parsed.Config.Labels[labelVersion]; !known {
		if version := job.os.Parsed.Config.Labels[labelVersion]; version != "" {
			labels[labelVersion] = version
		}
	}
	return labels
}
