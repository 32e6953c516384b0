package machineosbuild

import (
	"errors"
	"fmt"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"

	keys "github.com/imagemode/imagemode/api/machineconfiguration"
	"github.com/imagemode/imagemode/builder/request"
	"github.com/imagemode/imagemode/containerfiles"
)

// reasonReused and reasonSeeded are why a build succeeded that has no pod.
const (
	reasonReused = "Reused"
	reasonSeeded = "PreBuiltImageSeeded"
)

// maxDisruptions is how many pods of a build may be evicted or preempted. Each
// eviction is somebody's maintenance; five in one build are a cluster without
// room for it.
const maxDisruptions = 5

// action is what to do next about a MachineOSBuild.
type action string

const (
	// leave it alone: somebody else acts next.
	leave action = "leave"
	// clean up after a build that ended.
	clean action = "clean"
	// finish it: its state is final.
	finish action = "finish"
	// stop its Job, then finish it.
	stop action = "stop"
	// start it: create its Job.
	start action = "start"
	// resume its Job, after making the inputs.
	resume action = "resume"
	// report how far it is.
	report action = "report"
	// ask the registry whether the image exists already, and decide again.
	ask action = "ask"
	// reuse the image that exists: give it the build's tag and finish.
	reuse action = "reuse"
	// queueUp for a turn, and decide again.
	queueUp action = "queue"
)

// step is the answer to a buildScope.
type step struct {
	action action
	// state is to be written; for finish, stop, resume and report, and for leave
	// where there is something to say.
	state *state
	// blueprint is what to build; for start and resume.
	blueprint *blueprint
	// wakeAt is when another step is due, whatever happens; zero: never.
	wakeAt time.Time
}

// stepRule is one rule of a build's life. next returns nil when it does not
// apply.
type stepRule struct {
	says string
	next func(*buildScope) *step
}

// life is a build's life: the first rule that applies counts.
var life = []stepRule{
	{"what ended stays as it is, without credentials in the cluster", whenEnded},
	{"an image that was built elsewhere is taken as it is", whenSeeded},
	{"without its MachineOSConfig a build is left to the garbage collector", whenOrphaned},
	{"a builder that ended well gives the image, before its pod and Job are complete", whenBuilderSucceeded},
	{"a Job that completed gives the image, even if another build was chosen meanwhile", whenCompleted},
	{"another build was chosen: this one is interrupted", whenSuperseded},
	{"a Job that failed gives the reason", whenJobFailed},
	{"a failure that no other pod mends ends the build, before its Job says so", whenFailureIsFinal},
	{"a build of which an attempt failed starts afresh when a Secret or certificate was changed", whenMended},
	{"a Job that vanished interrupts the build", whenJobVanished},
	{"a build whose pods are moved away again and again fails", whenDisruptedTooOften},
	{"a pod that cannot start for too long fails the build", whenPendingTooLong},
	{"a Job at work is reported on", whenJobRuns},
	{"a Job of an earlier build of the same name has to go first", whenJobNameTaken},
	{"a build whose inputs changed under it waits to be replaced", whenOutdated},
	{"a Containerfile or a config that cannot be built fails without a pod", whenMistaken},
	{"a missing secret is waited for", whenSecretsMissing},
	{"a Job that was created gets its inputs and is let go", whenJobSuspended},
	{"an image that exists already is reused", whenImageExists},
	{"an image that another build makes is waited for", whenTwinRuns},
	{"over the limit of builds, a build waits for its turn", whenNotItsTurn},
	{"a new build gets a Job", func(s *buildScope) *step { return &step{action: start, blueprint: s.blueprint()} }},
}

// nextStep says what to do about a MachineOSBuild. It is a pure function.
func nextStep(s *buildScope) *step {
	for _, rule := range life {
		if next := rule.next(s); next != nil {
			return next
		}
	}
	return &step{action: leave}
}

func whenEnded(s *buildScope) *step {
	if !isTerminal(s.build) {
		return nil
	}
	return &step{action: clean}
}

func whenSeeded(s *buildScope) *step {
	image := s.build.Annotations[keys.AnnotationPreBuiltImage]
	if image == "" {
		return nil
	}
	return finishWith(state{
		phase: mcfgv1.MachineOSBuildSucceeded, reason: reasonSeeded, image: image,
		message: fmt.Sprintf("Image %s was built before (annotation %s of the MachineOSConfig)", image, keys.AnnotationPreBuiltImage),
	})
}

func whenOrphaned(s *buildScope) *step {
	if s.owner != nil {
		return nil
	}
	return &step{action: leave}
}

// whenBuilderSucceeded: a kubelet takes another second to take the pod down, and
// the Job another one to notice.
func whenBuilderSucceeded(s *buildScope) *step {
	newest := newestPod(s.pods)
	if s.job == nil || newest == nil {
		return nil
	}
	result, found := resultOfPod(newest)
	if !found || result.Failure != nil {
		return nil
	}
	return finishWith(stateOf(result))
}

func whenCompleted(s *buildScope) *step {
	if s.job == nil || !jobHas(s.job, batchv1.JobComplete) {
		return nil
	}
	if result, found := resultOf(s.pods); found {
		return finishWith(stateOf(result))
	}
	if s.pushedDigest != "" {
		return finishWith(state{phase: mcfgv1.MachineOSBuildSucceeded, digest: s.pushedDigest})
	}
	return finishWith(failedState(request.Failure{
		Class: request.Internal,
		Message: fmt.Sprintf("Job %s completed, but its pod was deleted before its result was read, and %s",
			s.job.Name, orElse(s.pushedProblem, "its image cannot be found")),
	}))
}

func whenSuperseded(s *buildScope) *step {
	if !isSuperseded(s.build) {
		return nil
	}
	return &step{action: stop, state: &state{
		phase: mcfgv1.MachineOSBuildInterrupted, reason: reasonSuperseded,
		message: fmt.Sprintf("MachineOSBuild %s was chosen instead", s.build.Annotations[keys.AnnotationSupersededBy]),
	}}
}

func whenJobFailed(s *buildScope) *step {
	if s.job == nil || !jobHas(s.job, batchv1.JobFailed) {
		return nil
	}
	condition := jobCondition(s.job, batchv1.JobFailed)
	if condition.Reason == batchv1.JobReasonDeadlineExceeded {
		return finishWith(failedState(request.Failure{
			Class: request.Resources,
			Message: fmt.Sprintf("the build did not end within %s (--builder-deadline); its last state: %s",
				deadlineOf(s.job), progressOf(s).orUsual()),
		}))
	}
	if result, found := resultOf(s.pods); found && result.Failure != nil {
		return finishWith(failedState(s.explain(*result.Failure)))
	}
	return finishWith(failedState(request.Failure{
		Class:   request.Internal,
		Message: fmt.Sprintf("Job %s failed (%s: %s), and no pod of it is left to say why", s.job.Name, condition.Reason, condition.Message),
	}))
}

// whenFailureIsFinal: of a Job that goes on all the same, the last attempt counts.
func whenFailureIsFinal(s *buildScope) *step {
	failure := s.failedAttempt()
	if failure == nil || !failure.IsFinal() || !endsAtFinalFailure(s.job) {
		return nil
	}
	return finishWith(failedState(s.explain(*failure)))
}

// whenMended: pods have copies of what was there when the build started. What was
// corrected since would not be tried before the last of them has failed.
func whenMended(s *buildScope) *step {
	failure := s.failedAttempt()
	if failure == nil || !hasOldDependencies(s.owner, s.build) || firstProblem(s.owner, secretRules) != nil {
		return nil
	}
	failed := failedState(s.explain(*failure))
	failed.message = truncate("A Secret, certificate or proxy was changed meanwhile, and the build starts afresh; before that: "+failed.message, maxMessage)
	return finishWith(failed) // cleaning up ends the Job
}

// failedAttempt is how the last attempt of a Job at work failed that was not merely
// moved away; nil: none did.
func (s *buildScope) failedAttempt() *request.Failure {
	if s.job == nil || isSuspended(s.job) {
		return nil
	}
	for i := range slices.Backward(s.pods) {
		if isDisrupted(&s.pods[i]) {
			continue
		}
		if result, found := resultOfPod(&s.pods[i]); found {
			return result.Failure
		}
	}
	return nil
}

// whenJobVanished: a Job that was recorded in the status existed.
func whenJobVanished(s *buildScope) *step {
	if s.job != nil && s.job.DeletionTimestamp == nil || s.build.Status.Builder == nil {
		return nil
	}
	return &step{action: finish, state: &state{
		phase: mcfgv1.MachineOSBuildInterrupted, reason: reasonJobDeleted,
		message: fmt.Sprintf("Job %s was deleted before it ended; the build is made again up to %d times, after that the annotation %s on the MachineOSConfig asks for it",
			jobName(s.build.Name), maxVanished, keys.AnnotationRebuild),
	}}
}

// whenDisruptedTooOften ends what a Job would go on with for ever: an eviction
// uses up no attempt.
func whenDisruptedTooOften(s *buildScope) *step {
	if s.job == nil || len(disruptedPods(s.job)) < maxDisruptions {
		return nil
	}
	return stopWith(failedState(request.Failure{
		Class: request.Resources,
		Message: fmt.Sprintf("%d pods of the build were evicted or preempted; give it nodes with room (--builder-node-selector) or build at a quieter time",
			maxDisruptions),
	}))
}

func whenPendingTooLong(s *buildScope) *step {
	waiting := waitOf(s)
	if waiting == nil || s.now.Before(waiting.since.Add(s.pendingDeadline)) {
		return nil
	}
	return stopWith(failedState(request.Failure{
		Class:   waiting.class,
		Message: fmt.Sprintf("%s, for more than %s (--builder-pending-deadline)", waiting.message, s.pendingDeadline),
	}))
}

func whenJobRuns(s *buildScope) *step {
	if s.job == nil || isSuspended(s.job) {
		return nil
	}
	progress := progressOf(s)
	next := &step{action: report, state: &progress}
	if waiting := waitOf(s); waiting != nil {
		next.wakeAt = waiting.since.Add(s.pendingDeadline)
	}
	return next
}

func whenJobNameTaken(s *buildScope) *step {
	if !s.isJobNameTaken {
		return nil
	}
	return hold("Job %s of a deleted MachineOSBuild of the same name is still there", jobName(s.build.Name))
}

func whenOutdated(s *buildScope) *step {
	if print := s.blueprint(); print != nil && print.name == s.build.Name {
		return nil
	}
	// The MachineOSConfig's reconciler plans another one, or shows what is missing.
	return &step{action: leave}
}

func whenMistaken(s *buildScope) *step {
	mistake := s.blueprint().mistake
	if mistake == nil {
		return nil
	}
	return finishWith(failedState(s.owner.failureOf(mistake)))
}

// failureOf classifies a mistake in the Containerfile or in the rendered config.
func (s *scope) failureOf(mistake error) request.Failure {
	var config *configMistake
	if errors.As(mistake, &config) {
		return request.Failure{Class: request.Config, Message: s.describeMistake(config)}
	}
	failure := request.Failure{Class: request.Containerfile, Message: mistake.Error()}
	var located *containerfiles.Error
	if errors.As(mistake, &located) {
		failure.Line, failure.Message = located.Line, located.Message
	}
	return failure
}

func whenSecretsMissing(s *buildScope) *step {
	if missing := firstProblem(s.owner, secretRules); missing != nil {
		return hold("%s", missing.message)
	}
	return nil
}

func whenJobSuspended(s *buildScope) *step {
	if s.job == nil {
		return nil
	}
	return &step{action: resume, blueprint: s.blueprint()}
}

// whenImageExists reuses an image of the same inputs, whoever had it built: equal
// inputs are equal images.
func whenImageExists(s *buildScope) *step {
	switch {
	case s.existing == nil:
		return &step{action: ask}
	case s.existing.digest == "":
		return nil
	default:
		return &step{action: reuse, blueprint: s.blueprint(), state: &state{
			phase: mcfgv1.MachineOSBuildSucceeded, reason: reasonReused, digest: s.existing.digest,
			message: fmt.Sprintf("The image of the same inputs exists already (%s)", s.existing.tag),
		}}
	}
}

func whenTwinRuns(s *buildScope) *step {
	if s.twin == nil {
		return nil
	}
	return hold("MachineOSBuild %s makes the same image; waiting for it", s.twin.Name)
}

func whenNotItsTurn(s *buildScope) *step {
	switch {
	case s.turn == nil:
		return &step{action: queueUp}
	case s.turn.granted:
		return nil
	default:
		return hold("Waiting for another build to end: there are %d at a time (--max-concurrent-builds)", s.turn.limit)
	}
}

func stopWith(s state) *step { return &step{action: stop, state: &s} }

func finishWith(s state) *step { return &step{action: finish, state: &s} }

// hold keeps a build from starting and says why.
func hold(format string, arguments ...any) *step {
	return &step{action: leave, state: &state{
		phase: mcfgv1.MachineOSBuildPrepared, reason: "Waiting", message: fmt.Sprintf(format, arguments...),
	}}
}

// blueprint is what the MachineOSConfig asks for now, as an attempt with the
// counters of this build; nil while nothing can be planned.
func (s *buildScope) blueprint() *blueprint {
	if firstProblem(s.owner, preconditions) != nil {
		return nil
	}
	recorded, _ := decodeCounters(s.build.Annotations)
	return draw(s.owner, recorded)
}

// progressOf says how far a Job at work is. A build never goes back from
// Building to Prepared, though a second pod may have to wait again.
func progressOf(s *buildScope) state {
	newest := newestPod(s.pods)
	isBuilding := phaseOf(s.build) == mcfgv1.MachineOSBuilding || len(s.pods) > 1
	if newest != nil && newest.Status.Phase != corev1.PodPending {
		isBuilding = true
	}
	progress := state{phase: mcfgv1.MachineOSBuildPrepared}
	if isBuilding {
		progress.phase = mcfgv1.MachineOSBuilding
	}
	if waiting := waitOf(s); waiting != nil {
		progress.message = waiting.message
	}
	if failed := s.failedPods(); failed > 0 && progress.message == "" {
		progress.message = fmt.Sprintf("Image Build In Progress, attempt %d of %d", failed+1, backoffLimit+1) + s.lastFailure()
	}
	return progress
}

// orUsual is the message, or that of the phase.
func (s state) orUsual() string {
	for _, known := range phases {
		if known.phase == s.phase {
			return orElse(s.message, known.message)
		}
	}
	return s.message
}

func (s *buildScope) failedPods() int {
	if s.job == nil {
		return 0
	}
	return min(int(s.job.Status.Failed), backoffLimit)
}

// lastFailure says, without the lines of its log, why the attempt before failed.
func (s *buildScope) lastFailure() string {
	result, found := resultOf(s.pods)
	if !found || result.Failure == nil {
		return ""
	}
	failure := s.explain(*result.Failure)
	failure.LastLines = nil
	return fmt.Sprintf("; the attempt before failed: %s: %s", failure.Class, describe(failure))
}

func newestPod(pods []corev1.Pod) *corev1.Pod {
	if len(pods) == 0 {
		return nil
	}
	return &pods[len(pods)-1]
}
