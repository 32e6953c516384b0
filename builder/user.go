package builder

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"go.podman.io/buildah"
	"go.podman.io/buildah/define"
	"go.podman.io/buildah/imagebuildah"
	nettypes "go.podman.io/common/libnetwork/types"
	"go.podman.io/image/v5/docker"
	"go.podman.io/image/v5/docker/reference"
	"go.podman.io/image/v5/types"
	"go.podman.io/storage"
	"golang.org/x/sys/unix"

	"github.com/imagemode/imagemode/builder/request"
	"github.com/imagemode/imagemode/containerfiles"
	"github.com/imagemode/imagemode/registry"
)

// runUser builds the user's Containerfile and pushes the result without a tag.
func runUser(ctx context.Context, job *job, _ *registry.Image) (*registry.Image, error) {
	workshop, err := openWorkshop(job)
	if err != nil {
		return nil, err
	}
	defer workshop.close()
	id, err := workshop.build(ctx)
	if err != nil {
		return nil, err
	}
	if err := workshop.lint(ctx, id); err != nil {
		return nil, err
	}
	return workshop.push(ctx, id)
}

// workshop is the local side of a build: the images that are pulled, the
// containers that run, and everything buildah has to be told.
type workshop struct {
	job   *job
	store storage.Store
	sys   *types.SystemContext
	// scratch is the working directory of this build, removed at its end.
	scratch string
	// restore puts the environment back.
	restore func()
}

func openWorkshop(job *job) (*workshop, error) {
	scratch := filepath.Join(job.storage, "tmp")
	// A build that was killed leaves its files; they may be of any size.
	if err := os.RemoveAll(scratch); err != nil {
		return nil, fmt.Errorf("clearing %s: %w", scratch, err)
	}
	cache := filepath.Join(job.storage, "cache")
	if err := makeDirectories(filepath.Join(scratch, "context"), cache); err != nil {
		return nil, err
	}
	restore, err := setEnvironment(job.storage, scratch)
	if err != nil {
		return nil, err
	}
	w := &workshop{job: job, scratch: scratch, restore: restore}
	if w.sys, err = systemContext(job, cache); err == nil {
		w.store, err = openStore(job.storage)
	}
	if err != nil {
		restore()
		return nil, err
	}
	return w, nil
}

// openStore opens the image store and removes containers that a killed build
// left in it.
func openStore(directory string) (storage.Store, error) {
	if strings.ContainsAny(directory, ",:\\") {
		return nil, fmt.Errorf("image storage in %s: the path is part of mount options, where , : and \\ mean something else", directory)
	}
	store, err := storage.GetStore(storage.StoreOptions{
		GraphRoot:       filepath.Join(directory, "images"),
		RunRoot:         filepath.Join(directory, "run"),
		GraphDriverName: "overlay",
	})
	if err != nil {
		return nil, fmt.Errorf("image storage in %s (it has to be on a disk file system, not on overlay): %w", directory, err)
	}
	containers, err := store.Containers()
	if err != nil {
		return nil, fmt.Errorf("image storage in %s: %w", directory, err)
	}
	for _, container := range containers {
		if err := store.DeleteContainer(container.ID); err != nil {
			return nil, fmt.Errorf("image storage in %s: leftover container %s: %w", directory, container.ID, err)
		}
	}
	return store, nil
}

// setEnvironment keeps buildah from the host's own configuration and gives it
// what a minimal image lacks. The environment is the process's: one build at a
// time. The function it returns puts back what was there.
func setEnvironment(directory, scratch string) (restore func(), err error) {
	empty := filepath.Join(directory, "containers.conf")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		return nil, err
	}
	var undo []func() error
	var problems []error
	for name, value := range map[string]string{
		"TMPDIR":                  scratch,
		"CONTAINERS_CONF":         empty,
		"CONTAINERS_STORAGE_CONF": "/dev/null",
		"USER":                    "root",
		"HOME":                    directory,
	} {
		old, wasSet := os.LookupEnv(name)
		problems = append(problems, os.Setenv(name, value))
		undo = append(undo, func() error {
			if wasSet {
				return os.Setenv(name, old)
			}
			return os.Unsetenv(name)
		})
	}
	restore = func() {
		for _, step := range undo {
			_ = step() // names are constants: it cannot fail
		}
	}
	return restore, errors.Join(problems...)
}

// systemContext is the access for everything the text refers to.
func systemContext(job *job, cache string) (*types.SystemContext, error) {
	access := job.access("")
	access.AuthFile = job.credentials.both.path()
	sys, err := access.System()
	if err != nil {
		return nil, err
	}
	// Where a layer came from is remembered here, so that the push mounts the
	// base's layers and does not compress and send them again.
	sys.BlobInfoCacheDir = cache
	policy, err := registry.PolicyFile(sys, filepath.Join(job.storage, "policy.json"))
	if err != nil {
		return nil, err
	}
	sys.SignaturePolicyPath = policy
	return sys, nil
}

func (w *workshop) close() {
	defer w.restore()
	if _, err := w.store.Shutdown(false); err != nil {
		w.job.out.printf("  image storage: %v", err)
	}
	if err := os.RemoveAll(w.scratch); err != nil {
		w.job.out.printf("  clearing up: %v", err)
	}
}

// build runs the text and gives the id of the image in the store.
func (w *workshop) build(ctx context.Context) (string, error) {
	file := filepath.Join(w.scratch, "Containerfile")
	if err := os.WriteFile(file, []byte(w.job.plan.Text), 0o600); err != nil {
		return "", err
	}
	tracker := newLineTracker(w.job.plan, w.job.out)
	output := w.job.out.lines()
	id, _, err := imagebuildah.BuildDockerfiles(ctx, w.store, w.buildOptions(tracker, output), file)
	output.flush()
	if err != nil {
		return "", &userError{
			line:        tracker.line,
			instruction: tracker.instruction,
			lastLines:   w.job.out.lastLines(),
			err:         w.classify(err),
		}
	}
	return id, nil
}

// classify gives errors of a pull their class: what buildah returns for
// everything else is text.
func (w *workshop) classify(err error) error {
	if exitCode(err) != 0 || !isRegistryError(err) {
		return err
	}
	return registry.Wrap(w.job.request.BaseImage, err)
}

func (w *workshop) buildOptions(tracker *lineTracker, output io.Writer) define.BuildOptions {
	one := 1
	return define.BuildOptions{
		ContextDirectory:        filepath.Join(w.scratch, "context"),
		AdditionalBuildContexts: w.contexts(),
		Isolation:               define.IsolationChroot,
		NamespaceOptions:        hostNetwork,
		NetworkInterface:        noNetwork{},
		OutputFormat:            define.OCIv1ImageManifest,
		Compression:             define.Gzip,
		SystemContext:           w.sys,
		CommonBuildOpts:         commonOptions(),
		PullPolicy:              define.PullIfMissing,
		RemoveIntermediateCtrs:  true,
		ForceRmIntermediateCtrs: true,
		MaxPullPushRetries:      3,
		PullPushRetryDelay:      registry.RetryDelay,
		Jobs:                    &one, // the tracker follows one stage after the other
		Log:                     tracker.log,
		Out:                     output,
		Err:                     output,
		ReportWriter:            io.Discard,
	}
}

// contexts are the images that the text knows by a short name. They are pulled
// only if something refers to them.
func (w *workshop) contexts() map[string]*define.AdditionalBuildContext {
	images := map[string]string{
		containerfiles.ContextBase:       w.job.base.Reference(),
		containerfiles.ContextExtensions: w.job.request.ExtensionsImage,
	}
	if w.job.configs != nil {
		images[containerfiles.ContextConfigs] = w.job.configs.Reference()
	}
	contexts := map[string]*define.AdditionalBuildContext{}
	for name, image := range images {
		if image != "" {
			contexts[name] = &define.AdditionalBuildContext{IsImage: true, Value: image}
		}
	}
	return contexts
}

// push sends an image of the store to the repository, without a tag.
func (w *workshop) push(ctx context.Context, id string) (*registry.Image, error) {
	named, err := reference.ParseNamed(w.job.repository)
	if err != nil {
		return nil, fmt.Errorf("repository %s: %w", w.job.repository, err)
	}
	target, err := docker.NewReferenceUnknownDigest(named)
	if err != nil {
		return nil, fmt.Errorf("repository %s: %w", w.job.repository, err)
	}
	_, digest, err := buildah.Push(ctx, id, target, buildah.PushOptions{
		Store:         w.store,
		SystemContext: w.sys,
		Compression:   define.Gzip,
		ManifestType:  define.OCIv1ImageManifest,
		RetryDelay:    registry.RetryDelay,
		ReportWriter:  io.Discard,
		Quiet:         true,
	})
	if err != nil {
		return nil, registry.Wrap(w.job.repository, err)
	}
	return registry.Inspect(ctx, w.job.access(w.job.repository), w.job.repository+"@"+digest.String())
}

// hostNetwork: a RUN uses the pod's network; chroot isolation has no other.
var hostNetwork = define.NamespaceOptions{{Name: "network", Host: true}}

// noNetwork keeps buildah from looking for a helper program that sets up
// networks. With the host's network none of its methods is called.
type noNetwork struct{ nettypes.ContainerNetwork }

// commonOptions sets the limits of a RUN to those of this process: buildah
// would raise them, which takes a capability that a pod does not have.
func commonOptions() *define.CommonBuildOptions {
	return &define.CommonBuildOptions{
		HTTPProxy:     true,
		IdentityLabel: types.OptionalBoolFalse,
		Ulimit:        ulimits(),
	}
}

func ulimits() []string {
	var limits []string
	for name, resource := range map[string]int{"nofile": unix.RLIMIT_NOFILE, "nproc": unix.RLIMIT_NPROC} {
		var limit unix.Rlimit
		if err := unix.Getrlimit(resource, &limit); err != nil {
			continue // buildah's own default then
		}
		limits = append(limits, fmt.Sprintf("%s=%d:%d", name, int64(limit.Cur), int64(limit.Max)))
	}
	return limits
}

// missingExtensions refuses a text that refers to an extensions image where
// the stream has none: buildah would look for it in public registries.
func missingExtensions(r *request.Request, plan *containerfiles.Plan) error {
	if plan.UsesExtensions && r.ExtensionsImage == "" {
		return &containerfiles.Error{Message: "it refers to the extensions image, and the OS stream has none"}
	}
	return nil
}
