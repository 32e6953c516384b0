package machineconfigpool

import (
	"fmt"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// poolFields are those of an ImageRollout's spec that follow its pool, userFields
// all others.
var (
	poolFields = []string{"image", "nodeSelector", "paused", "maxUnavailable", "pullSecretRef", "live"}
	userFields = []string{
		"mode", "maxConcurrentStaging", "topologyKey", "canary", "soak", "failureBudget", "drain", "reboot", "rollback",
		"drift", "windows", "gates", "retryToken",
	}
)

// rolloutBook remembers which rollout each pool had last, by its UID, to tell one
// that somebody deleted from one that the cache does not show yet.
type rolloutBook struct {
	mutex sync.Mutex
	// last is empty for a pool that is about to get its first.
	last map[string]types.UID
}

// expect notes what is there before a hand-off. Without a rollout and without a
// record of an earlier hand-off, it is the first.
func (b *rolloutBook) expect(scope *scope) {
	switch {
	case scope.rollout != nil:
		b.note(scope.pool.Name, scope.rollout.UID)
	case recordOf(scope.pool, scope.osConfig) == nil:
		b.note(scope.pool.Name, "")
	}
}

// isAnew notes the rollout that a hand-off gave, and reports whether it takes the
// place of one that is gone. Of a pool that is not known here, its record says
// that there was one.
func (b *rolloutBook) isAnew(pool string, made types.UID) bool {
	b.mutex.Lock()
	before, isKnown := b.last[pool]
	b.mutex.Unlock()
	b.note(pool, made)
	return !isKnown || (before != "" && before != made)
}

func (b *rolloutBook) note(pool string, uid types.UID) {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	if b.last == nil {
		b.last = map[string]types.UID{}
	}
	b.last[pool] = uid
}

func (b *rolloutBook) forget(pool string) {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	delete(b.last, pool)
}

// announceAnew says that what users had set in a rollout went with it: nothing
// else keeps it.
func (r *poolReconciler) announceAnew(scope *scope) {
	r.events.Eventf(scope.pool, nil, corev1.EventTypeWarning, "RolloutMadeAnew", "HandOff", "%s", shortened(fmt.Sprintf(
		"ImageRollout %s was deleted and is made anew. Only what follows MachineConfigPool %s is as before (%s). "+
			"All other settings have their defaults again (%s): which of them were set is not known, and those that were have to be set again",
		scope.pool.Name, scope.pool.Name, strings.Join(poolFields, ", "), strings.Join(userFields, ", "))))
}
