package builder

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"go.podman.io/buildah/define"
	"go.podman.io/buildah/imagebuildah"
	nettypes "go.podman.io/common/libnetwork/types"
	"go.podman.io/image/v5/types"
	"golang.org/x/sys/unix"

	"github.com/imagemode/imagemode/containerfiles"
	"github.com/imagemode/imagemode/registry"
)

// build runs a text and gives the id of the image in the store. Layers that
// cannot be kept in the registry are no reason to fail.
func (w *workshop) build(ctx context.Context, plan *containerfiles.Plan, from *registry.Image) (string, error) {
	file := filepath.Join(w.scratch, "Containerfile")
	if err := os.WriteFile(file, []byte(plan.Text), 0o600); err != nil {
		return "", err
	}
	tracker := newLineTracker(plan, w.job.out)
	output := w.job.out.lines()
	options, err := w.buildOptions(ctx, plan, from)
	if err != nil {
		return "", err
	}
	options.Log, options.Out, options.Err = tracker.log, output, output
	id, _, err := imagebuildah.BuildDockerfiles(ctx, w.store, options, file)
	if err != nil && strings.Contains(err.Error(), "failed pushing cache to") {
		w.job.out.printf("  layers are not kept: %v", err)
		options.CacheFrom, options.CacheTo = nil, nil
		w.job.layers.forget()
		tracker.rewind()
		id, _, err = imagebuildah.BuildDockerfiles(ctx, w.store, options, file)
	}
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

func (w *workshop) buildOptions(ctx context.Context, plan *containerfiles.Plan, from *registry.Image) (define.BuildOptions, error) {
	// First the mounts: they look into an image by its name.
	mounts, err := w.mounts(ctx, plan, from)
	if err != nil {
		return define.BuildOptions{}, err
	}
	contexts, err := w.contexts(ctx, plan)
	if err != nil {
		return define.BuildOptions{}, err
	}
	one := 1
	created := createdOf(w.job.os)
	return define.BuildOptions{
		ContextDirectory:        filepath.Join(w.scratch, "context"),
		AdditionalBuildContexts: contexts,
		TransientMounts:         mounts,
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
		MaxPullPushRetries:      pullRetries,
		PullPushRetryDelay:      registry.RetryDelay,
		Jobs:                    &one, // the tracker follows one stage after the other
		ReportWriter:            w.job.out.bars(),
		// The same text makes the same image on another day, if its programs do.
		SourceDateEpoch:  &created,
		RewriteTimestamp: true,
		// Layers by themselves: the next text may differ in its last lines only.
		Layers:                                  true,
		CacheFrom:                               w.job.layers.repositories(),
		CacheTo:                                 w.job.layers.repositories(),
		CachePullSourceLookupReferenceFunc:      w.job.layers.place,
		CachePushDestinationLookupReferenceFunc: w.job.layers.place,
	}, nil
}

// createdOf is the time of an image, for all that is made from it. Some tools
// leave none, or the zero of their language, which no file can have.
func createdOf(image *registry.Image) time.Time {
	if created := image.Parsed.Created; created != nil && created.Unix() > 0 {
		return created.UTC()
	}
	return time.Unix(0, 0).UTC()
}

// pullRetries is how often the library tries again what is pulled or pushed.
const pullRetries = 3

// mounts are what a RUN sees besides its image.
func (w *workshop) mounts(ctx context.Context, plan *containerfiles.Plan, from *registry.Image) ([]string, error) {
	if !plan.HasRun {
		return nil, nil
	}
	mounts, err := w.job.mounts.copyTo(w.scratch)
	if err != nil {
		return nil, err
	}
	trust, err := w.trustMounts(ctx, from, plan.Text)
	return append(mounts, trust...), err
}

// contexts are the images that a text knows by a short name; those that it uses
// are pulled. They have no names in the store: the library would write one into
// the history and the annotations of the image, which would then not be the same
// in another repository.
func (w *workshop) contexts(ctx context.Context, plan *containerfiles.Plan) (map[string]*define.AdditionalBuildContext, error) {
	images := map[string]string{}
	if plan.UsesBase {
		images[containerfiles.ContextBase] = w.job.base.Reference()
	}
	if plan.UsesConfigs && w.job.configs != nil {
		images[containerfiles.ContextConfigs] = w.job.configs.Reference()
	}
	if plan.UsesExtensions && w.job.request.ExtensionsImage != "" {
		images[containerfiles.ContextExtensions] = w.job.request.ExtensionsImage
	}
	contexts := map[string]*define.AdditionalBuildContext{}
	for name, image := range images {
		id, err := w.pull(ctx, image)
		if err != nil {
			return nil, err
		}
		if err := w.dropNames(id); err != nil {
			return nil, err
		}
		contexts[name] = &define.AdditionalBuildContext{IsImage: true, Value: id}
	}
	return contexts, nil
}

func (w *workshop) dropNames(id string) error {
	names, err := w.store.Names(id)
	if err == nil {
		err = w.store.RemoveNames(id, names)
	}
	if err != nil {
		return fmt.Errorf("image storage: names of %s: %w", id, err)
	}
	return nil
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
