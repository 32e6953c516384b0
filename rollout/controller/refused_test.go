package controller

import (
	"context"
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/imagemode/imagemode/api/v1alpha1"
)

// refusing has the API server refuse what the controller writes of a kind.
func (c *cluster) refusing(refuses func(kind string) bool) {
	refusal := func(kind string) error {
		if refuses(kind) {
			return apierrors.NewForbidden(schema.GroupResource{Resource: kind}, "", errors.New("denied by policy\nkeep-out"))
		}
		return nil
	}
	served, isWatching := c.controller.Client.(client.WithWatch)
	if !isWatching {
		c.t.Fatalf("the client in memory cannot watch")
	}
	c.controller.Client = interceptor.NewClient(served, interceptor.Funcs{
		Patch: func(ctx context.Context, w client.WithWatch, object client.Object, patch client.Patch, options ...client.PatchOption) error {
			_, isNode := object.(*corev1.Node)
			if err := refusal(map[bool]string{true: "nodes"}[isNode]); err != nil {
				return err
			}
			return w.Patch(ctx, object, patch, options...)
		},
		Create: func(ctx context.Context, w client.WithWatch, object client.Object, options ...client.CreateOption) error {
			_, isSecret := object.(*corev1.Secret)
			if err := refusal(map[bool]string{true: "secrets"}[isSecret]); err != nil {
				return err
			}
			return w.Create(ctx, object, options...)
		},
		Apply: func(ctx context.Context, w client.WithWatch, object runtime.ApplyConfiguration, options ...client.ApplyOption) error {
			named, _ := object.(interface{ GetKind() string })
			if err := refusal(map[bool]string{true: "nodeimages"}[named != nil && named.GetKind() == "NodeImage"]); err != nil {
				return err
			}
			return w.Apply(ctx, object, options...)
		},
	})
}

// tryRounds is rounds with passes that may fail.
func (c *cluster) tryRounds(count int) {
	c.t.Helper()
	for range count {
		_, _ = c.controller.Reconcile(context.Background(), ctrl.Request{NamespacedName: client.ObjectKey{Name: "worker"}})
		for name := range c.machines {
			c.act(name)
		}
		c.now = c.now.Add(statusInterval)
	}
}

// TestWhatTheAPIServerRefusesIsSaid where users look: the controller tries it for ever.
func TestWhatTheAPIServerRefusesIsSaid(t *testing.T) {
	tests := map[string]struct {
		kind, reason, names string
	}{
		"a cordon":                           {"nodes", "WriteRefused", "worker-1: Node worker-1 could not be cordoned"},
		"an assignment":                      {"nodeimages", "WriteRefused", "worker-1: NodeImage worker-1 could not be written"},
		"the pull secret's way to the nodes": {"secrets", "PullSecretMissing", "could not be brought to the agents, by Secret " + testNamespace + "/" + nodePullSecret},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t, 2)
			c.create(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "pull", Namespace: testNamespace}, Data: map[string][]byte{corev1.DockerConfigJsonKey: []byte("{}")}})
			c.changeRollout(func(s *v1alpha1.ImageRolloutSpec) {
				s.Image, s.PullSecretRef = imageB, &v1alpha1.SecretReference{Name: "pull", Namespace: testNamespace}
			})
			isAway := true
			c.refusing(func(kind string) bool { return isAway && kind == test.kind })
			c.tryRounds(6)
			status := c.rollout().Status
			degraded := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionDegraded)
			if degraded == nil || degraded.Reason != test.reason || !strings.Contains(degraded.Message, test.names) || !strings.Contains(degraded.Message, "denied by policy keep-out") {
				t.Errorf("Degraded is %+v", degraded)
			}
			if test.kind == "nodes" && (len(status.Slots) != 1 || !strings.Contains(status.Slots[0].Message, "denied by policy keep-out")) {
				t.Errorf("slots %+v", status.Slots)
			}
			isAway = false
			c.settle()
			c.expectUpdated(imageB)
		})
	}
}
