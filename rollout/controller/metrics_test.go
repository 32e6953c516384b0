package controller

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/imagemode/imagemode/api/v1alpha1"
)

// metricsOf are the lines of a metric about a rollout, without the metric's name.
func metricsOf(t *testing.T, name, rollout string) map[string]float64 {
	t.Helper()
	families, err := metrics.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]float64{}
	for _, family := range families {
		if family.GetName() != name {
			continue
		}
		for _, metric := range family.GetMetric() {
			key, isIts := "", false
			for _, label := range metric.GetLabel() {
				if label.GetName() == "rollout" {
					isIts = label.GetValue() == rollout
				} else {
					key = label.GetValue()
				}
			}
			if isIts {
				found[key] = metric.GetGauge().GetValue() + float64(metric.GetHistogram().GetSampleCount())
			}
		}
	}
	return found
}

func TestMetricsOfARollout(t *testing.T) {
	const name = "of-metrics"
	back := func(n *Node) {
		n.Image.Status.FailedImages = []v1alpha1.Attempt{{Image: imageB, Class: v1alpha1.FailureRolledBack, Permanent: true}}
	}
	nodes := []Node{newNode(1, updated), newNode(2, back), newNode(3), newNode(4, notStaged), newNode(5, notReady), newNode(6, notStaged, neverReported), newNode(7)}
	scope := newScope(nodes, allowing("3"), holding(7, v1alpha1.SlotDraining), func(s *Scope) {
		s.Rollout.Name, s.Now = name, start.Add(2*time.Minute)
		for i := range s.Nodes {
			s.Nodes[i].Image.Spec.Rollout = name
		}
		s.Rollout.Status.Slots[0].Message = "waits for default/web"
	})
	observe(scope, statusOf(scope, scope.Rollout.Status.Slots, schedule(scope).Held))
	observePhases(name, scope.Rollout.Status.Slots, nil, scope.Now)
	wanted := map[string]map[string]float64{
		"imagemode_rollout_nodes": {
			"Updated": 1, "Failed": 1, "Staged": 1, "Staging": 2, "NotReady": 1, "Draining": 1, "Idle": 0, "Booting": 0, "RollingBack": 0, "Soaking": 0,
		},
		"imagemode_rollout_slots":                  {"used": 1, "allowed": 3},
		"imagemode_rollout_failure_budget_left":    {"": 1},
		"imagemode_rollout_failed_nodes":           {"RolledBack": 1},
		"imagemode_rollout_blocked_drains":         {"": 1},
		"imagemode_rollout_silent_agents":          {"": 1},
		"imagemode_rollout_progress_since_seconds": {"Updating": float64(scope.Now.Unix())},
		"imagemode_rollout_phase_seconds":          {"Draining": 1},
	}
	for metric, want := range wanted {
		got := metricsOf(t, metric, name)
		for key, value := range want {
			if got[key] != value {
				t.Errorf("%s %s is %v, want %v: %v", metric, key, got[key], value, got)
			}
		}
		if len(got) != len(want) {
			t.Errorf("%s is %v, want %v", metric, got, want)
		}
	}
	forget(name)
	for metric := range wanted {
		if left := metricsOf(t, metric, name); len(left) > 0 {
			t.Errorf("of a rollout that is gone there is left %s %v", metric, left)
		}
	}
}

// TestEveryTransitionIsAnEventOfTheNode, in order, with those of the rollout.
func TestEveryTransitionIsAnEventOfTheNode(t *testing.T) {
	c := newCluster(t, 2)
	recorder := events.NewFakeRecorder(1000)
	c.controller.Recorder = recorder
	c.changeRollout(func(s *v1alpha1.ImageRolloutSpec) {
		one := int32(1)
		s.Image, s.Canary = imageB, &v1alpha1.CanarySpec{Nodes: &one}
		s.Soak = &metav1.Duration{Duration: time.Minute}
	})
	c.settle()
	var got []string
	for len(recorder.Events) > 0 {
		fields := strings.Fields(<-recorder.Events)
		got = append(got, fields[1])
	}
	node := "SlotGranted SlotGranted Drained Booted Updated"
	if want := node + " CanaryDone " + node; strings.Join(got, " ") != want {
		t.Errorf("events %v, want %s", got, want)
	}
}
