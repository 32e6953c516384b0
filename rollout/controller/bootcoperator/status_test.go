package bootcoperator

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/imagemode/imagemode/api/v1alpha1"
)

func TestAPoolWithoutNodesIsNotSaidToBeUpdated(t *testing.T) {
	rollout := &v1alpha1.ImageRollout{Spec: v1alpha1.ImageRolloutSpec{
		Image: imageB, NodeSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"pool": "worker"}},
	}}
	for name, test := range map[string]struct {
		nodes        int32
		reason, text string
	}{
		"none": {0, "NoNodes", "spec.nodeSelector (pool=worker)"},
		"some": {2, "Updated", "2 of 2 nodes updated"},
	} {
		t.Run(name, func(t *testing.T) {
			var found report
			found.pool.NodeCount, found.pool.UpdatedCount = test.nodes, test.nodes
			found.pool.Conditions = []metav1.Condition{{Type: "UpToDate", Status: metav1.ConditionTrue}}
			if got := progressing(rollout, found); got.Reason != test.reason || !strings.Contains(got.Message, test.text) {
				t.Errorf("%s: %s", got.Reason, got.Message)
			}
		})
	}
}
