package controller

import (
	"context"
	"errors"
	"slices"

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
	answer, so := schedule(next), looked{nodes: map[types.UID]bool{}}
	for len(answer.Grants) > 0 {
		isNews, err := r.lookPastCache(ctx, next, answer.Grants, &so)
		if err != nil {
			return nil, Schedule{}, err
		}
		if !isNews {
			break
		}
		next.index()
		answer = schedule(next)
	}
	return next, answer, nil
}

// looked is what a pass has read past the cache so far.
type looked struct {
	cordons, controlPlane bool
	nodes                 map[types.UID]bool
}

// lookPastCache brings into the scope what decides about these grants and was not
// read yet, and says whether some of it is other than in the cache.
func (r *Reconciler) lookPastCache(ctx context.Context, scope *Scope, grants []v1alpha1.Slot, so *looked) (isNews bool, err error) {
	if !so.cordons && !scope.HasNewNodes {
		so.cordons = true
		if isNews, err = r.readCordons(ctx, scope); isNews || err != nil {
			return isNews, err
		}
	}
	if !so.controlPlane && grantsControlPlane(scope, grants) {
		so.controlPlane = true
		return true, r.readControlPlane(ctx, scope)
	}
	return r.readCandidates(ctx, scope, grants, so.nodes)
}

// readCordons brings into the scope which nodes anybody has cordoned, as the API
// server has it, and says whether that is news: their names alone, or a pass with
// hundreds of them would read megabytes.
func (r *Reconciler) readCordons(ctx context.Context, scope *Scope) (isNews bool, err error) {
	cordoned := &metav1.PartialObjectMetadataList{}
	cordoned.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("NodeList"))
	selector := client.MatchingFieldsSelector{Selector: fields.OneTermEqualSelector("spec.unschedulable", "true")}
	if err := r.Live.List(ctx, cordoned, selector); err != nil {
		return false, err
	}
	for i := range cordoned.Items {
		node := scope.node(slotOf(&cordoned.Items[i]))
		if node == nil || node.Spec.Unschedulable {
			continue
		}
		node.Node = node.DeepCopy()
		node.Spec.Unschedulable, isNews = true, true
	}
	return isNews, nil
}

// slotOf names a node the way a slot does.
func slotOf(node client.Object) v1alpha1.Slot {
	return v1alpha1.Slot{Node: node.GetName(), NodeUID: string(node.GetUID())}
}

// readCandidates brings the nodes that are to get a slot, with their NodeImages,
// into the scope as the API server has them, and says whether any has changed.
func (r *Reconciler) readCandidates(ctx context.Context, scope *Scope, grants []v1alpha1.Slot, seen map[types.UID]bool) (isNews bool, err error) {
	var fresh []*Node
	for _, slot := range grants {
		if node := scope.node(slot); node != nil && !seen[node.UID] {
			seen[node.UID] = true
			fresh = append(fresh, node)
		}
	}
	news, problems := make([]bool, len(fresh)), make([]error, len(fresh))
	r.inParallel(len(fresh), func(i int) { news[i], problems[i] = r.readCandidate(ctx, fresh[i]) })
	return slices.Contains(news, true), errors.Join(problems...)
}

// readCandidate reads one; a node that is gone is none any more.
func (r *Reconciler) readCandidate(ctx context.Context, cached *Node) (isNews bool, err error) {
	node, err := r.liveNode(ctx, slotOf(cached.Node))
	if err != nil {
		return false, err
	}
	image := &v1alpha1.NodeImage{}
	err = r.Live.Get(ctx, client.ObjectKey{Name: cached.Name}, image)
	if client.IgnoreNotFound(err) != nil {
		return false, err
	}
	if node == nil || err != nil {
		cached.Image = nil
		return true, nil
	}
	if node.ResourceVersion == cached.ResourceVersion && image.ResourceVersion == cached.Image.ResourceVersion {
		return false, nil
	}
	cached.Node, cached.Image = node, imageOf(node, image)
	return true, nil
}
