package machineosbuild

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"

	keys "github.com/imagemode/imagemode/api/machineconfiguration"
	"github.com/imagemode/imagemode/builder/request"
)

const (
	// firstRetry is how long after a failure that may pass by itself the build is
	// tried again; each further time it is twice as long, up to lastRetry. An
	// outage of a registry is minutes or hours, and a try costs a pod.
	firstRetry = 10 * time.Minute
	lastRetry  = 6 * time.Hour
	// maxVanished is how often a build is made again whose Job was deleted: once
	// is an accident, more often somebody means it.
	maxVanished = 3
)

// reasonJobDeleted and reasonSuperseded are why a build is Interrupted.
const (
	reasonJobDeleted = "JobDeleted"
	reasonSuperseded = "Superseded"
)

// passing are the failure classes that may be over the next time. Rights may be
// granted in a registry alone, without a change that is seen here.
var passing = map[string]bool{
	string(request.Registry): true, string(request.Network): true, string(request.Resources): true, string(request.Authentication): true,
}

// retry says when the same is to be tried again.
type retry struct {
	// at is when; zero: now.
	at time.Time
}

// retryRule is one reason to try a build again that ended. when returns nil when
// it does not apply.
type retryRule struct {
	says string
	when func(*scope, plan) *retry
}

// retryRules: the first that applies counts. Without one, a build that ended
// badly stands until its inputs change or a rebuild is asked for.
var retryRules = []retryRule{
	{"a build whose image is gone from its registry is made again", whenImageGone},
	{"so is one whose Job vanished, three times", whenVanished},
	{"a failed build is tried again when something it depended on changed", whenDependencyChanged},
	{"a failure that may pass is tried again after a time", whenMayPass},
}

// tryAgain says whether a plan's build is to be made again; nil: no.
func tryAgain(s *scope, stands plan) *retry {
	for _, rule := range retryRules {
		if again := rule.when(s, stands); again != nil {
			return again
		}
	}
	return nil
}

// apply is the plan with one attempt more, or with the time of it.
func (r *retry) apply(s *scope, stands plan) plan {
	if r.at.After(s.now) {
		at := metav1.NewTime(r.at)
		stands.counters.NotBefore, stands.wakeAt = &at, r.at
		return stands
	}
	next := stands.counters
	next.NotBefore = nil
	next.Attempt++
	return planFor(s, draw(s, next))
}

func whenImageGone(_ *scope, stands plan) *retry {
	if !hasSucceeded(stands.build) || hasImage(stands.build) {
		return nil
	}
	return &retry{}
}

func whenVanished(s *scope, stands plan) *retry {
	if !hasVanished(stands.build) {
		return nil
	}
	vanished := 0
	for attempt := range stands.blueprint.inputs.Attempt + 1 {
		if build := s.buildNamed(stands.blueprint.nameOf(s, attempt)); build != nil && hasVanished(build) {
			vanished++
		}
	}
	if vanished > maxVanished {
		return nil
	}
	return &retry{}
}

func hasVanished(build *mcfgv1.MachineOSBuild) bool {
	return phaseOf(build) == mcfgv1.MachineOSBuildInterrupted && conditionOf(build).Reason == reasonJobDeleted
}

// whenDependencyChanged leaves alone what never reached a pod: a mistake in the
// text does not depend on a secret.
func whenDependencyChanged(s *scope, stands plan) *retry {
	build := stands.build
	if phaseOf(build) != mcfgv1.MachineOSBuildFailed || stands.blueprint.mistake != nil || stands.problem != nil {
		return nil
	}
	if !hasOldDependencies(s, build) {
		return nil
	}
	return &retry{}
}

// hasOldDependencies reports whether something changed that a build was planned
// with, and that its image does not depend on.
func hasOldDependencies(s *scope, build *mcfgv1.MachineOSBuild) bool {
	before, known := build.Annotations[keys.AnnotationDependencies]
	return known && before != s.dependencies()
}

func whenMayPass(_ *scope, stands plan) *retry {
	build := stands.build
	if phaseOf(build) != mcfgv1.MachineOSBuildFailed || !passing[conditionOf(build).Reason] || stands.problem != nil {
		return nil
	}
	ended := conditionOf(build).LastTransitionTime.Time
	if build.Status.BuildEnd != nil {
		ended = build.Status.BuildEnd.Time
	}
	return &retry{at: ended.Add(retryDelay(stands.blueprint.inputs.Attempt))}
}

// retryDelay is how long an attempt that failed is left alone.
func retryDelay(attempt int) time.Duration {
	delay := firstRetry
	for range attempt {
		if delay *= 2; delay >= lastRetry {
			return lastRetry
		}
	}
	return delay
}

// howItEnded says in a few words why a build gave no image.
func howItEnded(build *mcfgv1.MachineOSBuild) string {
	switch condition := conditionOf(build); {
	case condition == nil:
		return "it did not start"
	case hasSucceeded(build):
		return "its image is gone"
	default:
		return fmt.Sprintf("%s (%s)", condition.Type, condition.Reason)
	}
}
