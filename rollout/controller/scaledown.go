package controller

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// scaleDownKeys keep an autoscaler from removing a node: the Cluster Autoscaler
// and Karpenter. A node that is drained for its update looks idle to both.
var scaleDownKeys = []string{"cluster-autoscaler.kubernetes.io/scale-down-disabled", "karpenter.sh/do-not-disrupt"}

// labelExcluded takes a node out of the load balancers outside of the cluster, which
// then send it nothing new while its pods leave. Control-plane nodes often have it.
const labelExcluded = corev1.LabelNodeExcludeBalancers

// annotationKept names those of scaleDownKeys that we set, and labelExcluded: what
// somebody else has set, to whatever value, is theirs.
const annotationKept = "imagemode.dev/kept-from-scale-down"

// isKept says whether keepFromScaleDown has nothing left to set: what somebody has said counts.
func isKept(node *corev1.Node) bool {
	if _, isExcluded := node.Labels[labelExcluded]; !isExcluded {
		return false
	}
	return !slices.ContainsFunc(scaleDownKeys, func(key string) bool {
		_, isSet := node.Annotations[key]
		return !isSet
	})
}

// keepFromScaleDown sets what is not there, and takes the node out of load balancers.
// It goes with the cordon, in one write; on a node that somebody else has cordoned it
// takes that write's place.
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
	if _, isExcluded := node.Labels[labelExcluded]; !isExcluded {
		metav1.SetMetaDataLabel(&node.ObjectMeta, labelExcluded, "")
		if !slices.Contains(ours, labelExcluded) {
			ours = append(ours, labelExcluded)
		}
	}
	if len(ours) > 0 {
		node.Annotations[annotationKept] = strings.Join(ours, ",")
	}
}

// letScaleDown takes away what keepFromScaleDown has set, with the cordon.
func letScaleDown(node *corev1.Node) {
	for _, key := range keptKeys(node) {
		if key == labelExcluded {
			delete(node.Labels, key)
			continue
		}
		delete(node.Annotations, key)
	}
	delete(node.Annotations, annotationKept)
}

// keptKeys are those that annotationKept names; what else stands there is not ours.
func keptKeys(node *corev1.Node) []string {
	return slices.DeleteFunc(strings.Split(node.Annotations[annotationKept], ","), func(key string) bool {
		return key != labelExcluded && !slices.Contains(scaleDownKeys, key)
	})
}
