package request

import (
	"fmt"
	"regexp"
)

// StepInputs is the name of the only step of a build that found its image by
// the image inputs hash. Its key is that hash.
const StepInputs = "inputs"

// StepTag is the tag under which the image that a step made is kept: step-<key>.
func StepTag(key string) string { return "step-" + key }

// InputsTag is the tag by which an image is found by its image inputs hash:
// inputs-<hash>.
func InputsTag(hash string) string { return "inputs-" + hash }

// Tags are the tags in the push repository that a build wrote or relied on,
// besides that of its name and inputs-<hash>: step-<key> and layer-<32 hex>.
// They save time and carry no meaning; what prunes a repository may delete them
// some time after the last build that names them.
func (r *Result) Tags() []string {
	var tags []string
	for _, step := range r.Steps {
		if step.Key != "" && step.Name != StepInputs {
			tags = append(tags, StepTag(step.Key))
		}
	}
	for _, key := range []string{r.Skeleton, r.Agent} {
		if key != "" {
			tags = append(tags, StepTag(key))
		}
	}
	return append(tags, r.LayerTags...)
}

var layerTagPattern = regexp.MustCompile(`^layer-[0-9a-f]{32}$`)

// validateTags keeps a result from naming tags that a build does not write:
// they are deleted one day.
func (r *Result) validateTags() error {
	for _, step := range r.Steps {
		if step.Key != "" && !hashPattern.MatchString(step.Key) {
			return fmt.Errorf("the build result's step %q has the key %q, which is not 64 hex", step.Name, step.Key)
		}
	}
	if r.Skeleton != "" && !hashPattern.MatchString(r.Skeleton) {
		return fmt.Errorf("the build result's skeleton %q is not 64 hex", r.Skeleton)
	}
	if r.Agent != "" && !hashPattern.MatchString(r.Agent) {
		return fmt.Errorf("the build result's agent %q is not 64 hex", r.Agent)
	}
	for _, tag := range r.LayerTags {
		if !layerTagPattern.MatchString(tag) {
			return fmt.Errorf("the build result's layer tag %q is not layer-<32 hex>", tag)
		}
	}
	return nil
}
