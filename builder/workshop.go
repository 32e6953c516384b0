package builder

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"go.podman.io/buildah"
	"go.podman.io/buildah/define"
	"go.podman.io/image/v5/types"
	"go.podman.io/storage"

	"github.com/imagemode/imagemode/registry"
)

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
	if err == nil {
		err = w.dropOtherLayers()
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

// dropOtherLayers empties a store that was kept from a build whose layers must
// not be taken here: the library looks for layers in the store by their history
// alone, and would take those of another rebuild.
func (w *workshop) dropOtherLayers() error {
	path := filepath.Join(w.job.storage, "salt")
	salt := w.job.layers.salt
	if kept, err := os.ReadFile(path); err == nil && string(kept) == salt {
		return nil
	}
	images, err := w.store.Images()
	if err != nil {
		return fmt.Errorf("image storage: %w", err)
	}
	for _, image := range images {
		if _, err := w.store.DeleteImage(image.ID, true); err != nil && !errors.Is(err, storage.ErrImageUnknown) {
			return fmt.Errorf("image storage: removing %s: %w", image.ID, err)
		}
	}
	return os.WriteFile(path, []byte(salt), 0o600)
}

// pull brings an image into the store and gives its id there.
func (w *workshop) pull(ctx context.Context, image string) (string, error) {
	id, err := buildah.Pull(ctx, image, buildah.PullOptions{
		Store:         w.store,
		SystemContext: w.sys,
		PullPolicy:    define.PullIfMissing,
		MaxRetries:    pullRetries,
		RetryDelay:    registry.RetryDelay,
		ReportWriter:  w.job.out.bars(),
	})
	return id, registry.Wrap(image, err)
}

// withFiles lets visit read the files of an image, which is pulled if need be.
func (w *workshop) withFiles(ctx context.Context, image string, visit func(*os.Root) error) error {
	id, err := w.pull(ctx, image)
	if err != nil {
		return err
	}
	directory, err := w.store.MountImage(id, nil, "")
	if err != nil {
		return fmt.Errorf("image storage: mounting %s: %w", image, err)
	}
	root, err := os.OpenRoot(directory)
	if err == nil {
		err = errors.Join(visit(root), root.Close())
	}
	if _, unmountErr := w.store.UnmountImage(id, false); unmountErr != nil {
		err = errors.Join(err, fmt.Errorf("image storage: unmounting %s: %w", image, unmountErr))
	}
	return err
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
	sys.SignaturePolicyPath, err = workshopPolicy(job, sys)
	return sys, err
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
