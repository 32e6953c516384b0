package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
// The API server is asked only where the cache shows somebody else's cordon, or
// turns out to be old.
func (r *Reconciler) cordon(ctx context.Context, rollout string, slot v1alpha1.Slot, cached *Node) (wasUnschedulable bool, err error) {
	if isCordonedByUs(cached.Node) {
		return false, nil
	}
	if !cached.Spec.Unschedulable {
		if err = r.putCordon(ctx, rollout, cached.DeepCopy()); !isOutdated(err) {
			return false, err
		}
	}
	node, err := r.liveNode(ctx, slot)
	if err != nil || node == nil {
		return slot.WasUnschedulable, err
	}
	if node.Spec.Unschedulable && !isCordonedByUs(node) {
		return true, r.keep(ctx, cached, node)
	}
	if node.Spec.Unschedulable {
		return false, nil
	}
	return false, r.putCordon(ctx, rollout, node)
}

// keep keeps a node from autoscalers that somebody else has cordoned: we drain it, so
// that it looks idle. Its cordon stays theirs.
func (r *Reconciler) keep(ctx context.Context, cached *Node, node *corev1.Node) error {
	if isKept(node) {
		return nil
	}
	patch := client.MergeFromWithOptions(node.DeepCopy(), client.MergeFromWithOptimisticLock{})
	keepFromScaleDown(node)
	if err := r.Client.Patch(ctx, node, patch, fieldOwner); err != nil {
		return fmt.Errorf("Node %s could not be kept from autoscalers: %w", node.Name, err)
	}
	cached.Node = node
	return nil
}

// putCordon writes the cordon, unless the node is another one than the server's.
func (r *Reconciler) putCordon(ctx context.Context, rollout string, node *corev1.Node) error {
	patch := client.MergeFromWithOptions(node.DeepCopy(), client.MergeFromWithOptimisticLock{})
	node.Spec.Unschedulable = true
	keepFromScaleDown(node)
	metav1.SetMetaDataAnnotation(&node.ObjectMeta, annotationCordoned, rollout)
	if err := r.Client.Patch(ctx, node, patch, fieldOwner); err != nil {
		return fmt.Errorf("Node %s could not be cordoned: %w", node.Name, err)
	}
	r.cordons.wrote(node, r.now())
	return nil
}

// uncordon takes away our cordon, and only ours, with what keeps the node from
// autoscalers. The cached node, if there is
// one, follows: the same pass may give the next slot.
func (r *Reconciler) uncordon(ctx context.Context, slot v1alpha1.Slot, cached *Node) error {
	if cached != nil && isCordonedByUs(cached.Node) {
		node := cached.DeepCopy()
		if err := r.removeCordon(ctx, node); !isOutdated(err) {
			if err == nil {
				cached.Node = node
			}
			return err
		}
	}
	node, err := r.liveNode(ctx, slot)
	if err != nil || node == nil {
		return err
	}
	_, isMarked := node.Annotations[annotationCordoned]
	if isMarked || len(keptKeys(node)) > 0 {
		if err := r.removeCordon(ctx, node); err != nil {
			return err
		}
	}
	if cached != nil {
		cached.Node = node
	}
	return nil
}

// removeCordon writes that what we have put on the node is gone, unless it is another one
// than the server's. A cordon without our mark stays.
func (r *Reconciler) removeCordon(ctx context.Context, node *corev1.Node) error {
	patch := client.MergeFromWithOptions(node.DeepCopy(), client.MergeFromWithOptimisticLock{})
	if _, isMarked := node.Annotations[annotationCordoned]; isMarked {
		node.Spec.Unschedulable = false
	}
	delete(node.Annotations, annotationCordoned)
	letScaleDown(node)
	if err := r.Client.Patch(ctx, node, patch, fieldOwner); err != nil {
		return fmt.Errorf("Node %s could not be uncordoned: %w", node.Name, err)
	}
	r.cordons.wrote(node, r.now())
	return nil
}

// strayAfter is how long after the last status they are looked for.
const strayAfter = 5 * time.Second

// strays are the nodes that have our mark and no slot.
func strays(scope *Scope) []*Node {
	var found []*Node
	for i := range scope.Nodes {
		if node := &scope.Nodes[i]; node.Annotations[annotationCordoned] == scope.Rollout.Name && scope.slot(node.Node) == nil {
			found = append(found, node)
		}
	}
	return found
}

// returnStrays uncordons them: of two controllers that were at work for a moment, one
// may have cordoned a node that the other had freed. Right after a status was written
// the cache may still show marks of slots that were freed with it.
func (r *Reconciler) returnStrays(ctx context.Context, scope *Scope, failed map[string]error) {
	if last, isKnown := r.written[scope.Rollout.Name]; isKnown && r.now().Sub(last.at) < strayAfter {
		return
	}
	for _, node := range strays(scope) {
		if err := r.uncordon(ctx, slotOf(node.Node), node); err != nil {
			failed[node.Name] = errors.Join(failed[node.Name], err)
		}
	}
}

// isOutdated says that a write was refused because it was based on an old copy.
func isOutdated(err error) bool { return apierrors.IsConflict(err) || apierrors.IsNotFound(err) }

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

// lastCordon is the last write of a cordon, by which the cache of nodes shows how
// old it is. It is safe for concurrent use.
type lastCordon struct {
	mutex         sync.Mutex
	node, version string
	at            time.Time
}

func (l *lastCordon) wrote(node *corev1.Node, at time.Time) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	l.node, l.version, l.at = node.Name, node.ResourceVersion, at
}

// freshFor is how long a cache that shows our last write counts as new.
const freshFor = time.Second

// isShown says whether nodes from the cache have the last write, and that it was
// made a moment ago.
func (l *lastCordon) isShown(nodes []Node, now time.Time) bool {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	return now.Sub(l.at) < freshFor && slices.ContainsFunc(nodes, func(n Node) bool {
		return n.Name == l.node && n.ResourceVersion == l.version
	})
}
