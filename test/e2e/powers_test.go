//go:build e2e

package e2e

import (
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/imagemode/imagemode/api/v1alpha1"
)

// powers is what an agent may do: write the status of its own node's NodeImage.
type powers struct {
	// user has the agent's credential.
	user client.Client
	// own is the agent's node, other another one with a NodeImage.
	own, other string
	// rollout is an ImageRollout.
	rollout string
}

func (p powers) check(t *testing.T) {
	t.Helper()
	ctx := inTime(t)
	patch := func(text string) client.Patch { return client.RawPatch("application/merge-patch+json", []byte(text)) }
	of := func(node string) *v1alpha1.NodeImage {
		return &v1alpha1.NodeImage{ObjectMeta: metav1.ObjectMeta{Name: node}}
	}
	const status = `{"status":{"bootID":"stolen"}}`
	for name, try := range map[string]func(*v1alpha1.NodeImage) error{
		"its own status": func(*v1alpha1.NodeImage) error {
			return p.user.Status().Patch(ctx, of(p.own), patch(status), client.DryRunAll)
		},
		"another node's status": func(*v1alpha1.NodeImage) error {
			return p.user.Status().Patch(ctx, of(p.other), patch(status), client.DryRunAll)
		},
		"its own spec": func(own *v1alpha1.NodeImage) error {
			return p.user.Patch(ctx, own, patch(`{"spec":{"phase":"Booted"}}`), client.DryRunAll)
		},
		"its own labels": func(own *v1alpha1.NodeImage) error {
			return p.user.Patch(ctx, own, patch(`{"metadata":{"labels":{"a":"b"}}}`), client.DryRunAll)
		},
		"its own owners": func(own *v1alpha1.NodeImage) error {
			return p.user.Patch(ctx, own, patch(`{"metadata":{"ownerReferences":null}}`), client.DryRunAll)
		},
		"its own NodeImage's end": func(own *v1alpha1.NodeImage) error { return p.user.Delete(ctx, own, client.DryRunAll) },
		"a new NodeImage": func(*v1alpha1.NodeImage) error {
			return p.user.Create(ctx, &v1alpha1.NodeImage{ObjectMeta: metav1.ObjectMeta{Name: "new"}, Spec: v1alpha1.NodeImageSpec{Rollout: "a", Phase: v1alpha1.PhaseIdle}}, client.DryRunAll)
		},
		"a rollout": func(*v1alpha1.NodeImage) error {
			return p.user.Patch(ctx, &v1alpha1.ImageRollout{ObjectMeta: metav1.ObjectMeta{Name: p.rollout}}, patch(`{"spec":{"paused":true}}`), client.DryRunAll)
		},
	} {
		switch err := try(of(p.own)); {
		case name == "its own status" && err != nil:
			t.Errorf("%s is refused: %v", name, err)
		case name != "its own status" && !apierrors.IsForbidden(err):
			t.Errorf("%s: %v, want it forbidden", name, err)
		}
	}
	// By way of the status nothing else can be changed either.
	before, after := of(p.own), of(p.own)
	must(t, p.user.Get(ctx, client.ObjectKeyFromObject(before), before))
	must(t, p.user.Status().Patch(ctx, after, patch(`{"metadata":{"labels":{"a":"b"},"ownerReferences":null},"spec":{"rollout":"stolen"},"status":{"bootID":"stolen"}}`), client.DryRunAll))
	if len(after.Labels) > 0 || len(after.OwnerReferences) != 1 || after.Spec.Rollout != before.Spec.Rollout {
		t.Errorf("with the status came labels %v, owners %v and rollout %s", after.Labels, after.OwnerReferences, after.Spec.Rollout)
	}
}
