package builder

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"go.podman.io/image/v5/docker/reference"

	"github.com/imagemode/imagemode/builder/request"
	"github.com/imagemode/imagemode/containerfiles"
	"github.com/imagemode/imagemode/ignition"
	"github.com/imagemode/imagemode/registry"
)

// job is everything that the steps of one build share.
type job struct {
	request *request.Request
	plan    *containerfiles.Plan
	layer   *ignition.Layer
	// repository and tag that the image is pushed to.
	repository, tag string
	storage         string
	credentials     *credentials
	trustBundle     string
	out             *progress

	// base is the OS image, once it has been read.
	base *registry.Image
	// configs is base with the config layer, once it has been made.
	configs *registry.Image
}

// newJob reads and checks the inputs. The credentials in the directory are
// gone afterwards, unless they are to be kept.
func newJob(options Options, out *progress) (*job, error) {
	r, err := readRequest(filepath.Join(options.Dir, request.FileRequest))
	if err != nil {
		return nil, err
	}
	j := &job{request: r, out: out, storage: options.Storage}
	if j.plan, err = containerfiles.Check(r.Containerfile); err != nil {
		return nil, err
	}
	if err := refuseUnsupported(r); err != nil {
		return nil, err
	}
	if err := missingExtensions(r, j.plan); err != nil {
		return nil, err
	}
	if j.layer, err = makeLayer(r); err != nil {
		return nil, err
	}
	named, err := reference.ParseNamed(r.PushSpec)
	if err != nil {
		return nil, fmt.Errorf("pushSpec: %w", err)
	}
	j.repository = reference.TrimNamed(named).Name()
	if tagged, ok := named.(reference.Tagged); ok {
		j.tag = tagged.Tag()
	}
	if bundle := filepath.Join(options.Dir, request.FileTrustBundle); isFile(bundle) {
		j.trustBundle = bundle
	}
	j.credentials, err = readCredentials(options.Dir, j.repository, options.KeepCredentials)
	return j, err
}

func (j *job) close() { j.credentials.close() }

func readRequest(path string) (*request.Request, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("the build request: %w", err)
	}
	defer file.Close()
	return request.Decode(file)
}

// refuseUnsupported names what a request may ask for and this builder cannot do.
func refuseUnsupported(r *request.Request) error {
	var problems []ignition.Problem
	if len(r.Extensions) > 0 {
		problems = append(problems, ignition.Problem{Path: "spec.extensions",
			Reason: "extensions are not supported yet; install the packages in the Containerfile"})
	}
	if r.KernelType != "" {
		problems = append(problems, ignition.Problem{Path: "spec.kernelType",
			Reason: fmt.Sprintf("kernel type %q is not supported yet", r.KernelType)})
	}
	if len(problems) > 0 {
		return &ignition.RefusedError{Problems: problems}
	}
	return nil
}

// configError is a MachineConfig that cannot be read.
type configError struct{ err error }

func (e *configError) Error() string { return e.err.Error() }
func (e *configError) Unwrap() error { return e.err }

// access gives the way to a repository: the one that is pushed to has
// credentials of its own, also for reading back.
func (j *job) access(repository string) registry.Access {
	access := registry.Access{
		AuthFile:     j.credentials.pull.path(),
		TrustBundle:  j.trustBundle,
		Architecture: j.request.Architecture,
	}
	if repository == j.repository {
		access.AuthFile = j.credentials.push.path()
	}
	return access
}

// source gives an image as the start of another.
func (j *job) source(image *registry.Image) registry.Source {
	return registry.Source{Access: j.access(image.Repository), Image: image.Reference()}
}

func isFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}

// makeDirectories makes what a build needs below its storage.
func makeDirectories(directories ...string) error {
	var problems []error
	for _, directory := range directories {
		problems = append(problems, os.MkdirAll(directory, 0o711))
	}
	return errors.Join(problems...)
}
