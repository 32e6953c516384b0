package controller

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/imagemode/imagemode/api/v1alpha1"
)

// Metrics of rollouts, by the name of the ImageRollout.
var (
	nodesGauge = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "imagemode_rollout_nodes",
		Help: "Nodes of an ImageRollout by state: each node counts in one.",
	}, []string{"rollout", "state"})
	slotsGauge = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "imagemode_rollout_slots",
		Help: "Nodes that are allowed to be out of service now, and how many may be (kind used, allowed).",
	}, []string{"rollout", "kind"})
	budgetGauge = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "imagemode_rollout_failure_budget_left",
		Help: "On how many more nodes the image may fail before it is rejected; 0: it is rejected.",
	}, []string{"rollout"})
	failuresGauge = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "imagemode_rollout_failed_nodes",
		Help: "Nodes on which the image of an ImageRollout fails now, by failure class.",
	}, []string{"rollout", "class"})
	progressSince = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "imagemode_rollout_progress_since_seconds",
		Help: "Since when, in seconds since 1970, the condition Progressing of an ImageRollout is what it is, by its reason.",
	}, []string{"rollout", "reason"})
	blockedGauge = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "imagemode_rollout_blocked_drains",
		Help: "Nodes that are being drained and wait for pods that something keeps.",
	}, []string{"rollout"})
	silentGauge = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "imagemode_rollout_silent_agents",
		Help: "Nodes whose agent owes a report for longer than it may take.",
	}, []string{"rollout"})
	phaseSeconds = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "imagemode_rollout_phase_seconds",
		Help:    "How long a node was in a phase of its slot: Draining, Booting, RollingBack, Soaking.",
		Buckets: []float64{1, 5, 15, 30, 60, 120, 300, 600, 1200, 3600, 7200},
	}, []string{"rollout", "phase"})
)

func init() {
	metrics.Registry.MustRegister(nodesGauge, slotsGauge, budgetGauge, failuresGauge, progressSince, blockedGauge, silentGauge, phaseSeconds)
}

// nodeStates are all states of a node, so that one without nodes shows 0.
var nodeStates = []string{"Idle", "Staging", "Staged", "Updated", "Failed", "NotReady", "Draining", "Booting", "RollingBack", "Soaking"}

// observe brings the gauges of a rollout in line with its status.
func observe(scope *Scope, status v1alpha1.ImageRolloutStatus) {
	name := scope.Rollout.Name
	counts := map[string]int{}
	failuresGauge.DeletePartialMatch(prometheus.Labels{"rollout": name})
	silent := 0
	for _, node := range scope.selected() {
		counts[stateOf(scope, node)]++
		if scope.isSilent(node) {
			silent++
		}
		if class := failureClass(scope, node); class != "" {
			failuresGauge.WithLabelValues(name, class).Inc()
		}
	}
	for _, state := range nodeStates {
		nodesGauge.WithLabelValues(name, state).Set(float64(counts[state]))
	}
	slotsGauge.WithLabelValues(name, "used").Set(float64(len(status.Slots)))
	slotsGauge.WithLabelValues(name, "allowed").Set(float64(maxUnavailable(scope)))
	left := max(failureBudget(scope)-len(failedNodes(scope)), 0)
	if rejection(scope) != nil {
		left = 0
	}
	budgetGauge.WithLabelValues(name).Set(float64(left))
	silentGauge.WithLabelValues(name).Set(float64(silent))
	blockedGauge.WithLabelValues(name).Set(float64(blockedDrains(status.Slots)))
	progressSince.DeletePartialMatch(prometheus.Labels{"rollout": name})
	if progress := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionProgressing); progress != nil {
		progressSince.WithLabelValues(name, progress.Reason).Set(float64(progress.LastTransitionTime.Unix()))
	}
}

// blockedDrains counts those that say what they wait for: pods on their way are no news.
func blockedDrains(slots []v1alpha1.Slot) int {
	blocked := 0
	for _, slot := range slots {
		if slot.Phase == v1alpha1.SlotDraining && slot.Message != "" {
			blocked++
		}
	}
	return blocked
}

// stateOf is the one word for where a node is.
func stateOf(scope *Scope, node *Node) string {
	target := scope.target()
	switch slot := scope.slot(node.Node); {
	case slot != nil:
		return string(slot.Phase)
	case !node.isReady():
		return "NotReady"
	case target == "":
		return "Idle"
	case node.runs(target):
		return "Updated"
	case node.failure(target, scope.Rollout.Spec.RetryToken) != nil:
		return "Failed"
	case node.hasStaged(target):
		return "Staged"
	case node.Image != nil && node.Image.Spec.DesiredImage == target && node.Image.Spec.Phase != v1alpha1.PhaseIdle:
		return "Staging"
	}
	return "Idle"
}

// failureClass is what goes wrong on a node now, also when it is tried again.
func failureClass(scope *Scope, node *Node) string {
	if failure := node.failure(scope.target(), scope.Rollout.Spec.RetryToken); failure != nil {
		return string(failure.Class)
	}
	if node.isStuckStaging(scope.target()) {
		return string(node.Image.Status.LastAttempt.Class)
	}
	return slotFailure(scope, node)
}

// observePhases measures the phases that have ended.
func observePhases(rollout string, before, after []v1alpha1.Slot, at time.Time) {
	now := phasesOf(after)
	for _, slot := range before {
		if now[slot.NodeUID] != slot.Phase {
			phaseSeconds.WithLabelValues(rollout, string(slot.Phase)).Observe(at.Sub(slot.Since.Time).Seconds())
		}
	}
}

// forget drops the metrics of a rollout that is gone.
func forget(rollout string) {
	for _, vector := range []interface {
		DeletePartialMatch(prometheus.Labels) int
	}{nodesGauge, slotsGauge, budgetGauge, failuresGauge, progressSince, blockedGauge, silentGauge, phaseSeconds} {
		vector.DeletePartialMatch(prometheus.Labels{"rollout": rollout})
	}
}
