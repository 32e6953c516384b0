package builder

import (
	"context"
	"fmt"

	"github.com/imagemode/imagemode/builder/request"
	"github.com/imagemode/imagemode/registry"
)

// Planned is a step as a dry run sees it.
type Planned struct {
	Name string
	// Key is 64 hex; empty: the step makes no image of its own, or After is set.
	Key string
	// Reused is true when the result of an earlier build would be taken.
	Reused bool
	// After is the step without whose result the key is not known: it runs
	// programs, and what they make is not known beforehand.
	After string
}

func (p Planned) String() string {
	switch {
	case p.Reused:
		return fmt.Sprintf("%-22s %s  reused", p.Name, p.Key)
	case p.After != "":
		return fmt.Sprintf("%-22s run; its key depends on the result of %s", p.Name, p.After)
	case p.Key == "":
		return fmt.Sprintf("%-22s run", p.Name)
	}
	return fmt.Sprintf("%-22s %s  run", p.Name, p.Key)
}

// DryRun gives the steps of a build and says which would take the result of an
// earlier one. Nothing is run, and nothing is written to a registry; manifests
// are read.
func DryRun(ctx context.Context, options Options) ([]Planned, error) {
	options.KeepCredentials, options.isDry = true, true
	job, err := newJob(options, newProgress(options.Out))
	if err != nil {
		return nil, err
	}
	defer job.close()
	if findWhole(ctx, job) != nil {
		return []Planned{{Name: request.StepInputs, Key: job.request.InputsHash, Reused: true}}, nil
	}
	return planSteps(ctx, job)
}

func planSteps(ctx context.Context, job *job) ([]Planned, error) {
	var planned []Planned
	var from *registry.Image
	unknownAfter := ""
	for _, step := range stepsFor(job) {
		next := Planned{Name: step.name}
		if unknownAfter != "" {
			if step.inputs != nil {
				next.After = unknownAfter
			}
			planned = append(planned, next)
			continue
		}
		next.Key = keyOf(job, step, from)
		image := findStep(ctx, job, next.Key, from)
		next.Reused = image != nil
		planned = append(planned, next)
		if image == nil && step.preview != nil {
			var err error
			if image, err = step.preview(ctx, job, from); err != nil {
				return nil, fmt.Errorf("step %s: %w", step.name, err)
			}
		}
		switch {
		case image != nil:
			from = step.goOn(job, from, image)
		case step.inputs != nil:
			unknownAfter = step.name
		}
	}
	return planned, nil
}
