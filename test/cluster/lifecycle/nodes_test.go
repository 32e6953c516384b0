package lifecycle

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/imagemode/imagemode/test/cluster/osimage"
)

func TestNodeReady(t *testing.T) {
	for sentence, test := range map[string]struct {
		conditions []corev1.NodeCondition
		ready      bool
		why        string
	}{
		"a node that has just registered": {why: "has no Ready condition"},
		"a Ready node": {
			conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
			ready:      true,
		},
		"a node whose network is missing": {
			conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionFalse, Message: "cni plugin not initialized"}},
			why:        "is not Ready: cni plugin not initialized",
		},
		"a node whose kubelet has gone": {
			conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionUnknown, Message: "Kubelet stopped posting node status."}},
			why:        "is not Ready: Kubelet stopped posting node status.",
		},
	} {
		t.Run(sentence, func(t *testing.T) {
			ready, why := nodeReady(&corev1.Node{Status: corev1.NodeStatus{Conditions: test.conditions}})
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
