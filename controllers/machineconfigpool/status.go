package machineconfigpool

import (
	"errors"
	"slices"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/imagemode/imagemode/api/v1alpha1"
	"github.com/imagemode/imagemode/controllers/osimagestream/streams"
)

// observation is everything that a pool's status is made of.
type observation struct {
	// pool after this reconcile's writes to its spec.
	pool *mcfgv1.MachineConfigPool
	// rendered is the pool's wanted config; nil when renderErr says why there is none.
	rendered  *rendered
	renderErr error
	// isRenderedElsewhere: something else renders, and says how that went.
	isRenderedElsewhere bool
	// isUnsettled: the pool's config has changed, and is taken when no more changes
	// come, or when what it awaits is there.
	isUnsettled bool
	// awaits is what the next config waits for; empty: for more changes, if at all.
	awaits string
	// streams is OSImageStream cluster; nil: it does not exist.
	streams *mcfgv1.OSImageStream
	// stream is the name of the pool's resolved stream; empty: none.
	stream   string
	target   target
	nodes    []nodeState
	contests []contest
	rollout  *v1alpha1.ImageRollout
	// isForgotten: the rollout is gone, and nothing tells which image it had.
	isForgotten bool
	now         metav1.Time
}

// computeStatus returns the pool's whole status. It keeps of the previous one
// what no input can restore: the times of transitions, the last configuration
// that all nodes ran, and the fields that are not this controller's matter.
func computeStatus(o observation) mcfgv1.MachineConfigPoolStatus {
	status := *o.pool.Status.DeepCopy()
	count := countNodes(o.nodes)
	status.ObservedGeneration = o.pool.Generation
	status.MachineCount = count.total
	status.UpdatedMachineCount = count.updated
	status.ReadyMachineCount = count.ready
	status.UnavailableMachineCount = count.unavailable
	status.DegradedMachineCount = count.degraded

	conditions := o.conditions(count)
	status.Conditions = mergeConditions(status.Conditions, conditions, o.now)
	status.OSImageStream = mcfgv1.OSImageStreamReference{}
	if o.isUpdated(count) {
		status.Configuration = *o.pool.Spec.Configuration.DeepCopy()
		if !isConditionTrue(conditions, mcfgv1.MachineConfigPoolDegraded) {
			status.OSImageStream.Name = o.runningStream()
		}
	}
	return status
}

// isUpdated reports whether the pool is where it should be: its wanted config
// could be rendered, an image of it is finished, and every node runs that
// image. It is never true for a config that no image carries.
func (o observation) isUpdated(count counts) bool {
	return o.isRendered() && !o.isUnsettled && o.target.phase == ready && count.isDone()
}

// isRendered reports whether the pool's spec.configuration is what it wants.
func (o observation) isRendered() bool {
	return o.renderErr == nil && o.renderDegraded().status != corev1.ConditionTrue
}

// runningStream returns the stream whose OS image the pool's config is built
// on; empty where a MachineConfig names the image. The pool's own stream comes
// first where several have the same image.
func (o observation) runningStream() string {
	if o.rendered == nil || o.streams == nil || slices.ContainsFunc(o.rendered.sources, streams.NamesImage) {
		return ""
	}
	name := ""
	for _, stream := range o.streams.Status.AvailableStreams {
		if string(stream.OSImage) == o.rendered.spec.OSImageURL && (name == "" || stream.Name == o.stream) {
			name = stream.Name
		}
	}
	return name
}

// renderReason returns reason and message of RenderDegraded.
func renderReason(err error) (reason, message string) {
	var problem *renderError
	if errors.As(err, &problem) {
		return problem.reason, problem.message
	}
	return reasonRenderFailed, err.Error()
}

// mergeConditions lays current over the previous list: a condition whose
// status stays keeps its time of transition, and conditions of types that are
// not in current stay as they are. The list is sorted by the order of current,
// then as before, so that the same facts give the same list.
func mergeConditions(previous, current []mcfgv1.MachineConfigPoolCondition, now metav1.Time) []mcfgv1.MachineConfigPoolCondition {
	merged := make([]mcfgv1.MachineConfigPoolCondition, 0, len(current))
	for _, condition := range current {
		condition.LastTransitionTime = now
		if old := findCondition(previous, condition.Type); old != nil && old.Status == condition.Status {
			condition.LastTransitionTime = old.LastTransitionTime
		}
		merged = append(merged, condition)
	}
	for _, condition := range previous {
		if findCondition(current, condition.Type) == nil {
			merged = append(merged, condition)
		}
	}
	return merged
}

func findCondition(conditions []mcfgv1.MachineConfigPoolCondition, kind mcfgv1.MachineConfigPoolConditionType) *mcfgv1.MachineConfigPoolCondition {
	i := slices.IndexFunc(conditions, func(condition mcfgv1.MachineConfigPoolCondition) bool { return condition.Type == kind })
	if i < 0 {
		return nil
	}
	return &conditions[i]
}

func isConditionTrue(conditions []mcfgv1.MachineConfigPoolCondition, kind mcfgv1.MachineConfigPoolConditionType) bool {
	condition := findCondition(conditions, kind)
	return condition != nil && condition.Status == corev1.ConditionTrue
}
