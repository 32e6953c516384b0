package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/imagemode/imagemode/api/v1alpha1"
)

// fieldOwner is the name under which this controller writes.
const fieldOwner = client.FieldOwner("imagemode-rollout")

// applyImages brings every NodeImage to the spec that was decided, and removes
// those of nodes that were released. It goes on after an error, so that one
// node cannot hold up the others, and returns the nodes that failed.
func (r *Reconciler) applyImages(ctx context.Context, scope *Scope, answer Assignment) (failed map[string]error) {
	failed = map[string]error{}
	var changed []*Node
	for i := range scope.Nodes {
		node := &scope.Nodes[i]
		if spec, isAssigned := answer.Images[node.Name]; isAssigned && (node.Image == nil || node.Image.Spec != spec) {
			changed = append(changed, node)
		}
	}
	changed, atLeast := inTurn(scope, changed, answer.Images)
	problems := make([]error, len(changed))
	begun := r.now()
	r.inParallel(len(changed), func(i int) {
		if i < atLeast || r.now().Sub(begun) < othersTime {
			problems[i] = r.applyImage(ctx, changed[i], answer.Images[changed[i].Name])
		}
	})
	for i, problem := range problems {
		if problem != nil {
			failed[changed[i].Name] = problem
		}
	}
	for _, name := range answer.Released {
		if err := r.removeImage(ctx, scope.Rollout.Name, name); err != nil {
			failed[name] = err
		}
	}
	return failed
}

// Nodes that are out of service do not wait for thousands of others.
const (
	// maxOthers is how many NodeImages one pass writes of nodes without a slot.
	maxOthers = 100
	// maxOthersBeside is how many, and minOthersBeside how many at least, while
	// nodes are out of service: after othersTime no more than that.
	maxOthersBeside = 8
	minOthersBeside = 3
	othersTime      = 60 * time.Millisecond
)

// inTurn are the nodes whose NodeImages this pass writes, and how many of them
// even if that takes long: all that hold a slot, then those that are to download,
// then the others. What is left is for the next pass, which these writes bring
// about.
func inTurn(scope *Scope, changed []*Node, images map[string]v1alpha1.NodeImageSpec) (nodes []*Node, atLeast int) {
	limit, atLeast := maxOthers, maxOthers
	if len(scope.Rollout.Status.Slots) > 0 {
		limit, atLeast = maxOthersBeside, minOthersBeside
	}
	rank := map[string]int{}
	for _, node := range changed {
		switch {
		case scope.slot(node.Node) != nil:
			limit++
			atLeast++
		case images[node.Name].Phase != v1alpha1.PhaseIdle:
			rank[node.Name] = 1
		default:
			rank[node.Name] = 2
		}
	}
	slices.SortStableFunc(changed, func(a, b *Node) int { return rank[a.Name] - rank[b.Name] })
	return changed[:min(len(changed), limit)], atLeast
}

// applyImage writes one spec. An order to reboot is given on the latest report of
// the agent only: one that is based on an older view is a conflict.
func (r *Reconciler) applyImage(ctx context.Context, node *Node, spec v1alpha1.NodeImageSpec) error {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&spec)
	if err != nil {
		return err
	}
	object := &unstructured.Unstructured{Object: map[string]any{"spec": content}}
	object.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("NodeImage"))
	object.SetName(node.Name)
	if node.Image != nil && (spec.Phase == v1alpha1.PhaseBooted || spec.Phase == v1alpha1.PhaseRolledBack) {
		object.SetResourceVersion(node.Image.ResourceVersion)
	}
	object.Object["metadata"].(map[string]any)["ownerReferences"] = []any{map[string]any{
		"apiVersion": "v1", "kind": "Node", "name": node.Name, "uid": string(node.UID),
	}}
	if err := r.Client.Apply(ctx, client.ApplyConfigurationFromUnstructured(object), fieldOwner, client.ForceOwnership); err != nil {
		return fmt.Errorf("NodeImage %s could not be written: %w", node.Name, err)
	}
	return nil
}

// removeImage removes a NodeImage that still belongs to the rollout: another
// one may have taken the node over since it was read.
func (r *Reconciler) removeImage(ctx context.Context, rollout, name string) error {
	image := &v1alpha1.NodeImage{}
	if err := r.Live.Get(ctx, client.ObjectKey{Name: name}, image); err != nil {
		return client.IgnoreNotFound(err)
	}
	if image.Spec.Rollout != rollout {
		return nil
	}
	err := r.Client.Delete(ctx, image, client.Preconditions{UID: &image.UID, ResourceVersion: &image.ResourceVersion})
	if apierrors.IsConflict(err) {
		return nil // it has just changed hands
	}
	return client.IgnoreNotFound(err)
}

// removeLeftovers ends what a deleted rollout leaves behind, cordons included,
// should somebody have taken the finalizer off by hand.
func (r *Reconciler) removeLeftovers(ctx context.Context, rollout string) error {
	images := &v1alpha1.NodeImageList{}
	if err := r.Client.List(ctx, images); err != nil {
		return err
	}
	problems := []error{r.setPullSecret(ctx, rollout, nil)}
	for _, image := range images.Items {
		if image.Spec.Rollout == rollout {
			problems = append(problems, r.removeImage(ctx, rollout, image.Name))
		}
	}
	nodes := &corev1.NodeList{}
	if err := r.Client.List(ctx, nodes); err != nil {
		return err
	}
	for _, node := range nodes.Items {
		if node.Annotations[annotationCordoned] == rollout {
			problems = append(problems, r.uncordon(ctx, v1alpha1.Slot{Node: node.Name, NodeUID: string(node.UID)}, nil))
		}
	}
	return errors.Join(problems...)
}
