package controller

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// scaleDownKeys keep an autoscaler from removing a node: the Cluster Autoscaler
// and Karpenter. A node that is drained for its update looks idle to both.
var scaleDownKeys = []string{"cluster-autoscaler.kubernetes.io/scale-down-disabled", "karpenter.sh/do-not-disrupt"}

// annotationKept names those of scaleDownKeys that we set: what somebody else has
// set, to whatever value, is theirs.
const annotationKept = "imagemode.dev/kept-from-scale-down"

// isKept says whether nothing is left to set: what somebody has said counts.
func isKept(node *corev1.Node) bool {
	return !slices.ContainsFunc(scaleDownKeys, func(key string) bool {
		_, isSet := node.Annotations[key]
		return !isSet
	})
}

// keepFromScaleDown sets what is not there. It goes with the cordon, in one write; on a
// node that somebody else has cordoned it takes that write's place.
func keepFromScaleDown(node *corev1.Node) {
	ours := keptKeys(node)
	if node.Annotations == nil {
		node.Annotations = map[string]string{}
	}
	for _, key := range scaleDownKeys {
		if _, isSet := node.Annotations[key]; isSet {
			continue
		}
		node.Annotations[key] = "true"
		if !slices.Contains(ours, key) {
			ours = append(ours, key)
		}
	}
	if len(ours) > 0 {
		node.Annotations[annotationKept] = strings.Join(ours, ",")
	}
}

// letScaleDown takes away what keepFromScaleDown has set, with the cordon.
func letScaleDown(node *corev1.Node) {
	for _, key := range keptKeys(node) {
		delete(node.Annotations, key)
	}
	delete(node.Annotations, annotationKept)
}

// keptKeys are those that annotationKept names; what else stands there is not ours.
func keptKeys(node *corev1.Node) []string {
	return slices.DeleteFunc(strings.Split(node.Annotations[annotationKept], ","), func(key string) bool {
		return !slices.Contains(scaleDownKeys, key)
	})
}
