package builder

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/coreos/ignition/v2/config/v3_6/types"
	"go.podman.io/image/v5/docker/reference"

	"github.com/imagemode/imagemode/builder/request"
	"github.com/imagemode/imagemode/containerfiles"
	"github.com/imagemode/imagemode/ignition"
	"github.com/imagemode/imagemode/registry"
)

// job is everything that the steps of one build share.
type job struct {
	request *request.Request
	// config is the Ignition config of the request: parsing one takes longer than
	// making its layer.
	config types.Config
	plan   *containerfiles.Plan
	layer  *ignition.Layer
	// repository and tag that the image is pushed to.
	repository, tag string
	storage         string
	lock            *os.File
	credentials     *credentials
	trustBundle     string
	// containersDir has the files of a node's /etc/containers; empty: none.
	containersDir string
	mounts        *runMounts
	layers        *layerCache
	out           *progress

	// skeleton is the key of the names of an image's files that were kept or found.
	skeleton string
	// agent is the key of the checked copy of the agent's image.
	agent string

	// os is the OS image, once it has been read.
	os *registry.Image
	// base is the OS image with extensions and kernel, once it has been made.
	base *registry.Image
	// configs is base with the config layer, once it has been made.
	configs *registry.Image
}

// newJob reads and checks the inputs. The credentials in the directory are
// gone afterwards, unless they are to be kept.
func newJob(options Options, out *progress) (*job, error) {
	r, err := ReadRequest(options)
	if err != nil {
		return nil, err
	}
	j := &job{request: r, out: out, storage: options.Storage}
	err = errors.Join(j.check(), j.setTarget(options.Output, options.isDry))
	if err == nil {
		err = j.gather(options)
	}
	if err != nil {
		j.close()
		return nil, err
	}
	return j, nil
}

// check refuses what can be told to be impossible without a look at any image.
func (j *job) check() (err error) {
	if j.plan, err = containerfiles.Check(j.request.Containerfile); err != nil {
		return err
	}
	if err := errors.Join(missingExtensions(j.request, j.plan), checkPackages(j.request)); err != nil {
		return err
	}
	if j.config, err = ignition.Parse(j.request.Ignition); err != nil {
		return &configError{err}
	}
	j.layer, err = makeLayer(j)
	return err
}

// gather takes what lies beside the request.
func (j *job) gather(options Options) (err error) {
	if bundle := options.file(request.FileTrustBundle); isFile(bundle) {
		j.trustBundle = bundle
	}
	if j.mounts, err = findRunMounts(options); err != nil {
		return err
	}
	if j.lock, err = lockStorage(options.Storage); err != nil {
		return err
	}
	if j.containersDir, err = writeNodeFiles(j.config, filepath.Join(options.Storage, "node")); err != nil {
		return err
	}
	j.layers = newLayerCache(j)
	j.credentials, err = readCredentials(options, j.repository)
	return err
}

func (j *job) close() {
	if j.credentials != nil {
		j.credentials.close()
	}
	if j.lock != nil {
		_ = j.lock.Close() // it holds nothing but the lock
	}
}

// file gives the path of one of the files of builder/request; empty: there is
// no directory for them.
func (o Options) file(name string) string {
	if o.Dir == "" {
		return ""
	}
	return filepath.Join(o.Dir, name)
}

// MissingRequestError says that there is no request where it was looked for.
type MissingRequestError struct{ Path string }

func (e *MissingRequestError) Error() string {
	return fmt.Sprintf("there is no build request %s; name a file with one (--request), or a directory that holds %s (--dir)",
		e.Path, request.FileRequest)
}

// ReadRequest reads and validates the request of a build. One for a dry run or an
// image layout may leave out what request.DecodeLocal fills in.
func ReadRequest(options Options) (*request.Request, error) {
	path := options.Request
	if path == "" {
		path = options.file(request.FileRequest)
	}
	if path == "" {
		return nil, errors.New("the build request: neither a file nor a directory is given")
	}
	file, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, &MissingRequestError{path}
	}
	if err != nil {
		return nil, fmt.Errorf("the build request: %w", err)
	}
	defer file.Close()
	if options.isDry || options.Output != "" {
		return request.DecodeLocal(file, options.Output == "")
	}
	return request.Decode(file)
}

// setTarget says where the image goes: to the repository of the request, or to
// an image layout, under the same tag.
func (j *job) setTarget(output string, isDry bool) error {
	if err := CheckOutput(output); err != nil {
		return err
	}
	j.tag = j.request.Name
	if j.request.PushSpec != "" { // it may be empty for a layout
		named, err := reference.ParseNamed(j.request.PushSpec)
		if err != nil {
			return fmt.Errorf("pushSpec: %w", err)
		}
		if tagged, ok := named.(reference.Tagged); ok {
			j.tag = tagged.Tag()
		}
		j.repository = reference.TrimNamed(named).Name()
	}
	if output == "" {
		return nil
	}
	var err error
	j.repository, err = registry.Layout(strings.TrimPrefix(output, outputPrefix))
	if err != nil || isDry {
		return err
	}
	return registry.MakeLayout(j.repository)
}

// outputPrefix begins an Output.
const outputPrefix = "oci:"

// CheckOutput refuses an Output that is no image layout. The error begins with it.
func CheckOutput(output string) error {
	directory, isLayout := strings.CutPrefix(output, outputPrefix)
	switch {
	case output == "":
		return nil
	case !isLayout || directory == "":
		return fmt.Errorf("%q: only an image layout, oci:DIRECTORY, can take the place of the repository", output)
	case strings.Contains(directory, ":"):
		return fmt.Errorf("%q: a colon in the path would part it from an image's name", output)
	}
	return nil
}

// pushSpec is the reference that the image gets.
func (j *job) pushSpec() string { return registry.Named(j.repository, j.tag) }

// configError is a MachineConfig that cannot be read.
type configError struct{ err error }

func (e *configError) Error() string { return e.err.Error() }
func (e *configError) Unwrap() error { return e.err }

// access gives the way to a repository: the one that is pushed to has
// credentials of its own, also for reading back.
func (j *job) access(repository string) registry.Access {
	access := registry.Access{
		AuthFile:      j.credentials.pull.path(),
		TrustBundle:   j.trustBundle,
		ContainersDir: j.containersDir,
		Architecture:  j.request.Architecture,
	}
	if j.containersDir != "" && isFile(filepath.Join(j.containersDir, "policy.json")) {
		access.PolicyFile = filepath.Join(j.containersDir, "policy.json")
	}
	if repository == j.repository {
		access.AuthFile = j.credentials.push.path()
		// What is written here is not signed: the policy is for what comes from
		// elsewhere.
		access.PolicyFile = ""
	}
	return access
}

// target is the repository that is pushed to, with the tags.
func (j *job) target(tags ...string) registry.Target {
	return registry.Target{Access: j.access(j.repository), Repository: j.repository, Tags: tags, Progress: j.out.copied()}
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
