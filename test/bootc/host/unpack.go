package host

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"go.podman.io/storage/pkg/chrootarchive"

	"github.com/imagemode/imagemode/test/bootc/etc"
	"github.com/imagemode/imagemode/test/bootc/source"
)

// unpack fetches the image's layers and makes a deployment of them. It gets its
// name only when it is complete. The image's content of /var is left out: it is
// taken once, at the installation.
func (h *Host) unpack(ctx context.Context, image *source.Image) (*Deployment, error) {
	layers, err := image.Fetch(ctx, h.blobs(), h.progress)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(h.deployments(), 0o755); err != nil {
		return nil, err
	}
	work, err := os.MkdirTemp(h.deployments(), ".new-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(work)
	root := filepath.Join(work, "root")
	h.progress("Deploying %s", image.Digest)
	if err := applyLayers(root, layers); err != nil {
		return nil, err
	}
	if err := h.takeVar(root); err != nil {
		return nil, err
	}
	if err := rememberEtc(root, filepath.Join(work, "etc.pristine")); err != nil {
		return nil, err
	}
	deployment, err := h.describe(image)
	if err != nil {
		return nil, err
	}
	if err := writeJSON(filepath.Join(work, "deployment.json"), deployment); err != nil {
		return nil, err
	}
	if err := os.Chmod(work, 0o755); err != nil {
		return nil, err
	}
	return deployment, os.Rename(work, h.path(deployment.ID))
}

// rememberEtc copies the /etc that the image brought: for the merge at the next
// update, and to /usr/etc, where the machine sees it as on any bootc host.
func rememberEtc(root, pristine string) error {
	if err := etc.Copy(filepath.Join(root, "etc"), pristine); err != nil {
		return err
	}
	visible := filepath.Join(root, "usr", "etc")
	if _, err := os.Lstat(visible); err == nil {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(visible), 0o755); err != nil {
		return err
	}
	return etc.Copy(filepath.Join(root, "etc"), visible)
}

// applyLayers unpacks in a child process whose root is the new root: links in
// the image cannot lead a layer's files out of it.
func applyLayers(root string, layers []string) error {
	if err := os.Mkdir(root, 0o755); err != nil {
		return err
	}
	for _, path := range layers {
		layer, err := os.Open(path)
		if err != nil {
			return err
		}
		_, err = chrootarchive.ApplyLayer(root, layer)
		layer.Close()
		if err != nil {
			return fmt.Errorf("Unpacking layer %s: %w", filepath.Base(path), err)
		}
	}
	return nil
}

// takeVar moves the image's /var to the shared place where there is none yet,
// and leaves an empty directory to mount on.
func (h *Host) takeVar(root string) error {
	shared, own := filepath.Join(h.Sysroot, "var"), filepath.Join(root, "var")
	if _, err := os.Stat(shared); os.IsNotExist(err) {
		if err := os.Rename(own, shared); err != nil && !os.IsNotExist(err) {
			return err
		}
	}
	if err := os.RemoveAll(own); err != nil {
		return err
	}
	for _, mountPoint := range []string{own, filepath.Join(root, "sysroot")} {
		if err := os.MkdirAll(mountPoint, 0o755); err != nil {
			return err
		}
	}
	return os.MkdirAll(shared, 0o755)
}

// describe gives the image's next deployment its name: twelve digits of the
// digest and a serial number that no other deployment of it has.
func (h *Host) describe(image *source.Image) (*Deployment, error) {
	deployments, err := h.all()
	if err != nil {
		return nil, err
	}
	deployment := &Deployment{
		Digest: image.Digest.String(), Architecture: image.Config.Architecture,
		Version: image.Version(), Timestamp: image.Created(),
	}
	for _, other := range deployments {
		if other.Digest == deployment.Digest {
			deployment.Serial = max(deployment.Serial, other.Serial+1)
		}
	}
	for _, layer := range image.Layers {
		deployment.Layers = append(deployment.Layers, layer.Digest.String())
	}
	short := strings.TrimPrefix(deployment.Digest, "sha256:")
	deployment.ID = fmt.Sprintf("%s.%d", short[:min(12, len(short))], deployment.Serial)
	return deployment, nil
}
