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
	// Dir holds the files of builder/request. It may be empty where Request is
	// set.
	Dir string
	// Request is a file with the request, in place of the one in Dir. What Dir has
	// no credentials for is then reached with those of the host.
	Request string
	// AuthFile are the host's credentials; empty: where containers-auth.json(5)
	// says.
	AuthFile string
	// Output is an OCI image layout, oci:DIRECTORY, that gets the image in place
	// of the repository in the request; empty: the repository.
	Output string
	// Storage is a directory for images and layers, on a disk file system. It is
	// made when it is missing and may be kept from one build to the next.
	Storage string
	// Out gets the progress: plain lines, and on a terminal bars for what is
	// pulled and pushed.
	Out io.Writer
	// KeepCredentials leaves the credentials in Dir. They are removed otherwise,
	// before the user's text runs: on a workstation they may be the only copy.
	KeepCredentials bool

	// isDry: nothing is built, so that no cluster waits for the image.
	isDry bool
}

// Build makes the image that the request in options asks for. The Result is
// complete in every case; the error is that of its Failure.
func Build(ctx context.Context, options Options) (request.Result, error) {
	out := newProgress(options.Out)
	result := request.Result{}
	job, err := newJob(options, out)
	if err != nil {
		return fail(out, result, "inputs", err)
	}
	defer job.close()
	out.printf("build %s: base %s, push to %s", job.request.Name, job.request.BaseImage, job.pushSpec())
	started := time.Now()
	if image := findWhole(ctx, job); image != nil {
		if err := takeWhole(ctx, job, image); err != nil {
			return fail(out, result, request.StepInputs, err)
		}
		out.printf("the image of these inputs is there already")
		result.Steps = []request.Step{{
			Name: request.StepInputs, Key: job.request.InputsHash, Reused: true,
			Duration: metav1.Duration{Duration: time.Since(started).Round(time.Millisecond)},
		}}
		return succeed(job, result, image), nil
	}
	return runSteps(ctx, job, result)
}

// runSteps runs the steps of a job, one after the other.
func runSteps(ctx context.Context, job *job, result request.Result) (request.Result, error) {
	var image *registry.Image
	steps := stepsFor(job)
	for i, step := range steps {
		job.out.startStep(step.name, i+1, len(steps))
		next, report, err := runStep(ctx, job, step, image)
		result.Steps = append(result.Steps, report)
		result.LayerTags, result.Skeleton, result.Agent = job.layers.tags, job.skeleton, job.agent
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return fail(job.out, result, step.name, err)
		}
		job.out.printf("step %s: %s in %s", step.name, doneOrReused(report), report.Duration.Duration)
		image = next
	}
	return succeed(job, result, image), nil
}

func doneOrReused(report request.Step) string {
	if report.Reused {
		return "reused"
	}
	return "done"
}

func succeed(job *job, result request.Result, image *registry.Image) request.Result {
	result.Digest = image.Digest.String()
	result.Size = image.Size()
	job.out.printf("build %s: %s, %.1f MB in %d layers", job.request.Name, image.Reference(), float64(result.Size)/1e6, len(image.Layers))
	return result
}

// fail turns err into the Failure of result.
func fail(out *progress, result request.Result, step string, err error) (request.Result, error) {
	result.Failure = failureOf(step, err)
	out.printf("step %s: failed (%s): %s", step, result.Failure.Class, result.Failure.Message)
	return result, fmt.Errorf("step %s: %w", step, err)
}

// errNoImage guards against a step list without a first step.
var errNoImage = errors.New("there is no image to go on from")
