package controller

import (
	"maps"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

const stillAttached = "still attached"

// attachedVolumes names the volumes that the pods which left the node have left behind:
// on a node that reboots they are not detached, and no other node gets them. Pods that
// stay keep theirs; which those are the Node does not say, so that as many as they may
// have attached are not waited for.
func attachedVolumes(node *corev1.Node, staying []*corev1.Pod) []string {
	attached, kept := node.Status.VolumesAttached, 0
	for _, pod := range staying {
		kept += attachable(pod)
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

// attachable is how many volumes a pod has that may be attached to its node; one that has
// ended: none.
func attachable(pod *corev1.Pod) int {
	if pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
		return 0
	}
	count := 0
	for _, volume := range pod.Spec.Volumes {
		isLocal := volume.EmptyDir != nil || volume.HostPath != nil || volume.ConfigMap != nil || volume.Secret != nil ||
			volume.Projected != nil || volume.DownwardAPI != nil || volume.Image != nil
		if !isLocal {
			count++
		}
	}
	return count
}

// detaching is since when nodes without pods wait for their volumes, by UID: some seconds
// are no news. A controller that was started meanwhile begins anew. It is safe for
// concurrent use.
type detaching struct {
	mutex sync.Mutex
	nodes map[types.UID]detachingNode
}

type detachingNode struct{ since, seen time.Time }

// detachingKept is for how long a node that nobody looks at any more is remembered.
const detachingKept = time.Hour

// since is when the node began to wait, which may be now.
func (d *detaching) since(node types.UID, now time.Time) time.Time {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	maps.DeleteFunc(d.nodes, func(_ types.UID, n detachingNode) bool { return now.Sub(n.seen) > detachingKept })
	if d.nodes == nil {
		d.nodes = map[types.UID]detachingNode{}
	}
	entry, isKnown := d.nodes[node]
	if !isKnown {
		entry.since = now
	}
	entry.seen = now
	d.nodes[node] = entry
	return entry.since
}

// end forgets the node.
func (d *detaching) end(node types.UID) {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	delete(d.nodes, node)
}
