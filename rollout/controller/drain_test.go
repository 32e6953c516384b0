package controller

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/imagemode/imagemode/api/v1alpha1"
)

// However short the time, a drain that took too long names the pods that were left.
func TestASkippedNodeNamesItsPods(t *testing.T) {
	tests := map[string]struct {
		timeout time.Duration
		told    bool
		want    string
	}{
		"a budget keeps one":               {10 * time.Second, false, "default/pod-worker-1 (no more disruptions allowed"},
		"a budget keeps one, for a minute": {time.Minute, false, "default/pod-worker-1 (no more disruptions allowed"},
		"one is on its way":                {10 * time.Second, true, "default/pod-worker-1 (was told to end)"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t, 2)
			recorder := events.NewFakeRecorder(1000)
			c.controller.Recorder = recorder
			c.blocked["pod-worker-1"] = true
			if test.told {
				pod := &corev1.Pod{}
				if err := c.client.Get(context.Background(), client.ObjectKey{Namespace: "default", Name: "pod-worker-1"}, pod); err != nil {
					t.Fatal(err)
				}
				pod.Finalizers = []string{"example.com/keep"}
				if err := errors.Join(c.client.Update(context.Background(), pod), c.client.Delete(context.Background(), pod)); err != nil {
					t.Fatal(err)
				}
				if err := c.client.Get(context.Background(), client.ObjectKeyFromObject(pod), pod); err != nil {
					t.Fatal(err)
				}
				c.now = pod.DeletionTimestamp.Add(-time.Hour) // a long grace period
			}
			c.changeRollout(func(s *v1alpha1.ImageRolloutSpec) {
				s.Image, s.Drain = imageB, v1alpha1.DrainSpec{OnTimeout: v1alpha1.DrainSkip, Timeout: &metav1.Duration{Duration: test.timeout}}
			})
			for range 20 {
				if c.rounds(1); len(c.rollout().Status.Skipped) > 0 {
					break
				}
			}
			skipped := c.rollout().Status.Skipped
			if len(skipped) != 1 || !strings.Contains(skipped[0].Message, test.want) {
				t.Fatalf("skipped %+v", skipped)
			}
			isTold := false
			for len(recorder.Events) > 0 {
				event := <-recorder.Events
				isTold = isTold || strings.HasPrefix(event, "Warning DrainSkipped ") && strings.Contains(event, test.want)
			}
			if !isTold {
				t.Error("the event does not name it")
			}
		})
	}
}

// Past the deadline, Force deletes what a budget keeps, and nothing else: most pods can
// still be evicted, and the right to delete them is not there by default.
func TestForceDeletesWhatABudgetKeeps(t *testing.T) {
	several := apierrors.NewInternalError(errors.New("This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."))
	mayNot := apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "web", errors.New("no right"))
	tests := map[string]struct {
		policy                v1alpha1.DrainTimeoutPolicy
		after                 time.Duration
		refusal, deletion     error
		isEvicted, isDeleted  bool
		blocked, alsoMentions string
	}{
		"no budget: evicted":                       {v1alpha1.DrainForce, 2 * time.Hour, nil, mayNot, true, false, "was told to end", ""},
		"a budget: deleted":                        {v1alpha1.DrainForce, 2 * time.Hour, tooManyRequests(), nil, false, true, "was told to end", ""},
		"several budgets: deleted":                 {v1alpha1.DrainForce, 2 * time.Hour, several, nil, false, true, "was told to end", ""},
		"a budget, before the deadline: kept":      {v1alpha1.DrainForce, time.Minute, tooManyRequests(), nil, false, false, "budget web needs 1", ""},
		"a budget under Halt: kept":                {v1alpha1.DrainHalt, 2 * time.Hour, tooManyRequests(), nil, false, false, "budget web needs 1", ""},
		"a budget, no right to delete: both named": {v1alpha1.DrainForce, 2 * time.Hour, tooManyRequests(), mayNot, false, true, "budget web needs 1", "imagemode-force-drain"},
		"an API server with much to do: kept":      {v1alpha1.DrainForce, 2 * time.Hour, apierrors.NewTooManyRequests("try later", 1), nil, false, false, "try later", ""},
		"a webhook that refuses: kept":             {v1alpha1.DrainForce, 2 * time.Hour, mayNot, nil, false, false, "no right", ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t, 1)
			var isEvicted, isDeleted bool
			c.controller.Client = interceptor.NewClient(c.client, interceptor.Funcs{
				SubResourceCreate: func(context.Context, client.Client, string, client.Object, client.Object, ...client.SubResourceCreateOption) error {
					isEvicted = test.refusal == nil
					return test.refusal
				},
				Delete: func(context.Context, client.WithWatch, client.Object, ...client.DeleteOption) error {
					isDeleted = true
					return test.deletion
				},
			})
			scope := newScope([]Node{newNode(1)}, holding(1, v1alpha1.SlotDraining), func(s *Scope) {
				s.Rollout.Spec.Drain.OnTimeout, s.Now = test.policy, start.Add(test.after)
			})
			_, blocked, err := c.controller.drain(context.Background(), scope, scope.Rollout.Status.Slots[0], &scope.Nodes[0])
			if err != nil || !strings.Contains(blocked, test.blocked) || !strings.Contains(blocked, test.alsoMentions) || (test.blocked == "") != (blocked == "") {
				t.Errorf("blocked %q, %v", blocked, err)
			}
			if isEvicted != test.isEvicted || isDeleted != test.isDeleted {
				t.Errorf("evicted: %t, deleted: %t", isEvicted, isDeleted)
			}
		})
	}
}
