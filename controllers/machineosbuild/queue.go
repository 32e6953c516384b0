package machineosbuild

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"

	keys "github.com/imagemode/imagemode/api/machineconfiguration"
)

// queue lets a number of builds run at a time. It is kept in memory: there is
// one leader, and which Jobs run it can see. After a restart the order of those
// that wait is made anew.
type queue struct {
	limit int
	// wake starts a reconcile of builds that wait; nil: they are polled.
	wake func(builds ...string)

	mutex sync.Mutex
	// granted may start, though their Jobs may not be in the cache yet.
	granted map[string]bool
	waiting map[string]ticket
}

// ticket is one build's place.
type ticket struct {
	name string
	// isAsked is true when a user asked for the build, by an edit of the
	// MachineOSConfig or by a rebuild: it goes before those that a new base image
	// or rendered config causes.
	isAsked bool
	since   time.Time
}

// turn is the answer to a build that asks whether it may start.
type turn struct {
	granted bool
	limit   int
}

func newQueue(limit int) *queue {
	return &queue{limit: limit, granted: map[string]bool{}, waiting: map[string]ticket{}}
}

// ask takes a place for a build, and grants it when it is among the first of
// those that wait and there is room beside those that run.
func (q *queue) ask(build *mcfgv1.MachineOSBuild, running []string) turn {
	q.mutex.Lock()
	defer q.mutex.Unlock()
	q.waiting[build.Name] = ticket{name: build.Name, isAsked: isAskedFor(build), since: build.CreationTimestamp.Time}
	for _, name := range running {
		delete(q.waiting, name)
		q.granted[name] = true
	}
	if q.granted[build.Name] || slices.Contains(q.next(), build.Name) {
		q.granted[build.Name] = true
		delete(q.waiting, build.Name)
	}
	return turn{granted: q.granted[build.Name], limit: q.limit}
}

// isGranted reports whether a build may run.
func (q *queue) isGranted(build string) bool {
	q.mutex.Lock()
	defer q.mutex.Unlock()
	return q.granted[build]
}

// next are the builds that may start now.
func (q *queue) next() []string {
	tickets := slices.SortedFunc(maps.Values(q.waiting), func(a, b ticket) int {
		if a.isAsked != b.isAsked {
			return map[bool]int{true: -1, false: 1}[a.isAsked]
		}
		return cmp.Or(a.since.Compare(b.since), strings.Compare(a.name, b.name))
	})
	var names []string
	for _, ticket := range tickets[:min(len(tickets), max(0, q.limit-len(q.granted)))] {
		names = append(names, ticket.name)
	}
	return names
}

// leave gives up the place of a build that has ended, or is gone.
func (q *queue) leave(build string) {
	q.mutex.Lock()
	left := q.granted[build]
	delete(q.granted, build)
	delete(q.waiting, build)
	next := q.next()
	q.mutex.Unlock()
	if left && q.wake != nil && len(next) > 0 {
		q.wake(next...)
	}
}

// isAskedFor reports whether a user's own act is behind a build.
func isAskedFor(build *mcfgv1.MachineOSBuild) bool {
	var why []change
	if err := json.Unmarshal([]byte(build.Annotations[keys.AnnotationBuildReason]), &why); err != nil {
		return false
	}
	return slices.ContainsFunc(why, func(c change) bool { return !slices.Contains(automaticInputs, c.Input) })
}
