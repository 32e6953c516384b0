package builder

import (
	"context"
	"fmt"

	"github.com/imagemode/imagemode/registry"
)

// Labels by which bootc knows an image that can boot a host: one of them has to
// be there, with any value.
const (
	labelBootc    = "containers.bootc"
	labelBootable = "ostree.bootable"
)

// Labels that say what an image is made from.
const (
	labelBase     = "baseOSContainerImage"
	labelVersion  = "org.opencontainers.image.version"
	labelCreated  = "org.opencontainers.image.created"
	labelRevision = "org.opencontainers.image.revision"
)

// imageError is an image that is there and could not boot a node.
type imageError struct{ message string }

func (e *imageError) Error() string { return e.message }

func imageErrorf(format string, args ...any) error {
	return &imageError{fmt.Sprintf(format, args...)}
}

// checkImage applies the checks that bootc makes before it fetches a layer.
func checkImage(job *job, image *registry.Image) error {
	labels := image.Parsed.Config.Labels
	if _, isBootc := labels[labelBootc]; !isBootc {
		if _, isBootable := labels[labelBootable]; !isBootable {
			return imageErrorf("image %s is not bootable: it has neither the label %s nor %s", image.Reference(), labelBootc, labelBootable)
		}
	}
	if got, want := image.Parsed.Architecture, job.request.Architecture; got != want {
		return imageErrorf("image %s is for the architecture %s, the nodes have %s", image.Reference(), got, want)
	}
	return nil
}

// runVerify refuses an image that could not boot a node, before it has a tag.
func runVerify(_ context.Context, job *job, image *registry.Image) (*registry.Image, error) {
	if image == nil || job.os == nil {
		return nil, errNoImage
	}
	if err := checkImage(job, image); err != nil {
		return nil, err
	}
	if !image.StandsOn(job.os) {
		return nil, imageErrorf("image %s does not stand on the base %s: its lowest layers are others", image.Reference(), job.os.Reference())
	}
	if known := len(image.Parsed.RootFS.DiffIDs); known != len(image.Layers) {
		return nil, imageErrorf("image %s has %d layers, and its config knows %d", image.Reference(), len(image.Layers), known)
	}
	return image, nil
}
