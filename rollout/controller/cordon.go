package controller

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/imagemode/imagemode/api/v1alpha1"
)

// annotationCordoned marks a node that this controller cordoned, with the name
// of the rollout. It is written and removed together with the cordon itself:
// a crash in between cannot leave the one without the other. Who uncordons such
// a node and cordons it again before this controller looks is not noticed.
const annotationCordoned = "imagemode.dev/cordoned-for"

func isCordonedByUs(node *corev1.Node) bool {
	_, isMarked := node.Annotations[annotationCordoned]
	return node.Spec.Unschedulable && isMarked
}

// cordon makes the node of the slot unschedulable, also again when somebody
// made it schedulable in the meantime. It returns whether the cordon that is on
// the node is somebody else's, who may have been faster since the slot was given.
// Only where the cache does not show a cordon of ours is the API server asked.
func (r *Reconciler) cordon(ctx context.Context, rollout string, slot v1alpha1.Slot, cached *Node) (wasUnschedulable bool, err error) {
	if isCordonedByUs(cached.Node) {
		return false, nil
	}
	node, err := r.liveNode(ctx, slot)
	if err != nil || node == nil {
		return slot.WasUnschedulable, err
	}
	if node.Spec.Unschedulable {
		return !isCordonedByUs(node), nil
	}
	patch := client.MergeFromWithOptions(node.DeepCopy(), client.MergeFromWithOptimisticLock{})
	node.Spec.Unschedulable = true
	if node.Annotations == nil {
		node.Annotations = map[string]string{}
	}
	node.Annotations[annotationCordoned] = rollout
	keepFromScaleDown(node)
	if err := r.Client.Patch(ctx, node, patch, fieldOwner); err != nil {
		return false, fmt.Errorf("Node %s could not be cordoned: %w", node.Name, err)
	}
	return false, nil
}

// uncordon takes away our cordon, and only ours. The cached node, if there is
// one, follows: the same pass may give the next slot.
func (r *Reconciler) uncordon(ctx context.Context, slot v1alpha1.Slot, cached *Node) error {
	node, err := r.liveNode(ctx, slot)
	if err != nil || node == nil {
		return err
	}
	if _, isMarked := node.Annotations[annotationCordoned]; isMarked {
		patch := client.MergeFromWithOptions(node.DeepCopy(), client.MergeFromWithOptimisticLock{})
		delete(node.Annotations, annotationCordoned)
		letScaleDown(node)
		node.Spec.Unschedulable = false
		if err := r.Client.Patch(ctx, node, patch, fieldOwner); err != nil {
			return fmt.Errorf("Node %s could not be uncordoned: %w", node.Name, err)
		}
	}
	if cached != nil {
		cached.Node = node
	}
	return nil
}

// liveNode reads the slot's node from the API server; nil when it is gone, or
// another one has its name.
func (r *Reconciler) liveNode(ctx context.Context, slot v1alpha1.Slot) (*corev1.Node, error) {
	node := &corev1.Node{}
	if err := r.Live.Get(ctx, client.ObjectKey{Name: slot.Node}, node); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	if string(node.UID) != slot.NodeUID {
		return nil, nil
	}
	return node, nil
}
