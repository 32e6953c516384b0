package builder

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"

	"github.com/imagemode/imagemode/ignition"
	"github.com/imagemode/imagemode/registry"
)

// keyOf addresses the result of a step by all that it depends on: its name and
// recipe, its inputs, and the digest of the image it starts from. 64 hex; empty
// for a step that makes no image of its own.
func keyOf(job *job, s step, from *registry.Image) string {
	if s.inputs == nil || from == nil {
		return ""
	}
	inputs := s.inputs(job)
	if inputs == nil {
		return ""
	}
	name := s.name
	if s.isAside {
		name = stepConfigs.name // the same image, wherever it is used
	}
	return hashOf(struct {
		Step   string `json:"step"`
		Recipe int    `json:"recipe"`
		From   string `json:"from"`
		Inputs any    `json:"inputs"`
	}{name, s.recipe, from.Digest.String(), inputs})
}

// hashOf is the SHA-256 of a value's JSON, in hex.
func hashOf(value any) string {
	raw, err := json.Marshal(value)
	if err != nil {
		// Only structs of strings and numbers come here.
		panic(fmt.Sprintf("encoding the inputs of a step: %v", err))
	}
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:])
}

// hashOfReader is the SHA-256 of a stream, in hex.
func hashOfReader(source io.Reader) (string, error) {
	sum := sha256.New()
	if _, err := io.Copy(sum, source); err != nil {
		return "", err
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

// configsInputs: where the layer is known, its digest stands for what it is made
// from. Where it depends on the image below, what it is made from counts; the
// image below is in every key.
func configsInputs(job *job) any {
	if job.layer == nil {
		return struct {
			Ignition        json.RawMessage `json:"ignition"`
			KernelArguments []string        `json:"kernelArguments,omitempty"`
			LayerVersion    int             `json:"layerVersion"`
		}{job.request.Ignition, job.request.KernelArguments, ignition.LayerVersion}
	}
	return struct {
		Layer string `json:"layer"`
	}{job.layer.Digest.String()}
}

// runInputs are inputs of every step that runs a program.
type runInputs struct {
	// Rebuild makes a forced rebuild another step.
	Rebuild int `json:"rebuild,omitempty"`
	// Repositories is the hash of the package repositories and their keys that
	// the programs see. Entitlements are not in it: they are renewed every few
	// hours and do not change what is installed.
	Repositories string `json:"repositories,omitempty"`
}

func runInputsOf(job *job) runInputs {
	return runInputs{Rebuild: job.request.Rebuild, Repositories: job.mounts.repositories}
}

func userInputs(job *job) any {
	inputs := struct {
		Text         string `json:"text"`
		Architecture string `json:"architecture"`
		Configs      string `json:"configs,omitempty"`
		Extensions   string `json:"extensionsImage,omitempty"`
		runInputs
	}{Text: job.plan.Text, Architecture: job.request.Architecture}
	if job.plan.UsesConfigs && job.configs != nil {
		inputs.Configs = job.configs.Digest.String()
	}
	if job.plan.UsesExtensions {
		inputs.Extensions = digestOf(job.request.ExtensionsImage)
	}
	if job.plan.HasRun {
		inputs.runInputs = runInputsOf(job)
	}
	return inputs
}
