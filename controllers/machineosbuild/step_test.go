package machineosbuild

import (
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
)

// aBuildScope is that of the build which aScope asks for, in a phase.
func aBuildScope(in phase, changes ...func(*buildScope)) *buildScope {
	owner := aScope(built(in))
	s := &buildScope{
		owner: owner, build: &owner.builds[0], existing: &existingImage{}, turn: &turn{granted: true, limit: 5},
		pendingDeadline: defaultPendingDeadline, now: someTime,
	}
	for _, change := range changes {
		change(s)
	}
	return s
}

// withJob adds a Job; changes make it one that was resumed, ended and so on.
func withJob(changes ...func(*batchv1.Job)) func(*buildScope) {
	return func(s *buildScope) {
		options, err := Options{Namespace: "ns", BuilderImage: "builder"}.withDefaults()
		if err != nil {
			panic(err)
		}
		s.job = newJob(s.build, workload{unpacks: true, runsPrograms: true}, nil, options)
		s.job.UID = "job-uid"
		for _, change := range changes {
			change(s.job)
		}
		jobReferences(&s.build.Status, s.job.Namespace, s.job.Name)
	}
}

func resumed(job *batchv1.Job) { job.Spec.Suspend = ptr.To(false) }

func jobEnded(kind batchv1.JobConditionType, reason string) func(*batchv1.Job) {
	return func(job *batchv1.Job) {
		resumed(job)
		job.Status.Conditions = []batchv1.JobCondition{{Type: kind, Status: corev1.ConditionTrue, Reason: reason, Message: "says the Job"}}
	}
}

func withPods(pods ...corev1.Pod) func(*buildScope) { return func(s *buildScope) { s.pods = pods } }

func marked(s *buildScope) { superseded(s.owner) }

func TestNextStep(t *testing.T) {
	for name, test := range map[string]struct {
		scope  *buildScope
		action action
		phase  phase
		reason string
		says   string
	}{
		"a new build gets a Job":                  {aBuildScope(""), start, "", "", ""},
		"without its MachineOSConfig it is left":  {aBuildScope("", func(s *buildScope) { s.owner = nil }), leave, "", "", ""},
		"without the pool it is left":             {aBuildScope("", func(s *buildScope) { s.owner.pool = nil }), leave, "", "", ""},
		"after an edit it is left":                {aBuildScope("", func(s *buildScope) { text(withoutRun)(s.owner) }), leave, "", "", ""},
		"a missing secret is waited for":          {aBuildScope("", func(s *buildScope) { s.owner.secrets = nil }), leave, mcfgv1.MachineOSBuildPrepared, "Waiting", `secret "push" not found`},
		"a Job of a deleted build is waited for":  {aBuildScope("", func(s *buildScope) { s.isJobNameTaken = true }), leave, mcfgv1.MachineOSBuildPrepared, "Waiting", "of a deleted MachineOSBuild"},
		"a suspended Job is supplied and resumed": {aBuildScope(mcfgv1.MachineOSBuildPrepared, withJob()), resume, "", "", ""},
		"a Job without pods is prepared":          {aBuildScope(mcfgv1.MachineOSBuildPrepared, withJob(resumed)), report, mcfgv1.MachineOSBuildPrepared, "", ""},
		"a pod that waits is prepared":            {aBuildScope(mcfgv1.MachineOSBuildPrepared, withJob(resumed), withPods(aPod(pending))), report, mcfgv1.MachineOSBuildPrepared, "", ""},
		"a pod that runs is building":             {aBuildScope(mcfgv1.MachineOSBuildPrepared, withJob(resumed), withPods(aPod())), report, mcfgv1.MachineOSBuilding, "", ""},
		"a second pod that waits is building":     {aBuildScope(mcfgv1.MachineOSBuilding, withJob(resumed), withPods(aPod(pending))), report, mcfgv1.MachineOSBuilding, "", ""},
		"a second attempt says so": {aBuildScope(mcfgv1.MachineOSBuilding, withJob(resumed, func(job *batchv1.Job) { job.Status.Failed = 1 }),
			withPods(aPod(reported(runFail)), aPod())), report, mcfgv1.MachineOSBuilding, "", "attempt 2 of 4; the attempt before failed: Containerfile: step user: Containerfile line 2: RUN exit 1 (exit code 1)"},
		"after an edit a Job at work goes on until it is interrupted": {aBuildScope(mcfgv1.MachineOSBuilding, withJob(resumed),
			withPods(aPod()), func(s *buildScope) { text(withoutRun)(s.owner) }), report, mcfgv1.MachineOSBuilding, "", ""},
		"a superseded build is interrupted":                        {aBuildScope(mcfgv1.MachineOSBuilding, withJob(resumed), marked), stop, mcfgv1.MachineOSBuildInterrupted, "Superseded", "worker-other"},
		"a superseded build that did not start, too":               {aBuildScope("", marked), stop, mcfgv1.MachineOSBuildInterrupted, "Superseded", ""},
		"a superseded build that succeeded is a gain":              {aBuildScope(mcfgv1.MachineOSBuilding, withJob(jobEnded(batchv1.JobComplete, "")), withPods(aPod(reported(success))), marked), finish, mcfgv1.MachineOSBuildSucceeded, "", ""},
		"a completed Job":                                          {aBuildScope(mcfgv1.MachineOSBuilding, withJob(jobEnded(batchv1.JobComplete, "")), withPods(aPod(reported(success)))), finish, mcfgv1.MachineOSBuildSucceeded, "", ""},
		"a pod that succeeded before its Job is complete":          {aBuildScope(mcfgv1.MachineOSBuilding, withJob(resumed), withPods(aPod(reported(success)))), finish, mcfgv1.MachineOSBuildSucceeded, "", ""},
		"a pod that succeeded without a result is left to its Job": {aBuildScope(mcfgv1.MachineOSBuilding, withJob(resumed), withPods(aPod(ended(0, "")))), report, mcfgv1.MachineOSBuilding, "", ""},
		"a completed Job seen only now":                            {aBuildScope("", withJob(jobEnded(batchv1.JobComplete, "")), withPods(aPod(reported(success)))), finish, mcfgv1.MachineOSBuildSucceeded, "", ""},
		"a completed Job whose pod is gone, with a tag": {aBuildScope(mcfgv1.MachineOSBuilding, withJob(jobEnded(batchv1.JobComplete, "")),
			func(s *buildScope) { s.pushedDigest = imageDigest }), finish, mcfgv1.MachineOSBuildSucceeded, "", ""},
		"a completed Job whose pod is gone, without": {aBuildScope(mcfgv1.MachineOSBuilding, withJob(jobEnded(batchv1.JobComplete, "")),
			func(s *buildScope) { s.pushedProblem = "its image cannot be read" }), finish, mcfgv1.MachineOSBuildFailed, "Internal", "its pod was deleted before its result was read, and its image cannot be read"},
		"a failed Job": {aBuildScope(mcfgv1.MachineOSBuilding, withJob(jobEnded(batchv1.JobFailed, batchv1.JobReasonBackoffLimitExceeded)),
			withPods(aPod(reported(runFail)))), finish, mcfgv1.MachineOSBuildFailed, "Containerfile", "RUN exit 1"},
		"a failed Job whose pods are gone": {aBuildScope(mcfgv1.MachineOSBuilding, withJob(jobEnded(batchv1.JobFailed, batchv1.JobReasonBackoffLimitExceeded))),
			finish, mcfgv1.MachineOSBuildFailed, "Internal", "says the Job"},
		"a Job that hung": {aBuildScope(mcfgv1.MachineOSBuilding, withJob(jobEnded(batchv1.JobFailed, batchv1.JobReasonDeadlineExceeded))),
			finish, mcfgv1.MachineOSBuildFailed, "Resources", "did not end within 2h0m0s"},
		"a Job that was deleted": {aBuildScope(mcfgv1.MachineOSBuilding, withJob(resumed), func(s *buildScope) { s.job = nil }),
			finish, mcfgv1.MachineOSBuildInterrupted, "JobDeleted", "was deleted before it ended"},
		"a Job that is being deleted": {aBuildScope(mcfgv1.MachineOSBuilding, withJob(resumed, func(job *batchv1.Job) { job.DeletionTimestamp = &metav1.Time{Time: someTime} })),
			finish, mcfgv1.MachineOSBuildInterrupted, "JobDeleted", ""},
		"a success is cleaned up after":        {aBuildScope(mcfgv1.MachineOSBuildSucceeded, withJob(resumed)), clean, "", "", ""},
		"a failure is cleaned up after":        {aBuildScope(mcfgv1.MachineOSBuildFailed, withJob(resumed)), clean, "", "", ""},
		"so is an end without MachineOSConfig": {aBuildScope(mcfgv1.MachineOSBuildInterrupted, func(s *buildScope) { s.owner = nil }), clean, "", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			got := nextStep(test.scope)
			if got.action != test.action {
				t.Fatalf("action %s, want %s", got.action, test.action)
			}
			said := state{}
			if got.state != nil {
				said = *got.state
			}
			if said.phase != test.phase || said.reason != test.reason || !strings.Contains(said.message, test.says) {
				t.Errorf("says %+v, want %s, %q, %q", said, test.phase, test.reason, test.says)
			}
			if needsPlan := got.action == start || got.action == resume; needsPlan != (got.blueprint != nil) {
				t.Errorf("%s with blueprint %v", got.action, got.blueprint)
			}
		})
	}
}

func TestAContainerfileThatDoesNotParseFailsWithItsLine(t *testing.T) {
	owner := aScope(text(withMistake), built(""))
	got := nextStep(&buildScope{owner: owner, build: &owner.builds[0]})
	if got.action != finish || got.state.phase != mcfgv1.MachineOSBuildFailed || got.state.reason != "Containerfile" {
		t.Fatalf("%+v", got)
	}
	if !strings.Contains(got.state.message, "line 2") {
		t.Errorf("message %q does not name line 2", got.state.message)
	}
}

func TestEveryRuleOfLifeSaysWhatItIsAbout(t *testing.T) {
	for _, rule := range life {
		if rule.says == "" || rule.next == nil {
			t.Errorf("rule %+v is incomplete", rule)
		}
	}
}
