package agent

import (
	"context"
	"errors"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/imagemode/imagemode/api/v1alpha1"
)

// tryRefused makes a pass that the host does not let succeed, and goes on in time as
// far as a controller would wait.
func (b *bench) tryRefused() {
	b.t.Helper()
	if _, err := b.agent.Reconcile(context.Background(), ctrl.Request{NamespacedName: client.ObjectKey{Name: "worker-1"}}); err == nil {
		b.t.Error("the pass succeeded")
	}
	b.pause(rebootPatience)
}

// TestWhatTheHostRefusesIsSaid: by an event at each try, and by the condition that
// says what the node is about.
func TestWhatTheHostRefusesIsSaid(t *testing.T) {
	tests := map[string]struct {
		until        func(*bench)
		order        v1alpha1.NodeImagePhase
		kind, reason string
	}{
		"a download": {func(*bench) {}, v1alpha1.PhaseStaged, v1alpha1.ConditionStaged, ReasonStaging},
		"a reboot":   {func(b *bench) { b.machine.staged = imageB }, v1alpha1.PhaseBooted, v1alpha1.ConditionBooted, ReasonRebooting},
		"the way back": {func(b *bench) {
			b.orderSpec(func(s *v1alpha1.NodeImageSpec) { s.DesiredImage, s.Phase = imageB.String(), v1alpha1.PhaseBooted })
			b.settleDown()
		}, v1alpha1.PhaseRolledBack, v1alpha1.ConditionRollbackReady, "GoingBackFails"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			test.until(b)
			recorder := events.NewFakeRecorder(1000)
			b.agent.recorder = recorder
			b.machine.refuses = errors.New("the unit could not be started")
			b.order(imageB, test.order)
			for range 3 {
				b.tryRefused()
			}
			got := meta.FindStatusCondition(b.object().Status.Conditions, test.kind)
			if got == nil || got.Status != metav1.ConditionFalse || got.Reason != test.reason || !strings.Contains(got.Message, "could not be started") {
				t.Errorf("condition %s is %+v", test.kind, got)
			}
			said := 0
			for len(recorder.Events) > 0 {
				if event := <-recorder.Events; strings.HasPrefix(event, "Warning "+ReasonHostRefuses+" ") && strings.Contains(event, "could not be started") {
					said++
				}
			}
			if said != 3 {
				t.Errorf("%d events, want one for each try", said)
			}
		})
	}
}

// TestABootcThatFailsIsNotManageable: it has answered, so that waiting does not help.
func TestABootcThatFailsIsNotManageable(t *testing.T) {
	b := newBench(t)
	b.order(imageB, v1alpha1.PhaseStaged)
	b.settleDown()
	b.machine.fails["status"] = []string{"Reading deployment metadata"}
	calls := len(b.machine.calls)
	b.pass()
	b.expectCondition(v1alpha1.ConditionManageable, metav1.ConditionFalse, "BootcFails")
	b.expectCondition(v1alpha1.ConditionBooted, metav1.ConditionFalse, ReasonNotManageable)
	if got := b.object().Status; got.Staged == nil || len(b.machine.calls) != calls {
		t.Errorf("the last known status is %+v; then %v", got, b.machine.calls[calls:])
	}
	b.settleDown()
	b.expectCondition(v1alpha1.ConditionManageable, metav1.ConditionTrue, "BootcHost")
}
