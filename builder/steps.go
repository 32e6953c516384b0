package builder

import (
	"context"

	"github.com/imagemode/imagemode/containerfiles"
	"github.com/imagemode/imagemode/registry"
)

// step takes the image of the step before, in a registry, and gives its own.
type step struct {
	name string
	run  func(ctx context.Context, job *job, from *registry.Image) (*registry.Image, error)
}

// The steps. Each leaves its result in the registry, where the next finds it.
var (
	stepBase    = step{"base", runBase}
	stepConfigs = step{"configs", runConfigs}
	stepUser    = step{"user", runUser}
	// stepContext makes the config layer for a text that is built on base and
	// still reads from configs; the user step goes on from base.
	stepContext = step{"configs (as a source)", runConfigsContext}
	stepVerify  = step{"verify", runVerify}
	stepPublish = step{"publish", runPublish}
)

// stepsFor gives the steps of a job, in order.
func stepsFor(job *job) []step {
	steps := []step{stepBase}
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
	return append(steps, stepVerify, stepPublish)
}
