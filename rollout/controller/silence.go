package controller

import (
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/imagemode/imagemode/api/v1alpha1"
)

const (
	// silentAfter is how long an agent may take for its first report.
	silentAfter = time.Minute
	// answerAfter is how long one may take to say what it does about a new order: it
	// does not tell of steps that last no more than a minute.
	answerAfter = 2 * time.Minute
	// bootedAfter is how long one may take from the order to boot until the node goes
	// down, as it does not tell of an unlock that takes no longer than bootc may.
	bootedAfter = 5 * time.Minute
	// heardFor is for how long a report shows that the agent is there.
	heardFor = 10 * time.Minute
	// downloadedAfter is how long one may be silent while it downloads: it ends a
	// download that lasts 30 minutes.
	downloadedAfter = 35 * time.Minute
)

// agentManager is the field manager of the agents.
const agentManager = "imagemode-agent"

// reasonStaging is the agent's word for a download that runs.
const reasonStaging = "Staging"

const missedReport = "its agent has not reported from the present boot"

// silence is what is missed of an agent.
type silence struct {
	since, due time.Time
	what       string
}

// silenceOf is which report of the node's agent is still to come, and when it is
// overdue; zero: none. Of a node that is down, others tell. The times are those that
// the API server keeps of who wrote, so that a controller that has just started has
// them, too.
func silenceOf(scope *Scope, node *Node) silence {
	if scope.isIndexed && node.isKnown() {
		return node.known.silence
	}
	if node.Image == nil || !node.isReady() {
		return silence{}
	}
	if slot := scope.slot(node.Node); slot != nil {
		return silenceInSlot(scope, *slot, node)
	}
	status, spec := node.Image.Status, node.Image.Spec
	switch {
	case status.ObservedGeneration == 0:
		return missed(node.Image.CreationTimestamp.Time, silentAfter, "no agent has reported on it")
	case !isOwed(node):
		return silence{}
	case !node.isCurrent():
		return missed(node.readyCondition().LastTransitionTime.Time, answerAfter, missedReport)
	case status.ObservedGeneration != node.Image.Generation:
		return missed(writtenBy(node.Image, string(fieldOwner)), answerAfter, "its agent does not answer to what it was told then")
	case spec.Phase == v1alpha1.PhaseStaged && node.reason(v1alpha1.ConditionStaged) == reasonStaging:
		return missed(writtenBy(node.Image, agentManager), downloadedAfter, "its agent downloads the image and has not reported")
	}
	return silence{}
}

// silenceInSlot is that of an agent that was told to boot: it answers with the reboot, and
// reports from the next boot, at the latest when its node is in its soak.
// What is missed when an order is taken back, see isUnconfirmed.
func silenceInSlot(scope *Scope, slot v1alpha1.Slot, node *Node) silence {
	if slot.Phase == v1alpha1.SlotSoaking && !isWithdrawn(scope, slot) && !node.isCurrent() {
		return missed(node.readyCondition().LastTransitionTime.Time, answerAfter, missedReport)
	}
	isTold := slot.Phase == v1alpha1.SlotBooting || slot.Phase == v1alpha1.SlotRollingBack
	if !isTold || isWithdrawn(scope, slot) || hasRebooted(slot, node) || node.Image.Status.ObservedGeneration == node.Image.Generation {
		return silence{}
	}
	return missed(writtenBy(node.Image, string(fieldOwner)), min(bootedAfter, rebootTimeout(scope)), "its agent does not answer to the order to boot")
}

// isHeardOf says whether the agent has reported a short while ago: one that is gone would
// leave the node drained. Where the API server keeps no times it counts as heard of.
func (s *Scope) isHeardOf(node *Node) bool {
	last := writtenBy(node.Image, agentManager)
	return last.IsZero() || s.Now.Sub(last) < heardFor
}

// isOwed says whether the agent has something to do: with nothing left it does not
// report that it has seen a newer spec, nor with live content that it has failed with.
func isOwed(node *Node) bool {
	spec := node.Image.Spec
	isLive := spec.LiveHash != node.Image.Status.LiveHash && !meta.IsStatusConditionTrue(node.Image.Status.Conditions, v1alpha1.ConditionLiveFailed)
	return isLive || (spec.Phase != v1alpha1.PhaseIdle && !node.runs(spec.DesiredImage))
}

func missed(since time.Time, after time.Duration, what string) silence {
	if since.IsZero() {
		return silence{}
	}
	return silence{since, since.Add(after), what}
}

// isSilent says whether nothing is to be expected of the node's agent for now.
func (s *Scope) isSilent(node *Node) bool { return silenceOf(s, node).isOverdue(s.Now) }

func (s silence) isOverdue(now time.Time) bool { return !s.due.IsZero() && !now.Before(s.due) }

func silentAgents(scope *Scope, _ []v1alpha1.Slot) string {
	var names []string
	for i := range scope.Nodes {
		node := &scope.Nodes[i]
		isOurs := node.counts() || scope.slot(node.Node) != nil
		if missing := silenceOf(scope, node); isOurs && missing.isOverdue(scope.Now) {
			names = append(names, aboutNode(node.Name, missing.since, missing.what))
		}
	}
	return list(names)
}

// writtenBy is when the manager changed the object last, as the API server notes it;
// zero: never.
func writtenBy(object metav1.Object, manager string) time.Time {
	var last time.Time
	for _, entry := range object.GetManagedFields() {
		if entry.Manager == manager && entry.Time != nil && entry.Time.After(last) {
			last = entry.Time.Time
		}
	}
	return last
}

// KeepWriteTimes is for a cache of NodeImages: of who wrote an object it keeps the
// times, as silence is told by them, and drops the fields, which are a good part of
// the object.
func KeepWriteTimes(object any) (any, error) {
	accessor, err := meta.Accessor(object)
	if err != nil {
		return object, nil //nolint:nilerr // a tombstone: there is nothing to drop
	}
	var kept []metav1.ManagedFieldsEntry
	for _, entry := range accessor.GetManagedFields() {
		kept = append(kept, metav1.ManagedFieldsEntry{Manager: entry.Manager, Time: entry.Time})
	}
	accessor.SetManagedFields(kept)
	return object, nil
}
