package builder

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/imagemode/imagemode/builder/request"
	"github.com/imagemode/imagemode/registry"
)

// Options of a build.
type Options struct {
	// Dir holds the files of builder/request.
	Dir string
	// Storage is a directory for images and layers, on a disk file system. It is
	// made when it is missing and may be kept from one build to the next.
	Storage string
	// Out gets the progress as plain lines.
	Out io.Writer
	// KeepCredentials leaves the credentials in Dir. They are removed otherwise,
	// before the user's text runs: on a workstation they may be the only copy.
	KeepCredentials bool
}

// Build makes the image that the request in options.Dir asks for. The Result
// is complete in every case; the error is that of its Failure.
func Build(ctx context.Context, options Options) (request.Result, error) {
	out := newProgress(options.Out)
	result := request.Result{}
	job, err := newJob(options, out)
	if err != nil {
		return fail(out, result, "inputs", err)
	}
	defer job.close()
	out.printf("build %s: base %s, push to %s", job.request.Name, job.request.BaseImage, job.request.PushSpec)
	var image *registry.Image
	for _, step := range stepsFor(job) {
		started := time.Now()
		out.startStep(step.name)
		image, err = step.run(ctx, job, image)
		took := time.Since(started).Round(time.Millisecond)
		result.Steps = append(result.Steps, request.Step{Name: step.name, Duration: metav1.Duration{Duration: took}})
		if err != nil {
			return fail(out, result, step.name, err)
		}
		out.printf("step %s: done in %s", step.name, took)
	}
	result.Digest = image.Digest.String()
	result.Size = image.Size()
	out.printf("build %s: %s, %.1f MB in %d layers", job.request.Name, image.Reference(), float64(result.Size)/1e6, len(image.Layers))
	return result, nil
}

// fail turns err into the Failure of result.
func fail(out *progress, result request.Result, step string, err error) (request.Result, error) {
	result.Failure = failureOf(step, err)
	out.printf("step %s: failed (%s): %s", step, result.Failure.Class, result.Failure.Message)
	return result, fmt.Errorf("step %s: %w", step, err)
}

// errNoImage guards against a step list without a first step.
var errNoImage = errors.New("there is no image to go on from")
