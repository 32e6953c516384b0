package machineosbuild

import (
	"context"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"

	keys "github.com/imagemode/imagemode/api/machineconfiguration"
)

// shortDigits is how many digits of a digest stand in a tag.
const shortDigits = 12

func shortDigest(digest string) string {
	hex := strings.TrimPrefix(digest, "sha256:")
	return hex[:min(len(hex), shortDigits)]
}

// holdTag is the tag by which a cluster keeps an image.
func holdTag(clusterID, digest string) string {
	return holdPrefix + clusterID + "-" + shortDigest(digest)
}

// hold keeps the image of a build that succeeded from being deleted by another
// cluster which shares the repository. It is nothing that a build waits for: what
// does not work now is tried again with the next look at the image.
func (r *configReconciler) hold(ctx context.Context, s *scope, build *mcfgv1.MachineOSBuild) error {
	if build.Labels[keys.LabelPreBuiltImage] != "" || build.Annotations[keys.AnnotationImageHeld] != "" {
		return nil
	}
	access, err := s.accessWith(s.pushSecretRef())
	if err != nil {
		return nil
	}
	image := string(build.Status.DigestedImagePushSpec)
	tag := holdTag(r.options.ClusterID, digestOf(image))
	if err := r.watch.images.Tag(ctx, access, image, tag); err != nil {
		log.FromContext(ctx).Info("cannot tag an image as used by this cluster; another one that shares the repository may delete it",
			"image", image, "tag", tag, "error", err.Error())
		return nil
	}
	before := build.DeepCopy()
	metav1.SetMetaDataAnnotation(&build.ObjectMeta, keys.AnnotationImageHeld, tag)
	if err := r.client.Patch(ctx, build, client.MergeFrom(before)); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("note that the image of MachineOSBuild %s is held: %w", build.Name, err)
	}
	return nil
}
