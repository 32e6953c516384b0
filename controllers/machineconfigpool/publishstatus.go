package machineconfigpool

import (
	"context"
	"fmt"
	"sync"
	"time"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// statusInterval is how often at most the status of a pool is written: while its
// nodes move, something changes several times a second.
const statusInterval = time.Second

// pacer remembers when something was written last.
type pacer struct {
	clock clock.PassiveClock
	mutex sync.Mutex
	last  map[string]time.Time
}

// untilDue is how long what was written just now has to wait; 0: not at all.
func (p *pacer) untilDue(name string, interval time.Duration) time.Duration {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	last, isKnown := p.last[name]
	if !isKnown {
		return 0
	}
	return max(0, interval-p.clock.Since(last))
}

func (p *pacer) note(name string) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	if p.last == nil {
		p.last = map[string]time.Time{}
	}
	p.last[name] = p.clock.Now()
}

func (p *pacer) forget(name string) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	delete(p.last, name)
}

// publishStatus writes the pool's status, or what of it is this controller's,
// where it differs. The answer is how long it has to wait before it may be
// written again.
func (r *poolReconciler) publishStatus(ctx context.Context, scope *scope, observed observation) (time.Duration, error) {
	status := computeStatus(observed)
	if r.options.Off.Status {
		status = withBuildDegraded(observed)
	}
	if equality.Semantic.DeepEqual(scope.pool.Status, status) {
		return 0, nil
	}
	if wait := r.writes.untilDue(scope.pool.Name, statusInterval); wait > 0 {
		return wait, nil
	}
	before := scope.pool.DeepCopy()
	scope.pool.Status = status
	// The conditions are one list to the API: a patch replaces all of it, so it
	// must be made from the latest.
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	// A pool that is gone by now needs no status.
	if err := r.client.Status().Patch(ctx, scope.pool, patch); client.IgnoreNotFound(err) != nil {
		return 0, fmt.Errorf("write status of MachineConfigPool %s: %w", scope.pool.Name, err)
	}
	r.writes.note(scope.pool.Name)
	if !r.options.Off.Status {
		r.announce(before, &mcfgv1.MachineConfigPool{ObjectMeta: before.ObjectMeta, Status: status})
	}
	return 0, nil
}

// withBuildDegraded is the status that somebody else writes, with the one
// condition that only builds made here know about. That nothing is wrong is left
// to that writer to say in its own words: two would take turns for ever.
func withBuildDegraded(o observation) mcfgv1.MachineConfigPoolStatus {
	status := *o.pool.Status.DeepCopy()
	before := findCondition(status.Conditions, mcfgv1.MachineConfigPoolImageBuildDegraded)
	condition := o.imageBuildDegraded().condition(mcfgv1.MachineConfigPoolImageBuildDegraded)
	condition.LastTransitionTime = o.now
	wasDegraded := before != nil && before.Status == corev1.ConditionTrue
	switch {
	case condition.Status != corev1.ConditionTrue && !wasDegraded:
	case before == nil:
		status.Conditions = append(status.Conditions, condition)
	default:
		if before.Status == condition.Status {
			condition.LastTransitionTime = before.LastTransitionTime
		}
		*before = condition
	}
	return status
}
