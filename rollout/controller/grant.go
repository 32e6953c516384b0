package controller

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/imagemode/imagemode/api/v1alpha1"
)

// maxGrants is how many slots one pass gives, nodes whose agents are asked first
// included: those that are to come next wait for less long than it would take to
// carry out hundreds at once.
const maxGrants = 8

// grant gives slots on what the cache shows; before one is given it looks past
// the cache: at all nodes that are cordoned, unless the cache is known to be new,
// and at each that is to get a slot.
// The slots themselves were read from the API server. It returns the scope as it
// will be when the slots that are left are written.
func (r *Reconciler) grant(ctx context.Context, scope *Scope, progress progress) (*Scope, Schedule, error) {
	next := scope.after(progress.slots, progress.skipped)
	answer := schedule(next)
	if len(answer.Grants) == 0 {
		return next, answer, nil
	}
	if !next.HasNewNodes {
		if err := r.readCordons(ctx, next); err != nil {
			return nil, Schedule{}, err
		}
	}
	seen, hasControlPlane := map[types.UID]bool{}, false
	for {
		answer = schedule(next)
		if !hasControlPlane && grantsControlPlane(next, answer.Grants) {
			if err := r.readControlPlane(ctx, next); err != nil {
				return nil, Schedule{}, err
			}
			hasControlPlane = true
			continue
		}
		isAll, err := r.readCandidates(ctx, next, answer.Grants, seen)
		if err != nil {
			return nil, Schedule{}, err
		}
		if isAll {
			return next, answer, nil
		}
	}
}

// readCordons brings into the scope which nodes anybody has cordoned, as the API
// server has it: their names alone, or a pass with hundreds of them would read
// megabytes.
func (r *Reconciler) readCordons(ctx context.Context, scope *Scope) error {
	cordoned := &metav1.PartialObjectMetadataList{}
	cordoned.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("NodeList"))
	selector := client.MatchingFieldsSelector{Selector: fields.OneTermEqualSelector("spec.unschedulable", "true")}
	if err := r.Live.List(ctx, cordoned, selector); err != nil {
		return err
	}
	for i := range cordoned.Items {
		node := scope.node(slotOf(&cordoned.Items[i]))
		if node == nil || node.Spec.Unschedulable {
			continue
		}
		node.Node = node.DeepCopy()
		node.Spec.Unschedulable = true
	}
	return nil
}

// slotOf names a node the way a slot does.
func slotOf(node client.Object) v1alpha1.Slot {
	return v1alpha1.Slot{Node: node.GetName(), NodeUID: string(node.GetUID())}
}

// readCandidates brings the nodes that are to get a slot, with their NodeImages,
// into the scope as the API server has them, and says whether all had been.
func (r *Reconciler) readCandidates(ctx context.Context, scope *Scope, grants []v1alpha1.Slot, seen map[types.UID]bool) (isAll bool, err error) {
	var fresh []*Node
	for _, slot := range grants {
		if node := scope.node(slot); node != nil && !seen[node.UID] {
			seen[node.UID] = true
			fresh = append(fresh, node)
		}
	}
	problems := make([]error, len(fresh))
	r.inParallel(len(fresh), func(i int) { problems[i] = r.readCandidate(ctx, fresh[i]) })
	for _, problem := range problems {
		if problem != nil {
			return false, problem
		}
	}
	return len(fresh) == 0, nil
}

// readCandidate reads one; a node that is gone is none any more.
func (r *Reconciler) readCandidate(ctx context.Context, cached *Node) error {
	node, err := r.liveNode(ctx, slotOf(cached.Node))
	if err != nil {
		return err
	}
	image := &v1alpha1.NodeImage{}
	err = r.Live.Get(ctx, client.ObjectKey{Name: cached.Name}, image)
	if client.IgnoreNotFound(err) != nil {
		return err
	}
	if node == nil || err != nil {
		cached.Image = nil
		return nil
	}
	cached.Node, cached.Image = node, imageOf(node, image)
	return nil
}
