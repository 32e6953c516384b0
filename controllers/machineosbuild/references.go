package machineosbuild

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"

	keys "github.com/imagemode/imagemode/api/machineconfiguration"
	imagemodev1alpha1 "github.com/imagemode/imagemode/api/v1alpha1"
)

// +kubebuilder:rbac:groups=imagemode.dev,resources=nodeimages;imagerollouts,verbs=get;list;watch
// +kubebuilder:rbac:groups="",resources=nodes,verbs=get;list;watch

// nodeImageAnnotations are where other updaters say what a node runs.
var nodeImageAnnotations = []string{keys.AnnotationCurrentImage, keys.AnnotationDesiredImage}

// usedDigests are the digests that nodes run, have ready or could go back to, and
// those that rollouts take to them.
func usedDigests(ctx context.Context, reader client.Reader) (map[string]bool, error) {
	used := map[string]bool{}
	add := func(image string) { used[digestOf(image)] = true }
	var nodeImages imagemodev1alpha1.NodeImageList
	if err := reader.List(ctx, &nodeImages); err != nil {
		return nil, fmt.Errorf("list NodeImages: %w", err)
	}
	for i := range nodeImages.Items {
		node := &nodeImages.Items[i]
		add(node.Spec.DesiredImage)
		for _, entry := range []*imagemodev1alpha1.HostImage{node.Status.Booted, node.Status.Staged, node.Status.Rollback} {
			if entry != nil {
				used[entry.Digest] = true
			}
		}
	}
	var rollouts imagemodev1alpha1.ImageRolloutList
	if err := reader.List(ctx, &rollouts); err != nil {
		return nil, fmt.Errorf("list ImageRollouts: %w", err)
	}
	for i := range rollouts.Items {
		add(rollouts.Items[i].Spec.Image)
	}
	var nodes corev1.NodeList
	if err := reader.List(ctx, &nodes); err != nil {
		return nil, fmt.Errorf("list Nodes: %w", err)
	}
	for i := range nodes.Items {
		for _, annotation := range nodeImageAnnotations {
			add(nodes.Items[i].Annotations[annotation])
		}
	}
	return used, nil
}

// keptDigests adds to usedDigests what MachineOSConfigs and the builds that are
// kept refer to: an edit that is taken back finds its image.
func keptDigests(ctx context.Context, reader client.Reader, builds []mcfgv1.MachineOSBuild, configs []mcfgv1.MachineOSConfig) (map[string]bool, error) {
	kept, err := usedDigests(ctx, reader)
	if err != nil {
		return nil, err
	}
	for i := range builds {
		if hasSucceeded(&builds[i]) {
			kept[digestOf(string(builds[i].Status.DigestedImagePushSpec))] = true
		}
	}
	for i := range configs {
		kept[digestOf(string(configs[i].Status.CurrentImagePullSpec))] = true
	}
	return kept, nil
}
