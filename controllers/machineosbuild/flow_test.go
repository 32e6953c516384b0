package machineosbuild

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"

	keys "github.com/imagemode/imagemode/api/machineconfiguration"
	"github.com/imagemode/imagemode/builder/request"
	"github.com/imagemode/imagemode/registry"
	"github.com/imagemode/imagemode/test/builders"
)

// wantConditions compares the MachineOSConfig's conditions, as "status reason".
func (w *world) wantConditions(valid, building, ready, degraded string) {
	w.t.Helper()
	got := map[string]string{}
	config := w.config()
	for _, condition := range config.Status.Conditions {
		got[condition.Type] = string(condition.Status) + " " + condition.Reason
		if condition.ObservedGeneration != config.Generation {
			w.t.Errorf("condition %s is about generation %d, not %d", condition.Type, condition.ObservedGeneration, config.Generation)
		}
	}
	want := map[string]string{
		keys.ConditionValid: valid, keys.ConditionBuilding: building, keys.ConditionReady: ready, keys.ConditionImageBuildDegraded: degraded,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		w.t.Errorf("conditions of the MachineOSConfig (-want +got):\n%s", diff)
	}
}

func (w *world) wantPhase(build *mcfgv1.MachineOSBuild, want phase) {
	w.t.Helper()
	if got := phaseOf(build); got != want {
		w.t.Errorf("MachineOSBuild %s is %q, want %s: %+v", build.Name, got, want, conditionOf(build))
	}
}

func TestABuildFromTheFirstPlanToReady(t *testing.T) {
	w := newWorld(t)
	w.settle()

	build := w.current()
	w.wantPhase(build, mcfgv1.MachineOSBuildPrepared)
	w.wantConditions("True Valid", "True Prepared", "False Building", "False Building")
	job := w.job(build)
	if isSuspended(job) {
		t.Error("the Job was not resumed")
	}
	want := mcfgv1.ObjectReference{Group: "batch", Resource: "jobs", Namespace: keys.Namespace, Name: job.Name}
	if build.Status.Builder == nil || *build.Status.Builder.Job != want || len(build.Status.RelatedObjects) != 1 {
		t.Errorf("builder %+v, related objects %v", build.Status.Builder, build.Status.RelatedObjects)
	}
	if got := w.count(&corev1.SecretList{}); got != 4 {
		t.Errorf("%d Secrets, want the user's two and the build's two", got)
	}

	w.podRuns()
	w.settle()
	w.wantPhase(w.current(), mcfgv1.MachineOSBuilding)
	w.delete(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: keys.Namespace, Name: job.Name + "-0"}})

	w.builderEnds(success)
	w.settle()
	build = w.current()
	w.wantPhase(build, mcfgv1.MachineOSBuildSucceeded)
	w.wantConditions("True Valid", "False Ready", "True Ready", "False BuildSuccess")
	config := w.config()
	image := "registry.example.com/os/worker@" + imageDigest
	if string(config.Status.CurrentImagePullSpec) != image || string(build.Status.DigestedImagePushSpec) != image {
		t.Errorf("image %s, build's %s", config.Status.CurrentImagePullSpec, build.Status.DigestedImagePushSpec)
	}
	if config.Status.MachineOSBuild == nil || config.Status.MachineOSBuild.Name != build.Name || config.Status.ObservedGeneration != config.Generation {
		t.Errorf("status %+v", config.Status)
	}
	if got := w.count(&corev1.SecretList{}); got != 2 {
		t.Errorf("%d Secrets, want the user's two only: credentials outlive the build", got)
	}
	if ttl := w.job(build).Spec.TTLSecondsAfterFinished; ttl == nil || *ttl != 600 {
		t.Errorf("the Job is kept %v seconds", ttl)
	}
}

func TestIdleMeansSilence(t *testing.T) {
	for name, prepare := range map[string]func(*world){
		"while a build runs": func(w *world) { w.settle(); w.podRuns() },
		"after a success":    func(w *world) { w.settle(); w.builderEnds(success) },
		"after a failure":    func(w *world) { w.settle(); w.builderEnds(runFail) },
		"while a secret is missing": func(w *world) {
			w.delete(builders.DockerConfig(keys.Namespace, "push", ""))
		},
		"while a registry is out of reach": func(w *world) {
			ports := 40000
			w.reads = func(string) (ImageFacts, error) {
				ports++
				return ImageFacts{}, &registry.Error{Class: request.Network, Err: fmt.Errorf("read tcp 10.0.0.1:%d->10.0.0.2:5000: connection reset", ports)}
			}
			w.settle()
			w.builderEnds(success)
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			prepare(w)
			w.settle()
			before := w.writes
			// Ten minutes of resyncs, and of events that are about other things.
			w.create(configMap("unrelated", nil), secret("unrelated", nil))
			for range 20 {
				w.now = w.now.Add(30 * time.Second)
				w.round()
			}
			if w.writes != before {
				t.Errorf("%d writes without any change", w.writes-before)
			}
		})
	}
}

func TestAnEditThatIsTakenBackStartsNothing(t *testing.T) {
	w, first := aBuiltWorld(t)

	w.edit(builders.Containerfile(withoutRun))
	w.settle()
	w.wantConditions("True Valid", "True Prepared", "False Building", "False Building")
	second := w.current()
	if second.Name == first.Name {
		t.Fatal("an edit is no other build")
	}
	jobs := w.count(&batchv1.JobList{})

	w.edit(builders.Containerfile(withRun))
	w.settle()
	w.wantConditions("True Valid", "False Ready", "True Ready", "False BuildSuccess")
	if got := w.current().Name; got != first.Name {
		t.Errorf("current is %s, want %s", got, first.Name)
	}
	if got := w.count(&batchv1.JobList{}); got != jobs-1 {
		t.Errorf("%d Jobs, want %d: the edit's was to go and none to come", got, jobs-1)
	}
	w.wantPhase(read[mcfgv1.MachineOSBuild](w, "", second.Name), mcfgv1.MachineOSBuildInterrupted)
}

func TestReadyIsFalseAsSoonAsAnotherBuildIsPlanned(t *testing.T) {
	w, _ := aBuiltWorld(t)
	w.edit(builders.Containerfile(withoutRun))
	if _, err := w.configs.Reconcile(context.Background(), requestFor("worker")); err != nil {
		t.Fatal(err)
	}
	w.wantConditions("True Valid", "True BuildPending", "False Building", "False BuildPending")
}

func TestAnEditInterruptsTheRunningBuild(t *testing.T) {
	w := newWorld(t)
	w.settle()
	w.podRuns()
	w.settle()
	first := w.current()

	w.edit(builders.Containerfile(withoutRun))
	w.settle()
	w.collect()
	interrupted := read[mcfgv1.MachineOSBuild](w, "", first.Name)
	w.wantPhase(interrupted, mcfgv1.MachineOSBuildInterrupted)
	if reason := conditionOf(interrupted).Reason; reason != "Superseded" {
		t.Errorf("reason %s", reason)
	}
	if w.job(first) != nil {
		t.Error("its Job still runs")
	}
	if !interrupted.Status.BuildEnd.After(interrupted.Status.BuildStart.Time) {
		t.Error("it ends before it starts")
	}
	w.wantPhase(w.current(), mcfgv1.MachineOSBuildPrepared)

	w.edit(builders.Containerfile(withRun))
	w.settle()
	if again := w.current(); again.Name == first.Name {
		t.Error("an interrupted build cannot start again")
	} else {
		w.wantPhase(again, mcfgv1.MachineOSBuildPrepared)
	}
}

func TestAFailedBuildIsShownAndHealedByAnEdit(t *testing.T) {
	w := newWorld(t)
	w.settle()
	w.builderEnds(runFail)
	w.settle()
	failed := w.current()
	w.wantPhase(failed, mcfgv1.MachineOSBuildFailed)
	w.wantConditions("True Valid", "False Containerfile", "False BuildFailed", "True BuildFailed")
	degraded := apimeta.FindStatusCondition(w.config().Status.Conditions, keys.ConditionImageBuildDegraded)
	start := fmt.Sprintf("Failed to build OS image for pool worker (MachineOSBuild: %s): Containerfile: ", failed.Name)
	if !strings.HasPrefix(degraded.Message, start) || !strings.Contains(degraded.Message, "exit code 1") || !strings.Contains(degraded.Message, "one\ntwo") {
		t.Errorf("message %q", degraded.Message)
	}
	if ttl := w.job(failed).Spec.TTLSecondsAfterFinished; ttl == nil || *ttl != 86400 {
		t.Errorf("the failed Job is kept %v seconds", ttl)
	}

	w.edit(builders.Containerfile(withoutRun))
	w.settle()
	w.wantConditions("True Valid", "True Prepared", "False Building", "False Building")
	if w.job(failed) != nil {
		t.Error("the failed Job was not replaced")
	}
	w.builderEnds(success)
	w.settle()
	w.wantConditions("True Valid", "False Ready", "True Ready", "False BuildSuccess")
}

func TestARebuildIsAcceptedOnce(t *testing.T) {
	w, first := aBuiltWorld(t)
	for round := 1; round <= 2; round++ {
		// The same value both times: it was forgotten together with the annotation.
		w.edit(askRebuild("please"))
		w.settle()
		config := w.config()
		if _, asked := config.Annotations[keys.AnnotationRebuild]; asked {
			t.Error("the annotation stays")
		}
		var got counters
		if err := json.Unmarshal([]byte(config.Annotations[keys.AnnotationBuildCounters]), &got); err != nil {
			t.Fatal(err)
		}
		if got.Rebuild != round || got.HandledValue != nil {
			t.Errorf("round %d: counters %+v", round, got)
		}
		if builds := w.count(&mcfgv1.MachineOSBuildList{}); builds != 1+round {
			t.Errorf("round %d: %d builds", round, builds)
		}
		w.builderEnds(success)
		w.settle()
	}
	if w.current().Spec.RenderedImagePushSpec == first.Spec.RenderedImagePushSpec {
		t.Error("a rebuild overwrites the tag of the build before")
	}
}

func TestAMissingSecretIsNamedAndWaitedFor(t *testing.T) {
	w := newWorld(t)
	secret := builders.DockerConfig(keys.Namespace, "push", "registry.example.com")
	w.delete(secret)
	w.settle()
	w.wantConditions("False SecretNotFound", "False SecretNotFound", "False SecretNotFound", "False SecretNotFound")
	if w.count(&mcfgv1.MachineOSBuildList{}) != 0 {
		t.Error("a build was made")
	}
	valid, degraded := w.condition(keys.ConditionValid).Message, w.condition(keys.ConditionImageBuildDegraded).Message
	if degraded != "No OS image is built for pool worker: "+valid {
		t.Errorf("ImageBuildDegraded says %q, Valid %q", degraded, valid)
	}
	w.create(builders.DockerConfig(keys.Namespace, "push", "registry.example.com"))
	w.settle()
	w.wantConditions("True Valid", "True Prepared", "False Building", "False Building")
}

func TestAPoolThatIsGoneIsToldByImageBuildDegraded(t *testing.T) {
	w := newWorld(t)
	w.delete(builders.MachineConfigPool("worker"))
	w.settle()
	valid, degraded := w.condition(keys.ConditionValid), w.condition(keys.ConditionImageBuildDegraded)
	if valid.Status != metav1.ConditionFalse || degraded.Status != metav1.ConditionFalse || degraded.Reason != valid.Reason || !strings.HasSuffix(degraded.Message, valid.Message) {
		t.Errorf("ImageBuildDegraded is %+v, Valid %+v", degraded, valid)
	}
}

func TestAMistakeInTheContainerfileNeedsNoPod(t *testing.T) {
	w := newWorld(t)
	w.edit(builders.Containerfile(withMistake))
	w.settle()
	build := w.current()
	w.wantPhase(build, mcfgv1.MachineOSBuildFailed)
	w.wantConditions("True Valid", "False Containerfile", "False BuildFailed", "True BuildFailed")
	if !strings.Contains(conditionOf(build).Message, "line 2") {
		t.Errorf("message %q", conditionOf(build).Message)
	}
	if w.count(&batchv1.JobList{}) != 0 || build.Status.Builder != nil {
		t.Error("a Job was made")
	}
}

func TestWhetherNodesCanPull(t *testing.T) {
	answer := func(class request.FailureClass) func(string) (ImageFacts, error) {
		return func(image string) (ImageFacts, error) {
			return ImageFacts{}, &registry.Error{Class: class, Image: image, Err: errors.New("says the registry")}
		}
	}
	for name, test := range map[string]struct {
		reads func(string) (ImageFacts, error)
		// nodes is the registry that the nodes' secret is for; empty: there is none.
		nodes string
		ready string
		says  string
	}{
		"the secret is missing": {nil, "", "False NodesCannotPull", `secret "nodes" not found`},
		"the registry refuses":  {answer(request.Authentication), "registry.example.com", "False NodesCannotPull", `secret "nodes" (--node-pull-secret), entry for registry.example.com: `},
		"the secret is for another registry": {
			answer(request.Authentication), "other.example.com", "False NodesCannotPull", `secret "nodes" (--node-pull-secret), which has no entry for registry.example.com/os/worker: `,
		},
		"the image is gone":   {answer(request.Image), "registry.example.com", "False NodesCannotPull", "says the registry"},
		"no answer":           {answer(request.Network), "registry.example.com", "Unknown RegistryUnreachable", "says the registry"},
		"an error of its own": {answer(request.Registry), "registry.example.com", "Unknown RegistryUnreachable", "says the registry"},
		"yes":                 {nil, "registry.example.com", "True Ready", "the nodes can pull it"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.reads = test.reads
			w.delete(builders.DockerConfig(keys.Namespace, "nodes", ""))
			if test.nodes != "" {
				w.create(builders.DockerConfig(keys.Namespace, "nodes", test.nodes))
			}
			w.settle()
			w.builderEnds(success)
			w.settle()
			w.wantConditions("True Valid", "False Ready", test.ready, "False BuildSuccess")
			if message := w.condition(keys.ConditionReady).Message; !strings.Contains(message, test.says) {
				t.Errorf("message %q, want %q", message, test.says)
			}
		})
	}
}

func TestAnOutageKeepsTheAnswerGivenBefore(t *testing.T) {
	w, _ := aBuiltWorld(t)
	// A restart forgets what was asked.
	w.start()
	w.reads = func(string) (ImageFacts, error) {
		return ImageFacts{}, &registry.Error{Class: request.Network, Err: errors.New("connection refused")}
	}
	w.settle()
	w.wantConditions("True Valid", "False Ready", "True Ready", "False BuildSuccess")
}

func TestAnImageIsLookedUpOnce(t *testing.T) {
	w := newWorld(t)
	reads := 0
	w.reads = func(string) (ImageFacts, error) { reads++; return ImageFacts{}, nil }
	w.settle()
	w.builderEnds(success)
	w.settle()
	w.settle()
	if reads != 1 {
		t.Errorf("%d look-ups", reads)
	}
}

func TestAPodThatIsGoneLeavesTheTag(t *testing.T) {
	for name, test := range map[string]struct {
		facts ImageFacts
		want  phase
	}{
		"with the right label": {ImageFacts{Digest: imageDigest}, mcfgv1.MachineOSBuildSucceeded},
		"with another label":   {ImageFacts{Digest: imageDigest, InputsHash: "other"}, mcfgv1.MachineOSBuildFailed},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.settle()
			if test.facts.InputsHash == "" {
				test.facts.InputsHash = inputsHashOf(w.current())
			}
			w.reads = func(string) (ImageFacts, error) { return test.facts, nil }
			w.jobEnds(batchv1.JobComplete)
			w.settle()
			w.wantPhase(w.current(), test.want)
		})
	}
}

func TestADeletedBuildIsMadeAgain(t *testing.T) {
	for name, end := range map[string]bool{"while it runs": false, "after its success": true} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.settle()
			if end {
				w.builderEnds(success)
				w.settle()
			}
			first := w.current()
			w.delete(first)
			w.settle()
			second := w.current()
			if second.Name != first.Name || second.UID == first.UID {
				t.Errorf("%s (%s) after %s (%s)", second.Name, second.UID, first.Name, first.UID)
			}
			w.wantPhase(second, mcfgv1.MachineOSBuildPrepared)
		})
	}
}

func TestARecreatedConfigWaitsForWhatTheDeletedOneLeft(t *testing.T) {
	w := newWorld(t)
	w.settle()
	left := w.current()
	if err := w.client.Delete(context.Background(), w.config()); err != nil {
		t.Fatal(err)
	}
	w.round() // it has no nodes, and lets go
	w.create(builders.MachineOSConfig("worker", builders.Containerfile(withRun)))
	w.settle()
	w.wantConditions("True Valid", "True BuildPending", "False Building", "False BuildPending")
	w.collect()
	w.settle()
	if got := w.current(); got.Name != left.Name || got.UID == left.UID {
		t.Errorf("current is %s (%s)", got.Name, got.UID)
	}
}
