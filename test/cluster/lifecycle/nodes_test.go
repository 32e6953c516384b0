package lifecycle

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/imagemode/imagemode/test/cluster/osimage"
)

func TestNodeReady(t *testing.T) {
	now := metav1.NewTime(time.Unix(1_700_000_000, 0))
	before := metav1.NewTime(now.Add(-2 * time.Second))
	for sentence, test := range map[string]struct {
		conditions []corev1.NodeCondition
		ready      bool
		why        string
	}{
		"a node that has just registered": {why: "has no Ready condition"},
		"a Ready node": {
			conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastHeartbeatTime: now}},
			ready:      true,
		},
		"a node that was Ready before it was started again": {
			conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastHeartbeatTime: before}},
			why:        "has not reported since " + now.Format(time.TimeOnly),
		},
		"a node whose network is missing": {
			conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionFalse, LastHeartbeatTime: now, Message: "cni plugin not initialized"}},
			why:        "is not Ready: cni plugin not initialized",
		},
		"a node whose kubelet has gone": {
			conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionUnknown, LastHeartbeatTime: now, Message: "Kubelet stopped posting node status."}},
			why:        "is not Ready: Kubelet stopped posting node status.",
		},
	} {
		t.Run(sentence, func(t *testing.T) {
			ready, why := nodeReady(&corev1.Node{Status: corev1.NodeStatus{Conditions: test.conditions}}, now.Add(300*time.Millisecond))
			if ready != test.ready || why != test.why {
				t.Errorf("ready %v, why %q", ready, why)
			}
		})
	}
}

func TestStreamsData(t *testing.T) {
	content, err := streamsData([]osimage.Stream{{Name: "debian-12", Image: "r/os@sha256:1", ExtensionsImage: "r/ext@sha256:2"}})
	if err != nil {
		t.Fatal(err)
	}
	var got map[string]map[string]string
	if err := yaml.Unmarshal(content, &got); err != nil {
		t.Fatal(err)
	}
	want := map[string]map[string]string{"debian-12": {"osImage": "r/os@sha256:1", "osExtensionsImage": "r/ext@sha256:2"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
