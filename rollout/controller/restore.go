package controller

import (
	"strings"

	"github.com/imagemode/imagemode/api/v1alpha1"
)

// restored gives a node whose NodeImage was deleted under pause what it was assigned, as
// far as the report of its agent tells. Without a pause it is assigned the image anew. It
// is no order to do anything: the node keeps what it has staged, else what it runs.
func restored(scope *Scope, images map[string]v1alpha1.NodeImageSpec) map[string]v1alpha1.NodeImageSpec {
	if !scope.Rollout.Spec.Paused || mayStage(scope) || scope.target() == "" {
		return images
	}
	for i := range scope.Nodes {
		node := &scope.Nodes[i]
		spec, isOurs := images[node.Name]
		if !isOurs || spec.Phase != v1alpha1.PhaseIdle || spec.DesiredImage != "" || !node.isCurrent() {
			continue
		}
		if spec.DesiredImage = assignedBefore(scope, node); spec.DesiredImage != "" {
			spec.Phase = v1alpha1.PhaseStaged
			images[node.Name] = spec
		}
	}
	return images
}

// assignedBefore is the image that a node was most likely told to have: the rollout's, or
// an earlier one from the same repository. What a new node was installed with comes from
// elsewhere, and nobody has assigned it.
func assignedBefore(scope *Scope, node *Node) string {
	repository, _, _ := strings.Cut(scope.target(), "@")
	for _, image := range []*v1alpha1.HostImage{node.Image.Status.Staged, node.Image.Status.Booted} {
		switch {
		case image == nil:
		case holds(image, scope.target()):
			return scope.target()
		case strings.HasPrefix(image.Image, repository+"@"):
			return image.Image
		}
	}
	return ""
}
