package builder

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"go.podman.io/buildah"
	"go.podman.io/buildah/define"
	"go.podman.io/buildah/imagebuildah"
	nettypes "go.podman.io/common/libnetwork/types"
	"go.podman.io/image/v5/docker"
	"go.podman.io/image/v5/docker/reference"
	"go.podman.io/image/v5/types"
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
	var id string
	var image *registry.Image
	for _, part := range []struct {
		name string
		run  func() error
	}{
		{"built", func() (err error) { id, err = workshop.build(ctx); return err }},
		{"linted", func() error { return workshop.lint(ctx, id) }},
		{"pushed", func() (err error) { image, err = workshop.push(ctx, id); return err }},
	} {
		started := time.Now()
		if err := part.run(); err != nil {
			return nil, err
		}
		job.out.printf("  %s in %s", part.name, time.Since(started).Round(time.Millisecond))
	}
	return image, nil
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
			err:         err,
		}
	}
	return id, nil
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
