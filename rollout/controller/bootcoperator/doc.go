// Package bootcoperator hands rollouts to the bootc operator of a cluster that
// has one, in place of doing them: it writes a BootcNodePool (group
// node.bootc.dev, version v1alpha1) for every ImageRollout, and brings what that
// operator reports back into the ImageRollout and into NodeImages, so that the
// build half and its users see no difference.
//
// That operator is asked from time to time, not watched: its kinds are not part
// of this program, and may come and go.
package bootcoperator

// +kubebuilder:rbac:groups=node.bootc.dev,resources=bootcnodepools,verbs=get;create;patch
// +kubebuilder:rbac:groups=node.bootc.dev,resources=bootcnodes,verbs=list
// +kubebuilder:rbac:groups=imagemode.dev,resources=imagerollouts/status;nodeimages/status,verbs=get;patch
