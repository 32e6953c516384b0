//go:build envtest

package controller

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/imagemode/imagemode/api/v1alpha1"
	"github.com/imagemode/imagemode/test/envtest"
)

// crashStride is how many writes lie between two crashes of the sweep here: the
// sweep in memory takes every one.
const crashStride = 10

// TestCrashesOnARealAPIServer: server-side apply, resource versions, finalizers
// and eviction are the API server's, the machines and agents are not.
func TestCrashesOnARealAPIServer(t *testing.T) {
	config := envtest.Start(t)
	config.QPS = -1
	server, err := client.NewWithWatch(config, client.Options{Scheme: newScheme(t)})
	if err != nil {
		t.Fatal(err)
	}
	if err := server.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: testNamespace}}); err != nil {
		t.Fatal(err)
	}
	writes := 0
	run := func(t *testing.T, at int, late bool) {
		c := newClusterOn(t, 3, server)
		defer c.remove(t)
		writes = rollOutWithCrash(c, at, late)
	}
	t.Run("without a crash", func(t *testing.T) { run(t, 0, false) })
	t.Logf("%d writes for three nodes", writes)
	for at := 1; at <= writes; at += crashStride {
		for _, late := range []bool{false, true} {
			t.Run(fmt.Sprintf("at write %d, late %t", at, late), func(t *testing.T) { run(t, at, late) })
		}
	}
	t.Run("NodeImages are deleted under pause", func(t *testing.T) {
		c := newClusterOn(t, 2, server)
		defer c.remove(t)
		nodeImagesComeBack(t, c)
	})
	t.Run("an agent that does not answer is named", func(t *testing.T) {
		c := newClusterOn(t, 2, server)
		defer c.remove(t)
		anAgentIsSilent(t, c)
	})
	t.Run("a rollout is deleted while a node is away", func(t *testing.T) {
		c := newClusterOn(t, 2, server)
		c.blocked["pod-worker-1"], c.blocked["pod-worker-2"] = true, true
		c.to(imageB)
		c.rounds(10)
		c.remove(t)
	})
}

// remove deletes the rollout, then sees that the nodes are back in service and
// nothing is left, and removes the nodes.
func (c *cluster) remove(t *testing.T) {
	t.Helper()
	c.crashAt = 0
	if err := c.client.Delete(context.Background(), c.rollout()); err != nil {
		t.Fatal(err)
	}
	c.rounds(6)
	if err := c.client.Get(context.Background(), client.ObjectKey{Name: "worker"}, &v1alpha1.ImageRollout{}); err == nil {
		t.Error("the rollout is left")
	}
	for _, name := range slices.Sorted(maps.Keys(c.machines)) {
		if c.image(name) != nil || c.node(name).Spec.Unschedulable {
			t.Errorf("%s is cordoned, or keeps its NodeImage", name)
		}
		c.removeNode(name)
	}
}

// anAgentIsSilent: the times that the API server keeps of who wrote a NodeImage say
// since when an agent does not answer.
func anAgentIsSilent(t *testing.T, c *cluster) {
	t.Helper()
	c.now = time.Now()
	c.to(imageB)
	c.settle()
	c.now = time.Now() // the API server's, which has not waited
	c.to(imageD)
	c.reconcile()
	told := c.now
	c.act("worker-2") // and worker-1 does nothing
	for _, test := range []struct {
		after time.Duration
		want  string
	}{{0, "AsExpected"}, {answerAfter + 2*time.Second, "AgentSilent"}} {
		c.now = told.Add(test.after)
		c.reconcile()
		got := meta.FindStatusCondition(c.rollout().Status.Conditions, v1alpha1.ConditionDegraded)
		if got == nil || got.Reason != test.want {
			t.Fatalf("after %s: Degraded is %+v, want %s", test.after, got, test.want)
		}
		if test.want == "AgentSilent" && (!strings.Contains(got.Message, "worker-1 since") || strings.Contains(got.Message, "worker-2")) {
			t.Errorf("%q does not name worker-1 alone", got.Message)
		}
	}
	c.act("worker-1")
	c.reconcile()
	if got := meta.FindStatusCondition(c.rollout().Status.Conditions, v1alpha1.ConditionDegraded); got.Reason == "AgentSilent" {
		t.Errorf("after its answer: %s", got.Message)
	}
}
