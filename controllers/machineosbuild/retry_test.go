package machineosbuild

import (
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"

	keys "github.com/imagemode/imagemode/api/machineconfiguration"
	"github.com/imagemode/imagemode/builder/request"
	"github.com/imagemode/imagemode/test/builders"
)

// failsWith is a builder's result of a class.
func failsWith(class request.FailureClass) request.Result {
	return request.Result{Failure: &request.Failure{Class: class, Step: "base", Message: "it did not work"}}
}

func TestRetryDelayDoublesUpToItsLimit(t *testing.T) {
	for attempt, want := range map[int]time.Duration{
		0: 10 * time.Minute, 1: 20 * time.Minute, 4: 160 * time.Minute, 5: 320 * time.Minute, 6: 6 * time.Hour, 1000: 6 * time.Hour,
	} {
		if got := retryDelay(attempt); got != want {
			t.Errorf("attempt %d: %s, want %s", attempt, got, want)
		}
	}
}

// TestWhichFailuresAreTriedAgainByThemselves lets each class fail, and a day
// pass.
func TestWhichFailuresAreTriedAgainByThemselves(t *testing.T) {
	for class, again := range map[request.FailureClass]bool{
		request.Registry: true, request.Network: true, request.Resources: true, request.Authentication: true,
		request.Containerfile: false, request.Image: false, request.Config: false, request.Internal: false,
	} {
		t.Run(string(class), func(t *testing.T) {
			w := newWorld(t)
			w.settle()
			w.builderEnds(failsWith(class))
			w.settle()
			first := w.current()
			w.wantConditions("True Valid", "False "+string(class), "False BuildFailed", "True BuildFailed")
			w.now = w.now.Add(9 * time.Minute)
			w.settle()
			if got := w.current().Name; got != first.Name {
				t.Fatal("it is tried again at once")
			}
			w.now = w.now.Add(24 * time.Hour)
			w.settle()
			if isAgain := w.current().Name != first.Name; isAgain != again {
				t.Fatalf("tried again: %t, want %t", isAgain, again)
			}
			if !again {
				return
			}
			if why := w.current().Annotations[keys.AnnotationBuildReason]; !strings.Contains(why, `"old":"0: Failed (`+string(class)+`)","new":"1"`) {
				t.Errorf("why %s", why)
			}
			w.builderEnds(success)
			w.settle()
			w.wantConditions("True Valid", "False Ready", "True Ready", "False BuildSuccess")
		})
	}
}

func TestAFailureThatWillBeTriedAgainSaysWhen(t *testing.T) {
	w := newWorld(t)
	w.settle()
	w.builderEnds(failsWith(request.Network))
	w.settle()
	result, err := w.configs.Reconcile(t.Context(), requestFor("worker"))
	if err != nil || result.RequeueAfter <= 9*time.Minute || result.RequeueAfter > 10*time.Minute {
		t.Errorf("it is looked at again after %s, error %v", result.RequeueAfter, err)
	}
	due := w.current().Status.BuildEnd.Add(10 * time.Minute)
	if message := w.condition(keys.ConditionReady).Message; !strings.Contains(message, "it is tried again at "+due.UTC().Format(time.RFC3339)) {
		t.Errorf("message %q", message)
	}
	recorded, _ := decodeCounters(w.config().Annotations)
	if recorded.NotBefore == nil || !recorded.NotBefore.Time.Equal(due) {
		t.Errorf("counters %+v, want notBefore %s", recorded, due)
	}
}

func TestAFailedBuildIsTriedAgainWhenASecretChanges(t *testing.T) {
	for name, change := range map[string]func(*world){
		"the push secret": func(w *world) { w.replaceSecret("push") },
		"the trust bundle": func(w *world) {
			w.create(configMap(keys.ConfigMapTrustBundle, map[string]string{keys.KeyTrustBundle: "PEM"}))
		},
		"an entitlement": func(w *world) {
			w.create(secret(keys.SecretEntitlement, map[string][]byte{"a.pem": []byte("x")}))
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.settle()
			w.builderEnds(failsWith(request.Authentication))
			w.settle()
			first := w.current()
			change(w)
			w.settle()
			if w.current().Name == first.Name {
				t.Fatal("it is not tried again")
			}
			w.wantPhase(w.current(), mcfgv1.MachineOSBuildPrepared)
			if hash := inputsHashOf(w.current()); hash != inputsHashOf(first) {
				t.Error("it is said to be another image")
			}
		})
	}
}

func TestASecretThatChangesDisturbsNoOtherBuild(t *testing.T) {
	for name, prepare := range map[string]func(*world){
		"one that runs":                       func(w *world) { w.podRuns(); w.settle() },
		"one that succeeded":                  func(w *world) { w.builderEnds(success); w.settle() },
		"one whose Containerfile has a fault": func(w *world) { w.edit(builders.Containerfile(withMistake)); w.settle() },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.settle()
			prepare(w)
			before := w.current()
			w.replaceSecret("push")
			w.settle()
			if after := w.current(); after.Name != before.Name || phaseOf(after) != phaseOf(before) {
				t.Errorf("%s (%s) after %s (%s)", after.Name, phaseOf(after), before.Name, phaseOf(before))
			}
		})
	}
}

func TestABuildWhoseJobVanishesIsMadeAgainThreeTimes(t *testing.T) {
	w := newWorld(t)
	w.settle()
	for attempt := range 4 {
		inputs := w.inputs(w.current())
		if inputs.Attempt != attempt {
			t.Fatalf("attempt %d, want %d", inputs.Attempt, attempt)
		}
		w.delete(w.job(w.current()))
		w.settle()
	}
	w.wantPhase(w.current(), mcfgv1.MachineOSBuildInterrupted)
	w.wantConditions("True Valid", "False JobDeleted", "False BuildInterrupted", "True BuildInterrupted")
	if got := w.count(&mcfgv1.MachineOSBuildList{}); got != 4 {
		t.Errorf("%d builds", got)
	}

	w.edit(askRebuild("again"))
	w.settle()
	w.wantPhase(w.current(), mcfgv1.MachineOSBuildPrepared)
	if inputs := w.inputs(w.current()); inputs.Attempt != 0 || inputs.Rebuild != 1 {
		t.Errorf("inputs %+v", inputs)
	}
}

func TestEvictionsUseUpNoAttemptButFiveEndTheBuild(t *testing.T) {
	w := newWorld(t)
	w.settle()
	for eviction := range 5 {
		pod := w.podRuns()
		w.settle()
		w.wantPhase(w.current(), mcfgv1.MachineOSBuilding)
		pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: "EvictionByEvictionAPI"}}
		w.updateStatus(pod)
		w.round()
		w.delete(pod)
		if eviction < 4 && phaseOf(w.current()) != mcfgv1.MachineOSBuilding {
			t.Fatalf("after %d evictions it is %s", eviction+1, phaseOf(w.current()))
		}
	}
	w.settle()
	failed := w.current()
	w.wantPhase(failed, mcfgv1.MachineOSBuildFailed)
	if condition := conditionOf(failed); condition.Reason != string(request.Resources) || !strings.Contains(condition.Message, "5 pods of the build were evicted or preempted") {
		t.Errorf("%+v", condition)
	}
	if w.job(failed) != nil {
		t.Error("the Job goes on")
	}
	if got := w.count(&batchv1.JobList{}); got != 0 {
		t.Errorf("%d Jobs", got)
	}
}
