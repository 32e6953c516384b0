package controller

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/imagemode/imagemode/api/v1alpha1"
)

// canaries are the nodes that take the image before all others; none without
// spec.canary. Nodes are in order of age, so that the first ones stay the same
// when nodes are added.
func canaries(s *Scope) ([]*Node, error) {
	canary := s.Rollout.Spec.Canary
	if canary == nil {
		return nil, nil
	}
	selected := s.selected()
	if canary.Nodes != nil {
		return selected[:min(int(*canary.Nodes), len(selected))], nil
	}
	selector, err := metav1.LabelSelectorAsSelector(canary.NodeSelector)
	if err != nil {
		return nil, fmt.Errorf("spec.canary.nodeSelector: %w", err)
	}
	var first []*Node
	for _, node := range selected {
		if selector.Matches(labels.Set(node.Labels)) {
			first = append(first, node)
		}
	}
	return first, nil
}

// canaryStatus is status.canary: set once all canary nodes have the image
// behind them. What happens to those nodes later does not undo it.
func canaryStatus(s *Scope) *v1alpha1.CanaryStatus {
	if before := s.Rollout.Status.Canary; before != nil && before.Image == s.target() && s.Rollout.Spec.Canary != nil {
		return before
	}
	first, err := canaries(s)
	if err != nil || len(first) == 0 || s.target() == "" || len(waitingCanaries(s, first)) > 0 {
		return nil
	}
	return &v1alpha1.CanaryStatus{Image: s.target(), CompletionTime: metav1.NewTime(s.Now)}
}

// waitingCanaries are those that have not done well on the image yet.
func waitingCanaries(s *Scope, first []*Node) []*Node {
	var waiting []*Node
	for _, node := range first {
		if !node.isUpdated(s.target()) || s.slot(node.Node) != nil {
			waiting = append(waiting, node)
		}
	}
	return waiting
}

// firstToCome are the canary nodes that all others wait for; none when they may go.
func firstToCome(s *Scope) []*Node {
	first, err := canaries(s)
	if err != nil || isCanaryDone(s) {
		return nil
	}
	return waitingCanaries(s, first)
}

// isCanaryDone says whether the other nodes may follow.
func isCanaryDone(s *Scope) bool {
	end := canaryEnd(s)
	return !end.IsZero() && !s.Now.Before(end)
}

// canaryEnd is when the soak of the canary nodes ends; zero before it begins.
func canaryEnd(s *Scope) time.Time {
	done := s.Rollout.Status.Canary
	if s.Rollout.Spec.Canary == nil || done == nil || done.Image != s.target() {
		return time.Time{}
	}
	return done.CompletionTime.Add(duration(s.Rollout.Spec.Canary.Soak, 0))
}

// holdForCanary names a selector that selects nothing, and holds everybody back
// while the canary nodes soak. Until then only they are candidates.
func holdForCanary(s *Scope) Hold {
	if s.Rollout.Spec.Canary == nil || isCanaryDone(s) {
		return Hold{}
	}
	first, _ := canaries(s) // holdForMistakes has told the error
	switch end := canaryEnd(s); {
	case len(s.selected()) == 0:
		return Hold{}
	case len(first) == 0:
		return Hold{"NoCanary", "spec.canary.nodeSelector selects none of the nodes"}
	case !end.IsZero():
		return Hold{"CanarySoak", "the canary nodes run the image; the others wait until " + end.UTC().Format(time.RFC3339)}
	}
	return Hold{}
}
