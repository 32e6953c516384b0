package builder

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/imagemode/imagemode/builder/request"
	"github.com/imagemode/imagemode/containerfiles"
	"github.com/imagemode/imagemode/registry"
)

// step takes the image of the step before, in a registry, and gives its own.
type step struct {
	name string
	// recipe is raised when the step makes something else of the same inputs: an
	// image of an older builder is then not taken for this one's.
	recipe int
	// inputs is all that the result depends on besides the recipe and the image
	// of the step before, as something that JSON can hold. Where it is nil, or
	// gives nil, the step makes no image of its own.
	inputs func(job *job) any
	// run does the work. Without a registry it is not run.
	run func(ctx context.Context, job *job, from *registry.Image) (*registry.Image, error)
	// preview gives the image that run would make, without making it; nil: that
	// cannot be known.
	preview func(ctx context.Context, job *job, from *registry.Image) (*registry.Image, error)
	// keep notes the result for later steps.
	keep func(job *job, image *registry.Image)
	// isAside is true for a step from whose result the next one does not go on.
	isAside bool
}

// The steps. Each leaves its result in the registry, where the next finds it.
var (
	stepBase = step{name: "base", run: runBase, preview: runBase}

	stepExtensions = step{name: "extensions", recipe: 1, inputs: extensionsInputs, run: runExtensions, keep: keepBase}

	stepConfigs = step{name: "configs", recipe: 1, inputs: configsInputs, run: runConfigs, preview: previewConfigs, keep: keepConfigs}
	// stepContext makes the config layer for a text that is built on base and
	// still reads from configs; the user step goes on from base.
	stepContext = step{
		name: "configs (as a source)", recipe: 1, inputs: configsInputs,
		run: runConfigs, preview: previewConfigs, keep: keepConfigs, isAside: true,
	}

	stepUser = step{name: "user", recipe: 1, inputs: userInputs, run: runUser}

	// stepAgent comes last: another agent repeats no RUN.
	stepAgent = step{name: "agent", recipe: 1, inputs: agentInputs, run: runAgent}

	stepVerify  = step{name: "verify", run: runVerify}
	stepPublish = step{name: "publish", run: runPublish}
)

func keepBase(job *job, image *registry.Image)    { job.base = image }
func keepConfigs(job *job, image *registry.Image) { job.configs = image }

// stepsFor gives the steps of a job, in order.
func stepsFor(job *job) []step {
	steps := []step{stepBase}
	if job.request.WantsPackages() {
		steps = append(steps, stepExtensions)
	}
	switch plan := job.plan; {
	case plan.Empty:
		steps = append(steps, stepConfigs)
	case plan.From == containerfiles.FromBase && plan.UsesConfigs:
		steps = append(steps, stepContext, stepUser, stepConfigs)
	case plan.From == containerfiles.FromBase:
		// Configs last: a change of the config never repeats a RUN.
		steps = append(steps, stepUser, stepConfigs)
	default:
		steps = append(steps, stepConfigs, stepUser)
	}
	if job.request.AgentImage != "" {
		steps = append(steps, stepAgent)
	}
	return append(steps, stepVerify, stepPublish)
}

// runStep runs a step, or takes its result from an earlier build.
func runStep(ctx context.Context, job *job, s step, from *registry.Image) (image *registry.Image, report request.Step, err error) {
	started := time.Now()
	report = request.Step{Name: s.name, Key: keyOf(job, s, from)}
	defer func() {
		report.Duration = metav1.Duration{Duration: time.Since(started).Round(time.Millisecond)}
	}()
	if image = findStep(ctx, job, report.Key, from); image != nil {
		report.Reused = true
	} else if image, err = s.run(ctx, job, from); err == nil && report.Key != "" {
		err = registry.Tag(ctx, job.access(image.Repository), image, request.StepTag(report.Key))
	}
	if err != nil {
		return nil, report, err
	}
	return s.goOn(job, from, image), report, nil
}

// goOn gives the image that the next step starts from.
func (s step) goOn(job *job, from, image *registry.Image) *registry.Image {
	if s.keep != nil {
		s.keep(job, image)
	}
	if s.isAside {
		return from
	}
	return image
}
