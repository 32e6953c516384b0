package agent

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/imagemode/imagemode/api/v1alpha1"
)

func TestAPodStandsBackForTheServiceOfTheHost(t *testing.T) {
	b := newBench(t)
	b.wrap = func(a *Agent) { a.options.StandsBackFor = "imagemode-agent.service" }
	b.startAgent(b.agent.options.PullSecretDir)
	b.machine.active = map[string]bool{"imagemode-agent.service": true}
	b.order(imageB, v1alpha1.PhaseStaged)
	b.settleDown()
	if len(b.machine.calls) > 0 || b.writes > 0 {
		t.Errorf("beside the service it did %v, and wrote %d times", b.machine.calls, b.writes)
	}
	// The next image has no service any more.
	b.machine.active = nil
	b.settleDown()
	if !b.machine.locked || b.machine.staged != imageB {
		t.Errorf("without the service it did %v", b.machine.calls)
	}
}

// setNode is what the kubelet reports of the machine.
func (b *bench) setNode(bootID string, ready corev1.ConditionStatus) {
	b.t.Helper()
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "worker-1"},
		Status: corev1.NodeStatus{
			NodeInfo:   corev1.NodeSystemInfo{BootID: bootID},
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready, Message: "said by the kubelet"}},
		},
	}
	_ = b.client.Delete(b.t.Context(), node.DeepCopy()) // it may not be there yet
	if err := b.client.Create(b.t.Context(), node); err != nil {
		b.t.Fatal(err)
	}
}

// TestAServiceDoesNotVouchForTheKubelet: it reaches the API server without one, so
// that the node would stay on an image whose kubelet does not work.
func TestAServiceDoesNotVouchForTheKubelet(t *testing.T) {
	for name, test := range map[string]struct {
		bootID string
		ready  corev1.ConditionStatus
		want   string
	}{
		"a kubelet that has not come up": {"boot-1", corev1.ConditionTrue, ""},
		"a kubelet that is not well":     {"boot-2", corev1.ConditionFalse, ""},
		"a kubelet that is well":         {"boot-2", corev1.ConditionTrue, "the agent is well"},
	} {
		t.Run(name, func(t *testing.T) {
			b := bootInto(t)
			b.wrap = func(a *Agent) { a.options.ActsAsNode = true }
			b.startAgent(b.agent.options.PullSecretDir)
			b.setNode(test.bootID, test.ready)
			for b.machine.up < time.Minute {
				b.pass()
			}
			if why := b.deadman(); why != test.want {
				t.Errorf("the dead-man says %q, want %q", why, test.want)
			}
		})
	}
}
