package controller

import (
	"context"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/imagemode/imagemode/api/v1alpha1"
)

// A rollout that is deleted while an agent is away says what it waits for, and the Node
// deleted it goes.
func TestADeletedRolloutSaysWhichAgentItWaitsFor(t *testing.T) {
	c := newCluster(t, 2)
	c.to(imageB)
	for range 20 {
		if c.machines["worker-1"].leaving == "" {
			c.rounds(1)
		}
	}
	if err := c.client.Delete(context.Background(), c.rollout()); err != nil {
		t.Fatal(err)
	}
	c.now = c.rollout().DeletionTimestamp.Add(answerAfter)
	for range 3 {
		c.reconcile() // the machine hangs
	}
	status := c.rollout().Status
	const want = "the rollout is being deleted, and the agent of worker-1 has to confirm that it will not reboot"
	progressing, degraded := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionProgressing), meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionDegraded)
	if len(status.Slots) != 1 || !strings.Contains(status.Slots[0].Message, want) {
		t.Errorf("slots %+v", status.Slots)
	}
	if progressing.Reason != "Deleting" || !strings.Contains(progressing.Message, want) {
		t.Errorf("Progressing %+v", progressing)
	}
	if degraded.Reason != "RecallUnconfirmed" || !strings.Contains(degraded.Message, want) || !strings.Contains(degraded.Message, "delete the Node if it is gone for good") {
		t.Errorf("Degraded %+v", degraded)
	}
	c.removeNode("worker-1")
	for range 3 {
		c.reconcile()
	}
	if err := c.client.Get(context.Background(), client.ObjectKey{Name: "worker"}, &v1alpha1.ImageRollout{}); !apierrors.IsNotFound(err) {
		t.Errorf("the rollout is left: %v", err)
	}
}
