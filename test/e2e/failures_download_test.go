//go:build e2e

package e2e

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/imagemode/imagemode/api/v1alpha1"
	"github.com/imagemode/imagemode/test/e2e/story"
	"github.com/imagemode/imagemode/test/faults"
)

// downloading is a worker that downloads an image over a slow line.
type downloading struct {
	*failures
	worker, image string
	line          *faults.Line
}

// testKilledAgent: the agent that is started anew finds the download that runs.
func (d downloading) testKilledAgent(t *testing.T) {
	ctx := inTime(t)
	must(t, d.AwaitBytes(ctx, d.line, slowBytes/10))
	before, err := d.Pull(ctx, d.worker)
	must(t, err)
	must(t, d.KillAgent(ctx, d.worker))
	after, err := d.Pull(ctx, d.worker)
	must(t, err)
	if before != after {
		t.Errorf("the download was started anew: before\n%s\nafter\n%s", before, after)
	}
	node, err := d.AwaitNode(ctx, d.worker, "to have staged", story.HasStaged(d.image))
	must(t, err)
	if last := node.Status.LastAttempt; last == nil || last.Failures > 0 {
		t.Errorf("last attempt %+v, want one without a failure", last)
	}
	if passed := d.line.Passed(); passed > slowBytes*3/2 {
		t.Errorf("%d bytes were downloaded, more than once the image's %d", passed, slowBytes)
	}
}

// testRegistryGone: the failure is named with its class and the next try, and
// heals without anybody doing anything on the node.
func (d downloading) testRegistryGone(t *testing.T) {
	ctx := inTime(t)
	must(t, d.AwaitBytes(ctx, d.line, slowBytes/10))
	must(t, d.line.Close())
	node, err := d.AwaitNode(ctx, d.worker, "to say that the registry is away", func(node *v1alpha1.NodeImage) bool {
		staged := meta.FindStatusCondition(node.Status.Conditions, v1alpha1.ConditionStaged)
		return staged != nil && staged.Status == metav1.ConditionFalse && staged.Reason == string(v1alpha1.FailureRegistry)
	})
	must(t, err)
	if said := meta.FindStatusCondition(node.Status.Conditions, v1alpha1.ConditionStaged).Message; !strings.Contains(said, "next try at") {
		t.Errorf("Staged does not say when it is tried again: %s", said)
	}
	must(t, d.line.Open())
	node, err = d.AwaitNode(ctx, d.worker, "to have staged", story.HasStaged(d.image))
	must(t, err)
	if last := node.Status.LastAttempt; last == nil || last.Class != "" {
		t.Errorf("last attempt %+v, want one that succeeded", last)
	}
}
