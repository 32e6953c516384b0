package request

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.podman.io/image/v5/docker/reference"
)

// Architectures an image can be built for, by Go's names.
var Architectures = []string{"amd64", "arm64", "ppc64le", "s390x"}

var (
	digestPattern = regexp.MustCompile(`^sha256:[0-9a-f]{64}$`)
	hashPattern   = regexp.MustCompile(`^[0-9a-f]{64}$`)
	namePattern   = regexp.MustCompile(`^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$`)
)

// Validate checks everything of a Request that becomes part of a name, a
// reference or a path. It is called by Encode and by Decode: the builder does
// not rely on who wrote the file.
func (r *Request) Validate() error {
	return errors.Join(r.validateInputs(), validateTagged("pushSpec", r.PushSpec))
}

// validateInputs checks all but where the image is pushed to.
func (r *Request) validateInputs() error {
	return errors.Join(
		r.validateNames(),
		validateByDigest("baseImage", r.BaseImage, true),
		validateByDigest("extensionsImage", r.ExtensionsImage, false),
		validateByDigest("agentImage", r.AgentImage, false),
		r.validateKernelArguments(),
	)
}

func (r *Request) validateNames() error {
	var problems []error
	if !namePattern.MatchString(r.Name) || len(r.Name) > 253 {
		problems = append(problems, fmt.Errorf("build request: name %q is not the name of a MachineOSBuild", r.Name))
	}
	if !hashPattern.MatchString(r.InputsHash) {
		problems = append(problems, fmt.Errorf("build request: inputsHash %q is not 64 hex", r.InputsHash))
	}
	if !slices.Contains(Architectures, r.Architecture) {
		problems = append(problems, fmt.Errorf("build request: architecture %q is none of %s",
			r.Architecture, strings.Join(Architectures, ", ")))
	}
	if r.Rebuild < 0 {
		problems = append(problems, fmt.Errorf("build request: rebuild %d is negative", r.Rebuild))
	}
	return errors.Join(problems...)
}

// validateKernelArguments keeps out what could not be told apart on a command
// line again.
func (r *Request) validateKernelArguments() error {
	for _, argument := range r.KernelArguments {
		if argument == "" || strings.ContainsAny(argument, "\x00\n") {
			return fmt.Errorf("build request: kernelArguments: %q is empty or has a line end in it", argument)
		}
	}
	return nil
}

func validateByDigest(field, image string, required bool) error {
	if image == "" && !required {
		return nil
	}
	if err := CheckByDigest(image); err != nil {
		return fmt.Errorf("build request: %s %w", field, err)
	}
	return nil
}

// CheckByDigest refuses what is not host[:port]/repository@sha256:<64 hex>. The
// error begins with the image.
func CheckByDigest(image string) error {
	named, err := reference.ParseNamed(image)
	if err != nil {
		return fmt.Errorf("%q: %w", image, err)
	}
	digested, ok := named.(reference.Digested)
	if !ok {
		return fmt.Errorf("%q is not by digest (name@sha256:<64 hex>)", image)
	}
	if !isDigest(digested.Digest().String()) {
		return fmt.Errorf("%q is not by a sha256 digest", image)
	}
	return nil
}

func validateTagged(field, image string) error {
	if image == "" {
		return fmt.Errorf("build request: %s is missing, host[:port]/repository:tag", field)
	}
	named, err := reference.ParseNamed(image)
	if err != nil {
		return fmt.Errorf("build request: %s %q: %w", field, image, err)
	}
	if _, ok := named.(reference.Digested); ok {
		return fmt.Errorf("build request: %s %q is by digest, a tag is pushed to", field, image)
	}
	if _, ok := named.(reference.Tagged); !ok {
		return fmt.Errorf("build request: %s %q has no tag", field, image)
	}
	return nil
}

// CheckRepository refuses what no image can be pushed to: anything but
// host[:port]/path, the path in lower case. The error goes on after the name of the
// field that has it.
func CheckRepository(repository string) error {
	if path := repository[strings.IndexByte(repository, '/')+1:]; path != strings.ToLower(path) {
		return fmt.Errorf("%q: registries take lower-case letters only; write %s%s",
			repository, repository[:len(repository)-len(path)], strings.ToLower(path))
	}
	named, err := reference.ParseNamed(repository)
	if err != nil {
		return fmt.Errorf("%q is not host[:port]/path: %w", repository, err)
	}
	if !reference.IsNameOnly(named) {
		return fmt.Errorf("%q has a tag or a digest", repository)
	}
	_, port, hasPort := strings.Cut(reference.Domain(named), ":")
	if number, err := strconv.Atoi(port); hasPort && (err != nil || number < 1 || number > maxPort) {
		return fmt.Errorf("%q: %s is no port; they go from 1 to %d", repository, port, maxPort)
	}
	return nil
}

// maxPort is the highest port of TCP.
const maxPort = 1<<16 - 1

func isDigest(text string) bool { return digestPattern.MatchString(text) }
