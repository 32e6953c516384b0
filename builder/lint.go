package builder

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"go.podman.io/buildah"
	"go.podman.io/buildah/define"
	"go.podman.io/common/pkg/config"
)

// bootcPath is where an OS image has bootc.
const bootcPath = "usr/bin/bootc"

// lint runs bootc's own checks in the image, if it has bootc: they know more
// than the checks here. A failed one means that the image could not boot.
func (w *workshop) lint(ctx context.Context, id string) error {
	capabilities, err := runCapabilities()
	if err != nil {
		return err
	}
	container, err := buildah.NewBuilder(ctx, w.store, buildah.BuilderOptions{
		FromImage:        id,
		PullPolicy:       define.PullNever,
		Isolation:        define.IsolationChroot,
		NamespaceOptions: hostNetwork,
		NetworkInterface: noNetwork{},
		SystemContext:    w.sys,
		CommonBuildOpts:  commonOptions(),
		Capabilities:     capabilities,
	})
	if err != nil {
		return err
	}
	defer func() {
		if err := container.Delete(); err != nil {
			w.job.out.printf("  removing the lint container: %v", err)
		}
	}()
	root, err := container.Mount("")
	if err != nil {
		return err
	}
	if _, err := os.Lstat(filepath.Join(root, bootcPath)); errors.Is(err, os.ErrNotExist) {
		w.job.out.printf("  the image has no /%s: bootc container lint was not run", bootcPath)
		return nil
	}
	w.job.out.printf("  bootc container lint")
	output := w.job.out.lines()
	err = container.Run([]string{"/" + bootcPath, "container", "lint"}, buildah.RunOptions{
		Isolation:        define.IsolationChroot,
		NamespaceOptions: hostNetwork,
		User:             "0:0",
		Terminal:         buildah.WithoutTerminal,
		Stdout:           output,
		Stderr:           output,
	})
	output.flush()
	if code := exitCode(err); code != 0 {
		return &lintError{userError{lastLines: w.job.out.lastLines(), err: err}}
	}
	return err
}

// runCapabilities are those that a RUN of the Containerfile has: bootc has to
// read what only its owner or root may.
func runCapabilities() ([]string, error) {
	defaults, err := config.Default()
	if err != nil {
		return nil, fmt.Errorf("default capabilities of containers: %w", err)
	}
	return defaults.Capabilities("", nil, nil)
}
