package controller

import (
	corev1 "k8s.io/api/core/v1"
)

const stillAttached = "still attached"

// attachedVolumes names the volumes that the pods which left the node have left behind:
// on a node that reboots they are not detached, and no other node gets them. Pods that
// stay keep theirs; of a claim one cannot tell whether it is of a volume that is attached,
// so that as many as they have claims are not waited for.
func attachedVolumes(node *corev1.Node, staying []*corev1.Pod) []string {
	attached, kept := node.Status.VolumesAttached, 0
	for _, pod := range staying {
		kept += claims(pod)
	}
	if len(attached) <= kept {
		return nil
	}
	why := " (" + stillAttached + ": see its VolumeAttachment and the pods of its driver)"
	if kept > 0 {
		why = " (" + stillAttached + ", or in use by a pod that stays)"
	}
	var names []string
	for _, volume := range attached {
		names = append(names, string(volume.Name)+why)
	}
	return names
}

// claims is how many volumes that may be attached a pod has; one that has ended: none.
func claims(pod *corev1.Pod) int {
	if pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
		return 0
	}
	count := 0
	for _, volume := range pod.Spec.Volumes {
		if volume.PersistentVolumeClaim != nil || volume.Ephemeral != nil {
			count++
		}
	}
	return count
}
