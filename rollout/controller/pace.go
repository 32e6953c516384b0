package controller

import (
	"context"
	"maps"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// maxRest is how long a rollout is left alone after a pass, at most.
const maxRest = 50 * time.Millisecond

// paced rests after a pass for a part of the time that it took: each of thousands of
// nodes that change would bring about a pass, and hundreds of slots be written for it;
// so those that change in the meantime share one.
type paced struct {
	reconcile.Reconciler
	// due is when the next pass over a rollout may begin, by name.
	due map[string]time.Time
}

func newPaced(inner reconcile.Reconciler) *paced {
	return &paced{Reconciler: inner, due: map[string]time.Time{}}
}

// Reconcile makes a pass, or says when it may begin. It takes the time by the machine's
// own clock, which nobody sets back.
func (p *paced) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	begun := time.Now()
	maps.DeleteFunc(p.due, func(_ string, at time.Time) bool { return !begun.Before(at) })
	if at, isResting := p.due[request.Name]; isResting {
		return ctrl.Result{RequeueAfter: at.Sub(begun)}, nil
	}
	result, err := p.Reconciler.Reconcile(ctx, request)
	if err == nil { // a pass that failed is tried again ever later, and rest would count as success
		ended := time.Now()
		p.due[request.Name] = ended.Add(min(ended.Sub(begun)/2, maxRest))
	}
	return result, err
}
