package controller

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/imagemode/imagemode/api/v1alpha1"
)

// longPause is how long a rollout may be paused without a word about it. Nodes get
// no certificates under pause, and some are valid for a month only.
const longPause = 7 * 24 * time.Hour

const reasonPausedForLong = "PausedForLong"

// pausedCondition says for how many days a rollout is paused, when they are many, and
// what nodes do without meanwhile.
func pausedCondition(scope *Scope) metav1.Condition {
	if !scope.Rollout.Spec.Paused {
		return condition(v1alpha1.ConditionPaused, false, "NotPaused", "")
	}
	waits := liveWaits(scope)
	if waits != "" {
		waits = "; " + waits
	}
	paused := pausedFor(scope)
	if paused < longPause {
		return condition(v1alpha1.ConditionPaused, true, "Paused", "spec.paused is true"+waits)
	}
	message := fmt.Sprintf("spec.paused is true, for %d days: certificates, keys and trust bundles of spec.live do not reach the nodes meanwhile, and a node whose certificates expire does not join any more; "+
		"set it to false, if only for a while", paused/(24*time.Hour))
	return condition(v1alpha1.ConditionPaused, true, reasonPausedForLong, message+waits)
}

// pausedFor is by the condition's own time: a pause that is lifted begins anew.
func pausedFor(scope *Scope) time.Duration {
	last := meta.FindStatusCondition(scope.Rollout.Status.Conditions, v1alpha1.ConditionPaused)
	if !scope.Rollout.Spec.Paused || last == nil || last.Status != metav1.ConditionTrue {
		return 0
	}
	return scope.Now.Sub(last.LastTransitionTime.Time)
}

// nextPausedDay is after how long the days of a pause are another number; 0: the
// rollout is not paused.
func nextPausedDay(scope *Scope) time.Duration {
	if !scope.Rollout.Spec.Paused {
		return 0
	}
	paused := pausedFor(scope)
	if paused < longPause {
		return longPause - paused
	}
	return 24*time.Hour - paused%(24*time.Hour)
}

// pausedEvent is told once a day.
func pausedEvent(before, after v1alpha1.ImageRolloutStatus) *notice {
	now := meta.FindStatusCondition(after.Conditions, v1alpha1.ConditionPaused)
	last := meta.FindStatusCondition(before.Conditions, v1alpha1.ConditionPaused)
	if now == nil || now.Reason != reasonPausedForLong || last != nil && daysIn(last.Message) == daysIn(now.Message) {
		return nil
	}
	return &notice{nil, corev1.EventTypeWarning, reasonPausedForLong, now.Message}
}

// daysIn is the part of the message that changes once a day: how many nodes wait may
// change with every node that comes.
func daysIn(message string) string {
	days, _, _ := strings.Cut(message, ":")
	return days
}
