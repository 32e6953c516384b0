package machineosbuild

import (
	"errors"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"

	keys "github.com/imagemode/imagemode/api/machineconfiguration"
	"github.com/imagemode/imagemode/builder/request"
	"github.com/imagemode/imagemode/test/builders"
)

// What users of on-cluster builds have run into, each as a test that it does not
// happen here.

func (w *world) updatePool(change func(*mcfgv1.MachineConfigPool)) {
	w.t.Helper()
	pool := read[mcfgv1.MachineConfigPool](w, "", "worker")
	change(pool)
	if err := w.client.Update(w.t.Context(), pool); err != nil {
		w.t.Fatal(err)
	}
}

func TestAPoolWithoutMachineOSConfigGetsNoBuild(t *testing.T) {
	w := newWorld(t)
	if err := w.client.Delete(t.Context(), w.config()); err != nil {
		t.Fatal(err)
	}
	w.settle()
	if w.count(&mcfgv1.MachineOSBuildList{})+w.count(&batchv1.JobList{}) > 0 {
		t.Error("something is built")
	}
}

func TestARestartWritesNothing(t *testing.T) {
	for name, prepare := range map[string]func(*world){
		"while a build runs": func(w *world) { w.podRuns() },
		"after a success":    func(w *world) { w.builderEnds(success) },
		"after a failure":    func(w *world) { w.builderEnds(runFail) },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.settle()
			prepare(w)
			w.settle()
			before := w.writes
			w.start()
			w.settle()
			if w.writes != before {
				t.Errorf("%d writes", w.writes-before)
			}
		})
	}
}

func TestWhatHappensWhileTheControllerIsDownIsNoticed(t *testing.T) {
	for name, test := range map[string]struct {
		happens func(*world)
		want    phase
	}{
		"a pod starts":               {func(w *world) { w.podRuns() }, mcfgv1.MachineOSBuilding},
		"a build succeeds":           {func(w *world) { w.builderEnds(success) }, mcfgv1.MachineOSBuildSucceeded},
		"a build fails":              {func(w *world) { w.builderEnds(runFail) }, mcfgv1.MachineOSBuildFailed},
		"the config is edited":       {func(w *world) { w.edit(builders.Containerfile(withoutRun)) }, mcfgv1.MachineOSBuildPrepared},
		"the pool is rendered again": {func(w *world) { w.renderAgain(renderedName + "b") }, mcfgv1.MachineOSBuildPrepared},
		"a rebuild is asked for":     {func(w *world) { w.edit(askRebuild("x")) }, mcfgv1.MachineOSBuildPrepared},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.settle()
			test.happens(w)
			w.start()
			w.settle()
			w.wantPhase(w.current(), test.want)
		})
	}
}

func TestADeletedJobWithFailedPodsInterrupts(t *testing.T) {
	w := newWorld(t)
	w.settle()
	first := w.current()
	job := w.job(first)
	job.Status.Failed = 2
	w.updateStatus(job)
	w.delete(w.job(first))
	w.settle()
	w.wantPhase(read[mcfgv1.MachineOSBuild](w, "", first.Name), mcfgv1.MachineOSBuildInterrupted)
	w.wantPhase(w.current(), mcfgv1.MachineOSBuildPrepared)
}

func TestADeletedPodInterruptsNothing(t *testing.T) {
	w := newWorld(t)
	w.settle()
	w.delete(w.podRuns())
	w.settle()
	w.podRuns()
	w.settle()
	w.wantPhase(w.current(), mcfgv1.MachineOSBuilding)
	if got := w.count(&mcfgv1.MachineOSBuildList{}); got != 1 {
		t.Errorf("%d builds", got)
	}
}

func TestAFailedBuildOfAnOlderConfigIsNotMadeAgain(t *testing.T) {
	w := newWorld(t)
	w.settle()
	w.builderEnds(failsWith(request.Network))
	w.settle()
	failed := w.current()
	w.renderAgain(renderedName + "b")
	w.edit(builders.Containerfile(withoutRun))
	w.settle()
	w.builderEnds(success)
	w.settle()
	builds := w.count(&mcfgv1.MachineOSBuildList{})
	w.replaceSecret("push")
	w.now = w.now.Add(24 * time.Hour)
	w.settle()
	if got := w.count(&mcfgv1.MachineOSBuildList{}); got != builds {
		t.Errorf("%d builds, want %d", got, builds)
	}
	w.wantPhase(read[mcfgv1.MachineOSBuild](w, "", failed.Name), mcfgv1.MachineOSBuildFailed)
}

func TestABrokenConfigHoldsUpNoOther(t *testing.T) {
	for name, breakIt := range map[string]func(*mcfgv1.MachineOSConfig){
		"its secret is missing":            builders.PushTo("registry.example.com/os/broken:latest", "missing"),
		"its Containerfile has a mistake":  builders.Containerfile(withMistake),
		"its Containerfile fits no node":   func(config *mcfgv1.MachineOSConfig) { config.Spec.Containerfile[0].ContainerfileArch = mcfgv1.Arm64 },
		"its pull secret is of a bad type": builders.BasePullSecret("opaque"),
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, secret("opaque", nil))
			w.poolNamed("broken", breakIt)
			w.settle()
			w.builderEnds(success)
			w.settle()
			w.wantConditions("True Valid", "False Ready", "True Ready", "False BuildSuccess")
		})
	}
}

func TestADegradedPoolIsBuiltFor(t *testing.T) {
	w := newWorld(t)
	w.updatePool(func(pool *mcfgv1.MachineConfigPool) {
		for _, kind := range []mcfgv1.MachineConfigPoolConditionType{mcfgv1.MachineConfigPoolNodeDegraded, mcfgv1.MachineConfigPoolRenderDegraded, mcfgv1.MachineConfigPoolDegraded} {
			pool.Status.Conditions = append(pool.Status.Conditions, mcfgv1.MachineConfigPoolCondition{Type: kind, Status: corev1.ConditionTrue})
		}
		pool.Spec.Paused = true
	})
	w.settle()
	w.wantPhase(w.current(), mcfgv1.MachineOSBuildPrepared)
}

func TestAnEditDuringAChangeOfTheConfigIsNotLost(t *testing.T) {
	w, _ := aBuiltWorld(t)
	w.onShelf(w.current())
	w.renderAgain(renderedName + "b")
	w.edit(builders.Containerfile(withoutRun))
	w.settle()
	build := w.current()
	if inputs := w.inputs(build); inputs.Image.Containerfile != hashOfText(withoutRun) || inputs.RenderedMachineConfig != renderedName+"b" {
		t.Errorf("inputs %+v", inputs)
	}
	if w.job(build) == nil {
		t.Error("the image of the old text is taken for the new one")
	}
}

func TestTwoEditsAtOnceGiveOneBuild(t *testing.T) {
	w, _ := aBuiltWorld(t)
	before := w.count(&mcfgv1.MachineOSBuildList{})
	w.edit(builders.Containerfile("FROM configs AS final\nRUN one\n"))
	w.edit(builders.Containerfile("FROM configs AS final\nRUN two\n"))
	w.settle()
	if got := w.count(&mcfgv1.MachineOSBuildList{}); got != before+1 {
		t.Errorf("%d builds more", got-before)
	}
}

func TestWhatDoesNotChangeTheImageStartsNoBuild(t *testing.T) {
	for name, change := range map[string]func(*world){
		"another push secret of the same registry": func(w *world) {
			w.create(builders.DockerConfig(keys.Namespace, "other", "registry.example.com"))
			w.edit(builders.PushTo("registry.example.com/os/worker:latest", "other"))
		},
		"a text for another architecture": func(w *world) {
			w.edit(func(config *mcfgv1.MachineOSConfig) {
				config.Spec.Containerfile = append(config.Spec.Containerfile, mcfgv1.MachineOSContainerfile{ContainerfileArch: mcfgv1.Arm64, Content: withoutRun})
			})
		},
		"sources of the same rendered config": func(w *world) {
			w.updatePool(func(pool *mcfgv1.MachineConfigPool) {
				pool.Spec.Configuration.Source = []corev1.ObjectReference{{Name: "50-more"}}
			})
		},
		"a label": func(w *world) {
			w.edit(func(config *mcfgv1.MachineOSConfig) { config.Labels = map[string]string{"a": "b"} })
		},
		"credentials that are renewed": func(w *world) { w.replaceSecret("push") },
		"a trust bundle": func(w *world) {
			w.create(configMap(keys.ConfigMapTrustBundle, map[string]string{keys.KeyTrustBundle: "PEM"}))
		},
	} {
		t.Run(name, func(t *testing.T) {
			w, first := aBuiltWorld(t)
			change(w)
			w.settle()
			if got := w.current().Name; got != first.Name {
				t.Errorf("another build: %s", w.current().Annotations[keys.AnnotationBuildReason])
			}
		})
	}
}

func TestPackageRepositoriesAreInputsWhereSomethingRuns(t *testing.T) {
	repos := configMap(keys.ConfigMapYumRepos, map[string]string{"site.repo": "[site]"})
	gpg := secret(keys.SecretGPGKeys, map[string][]byte{"RPM-GPG-KEY-site": []byte("key")})
	for name, test := range map[string]struct {
		text    string
		isBuilt bool
	}{
		"a text with RUN":    {withRun, true},
		"a text without RUN": {withoutRun, false},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.edit(builders.Containerfile(test.text))
			w.settle()
			w.builderEnds(success)
			w.settle()
			for _, added := range []string{"yumRepos", "gpgKeys"} {
				first := w.current()
				if added == "yumRepos" {
					w.create(repos.DeepCopy())
				} else {
					w.create(gpg.DeepCopy())
				}
				w.settle()
				if isBuilt := w.current().Name != first.Name; isBuilt != test.isBuilt {
					t.Fatalf("%s: built %t, want %t", added, isBuilt, test.isBuilt)
				}
				if why := w.current().Annotations[keys.AnnotationBuildReason]; test.isBuilt && !strings.Contains(why, added) {
					t.Errorf("why: %s", why)
				}
			}
		})
	}
}

func TestThePoolsOwnEntitlementComesFirst(t *testing.T) {
	for name, test := range map[string]struct {
		secrets []string
		want    string
	}{
		"none":                {nil, ""},
		"that of all pools":   {[]string{keys.SecretEntitlement}, keys.SecretEntitlement},
		"the pool's own":      {[]string{keys.SecretEntitlement, keys.SecretEntitlement + "-worker"}, keys.SecretEntitlement + "-worker"},
		"only another pool's": {[]string{keys.SecretEntitlement + "-infra"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			for _, made := range test.secrets {
				w.create(secret(made, map[string][]byte{"of": []byte(made)}))
			}
			w.settle()
			copied, err := find[corev1.Secret](t.Context(), w.client, keys.Namespace, entitlementName(w.current().Name))
			if err != nil {
				t.Fatal(err)
			}
			got := ""
			if copied != nil {
				got = string(copied.Data["of"])
			}
			if got != test.want {
				t.Errorf("the build has %q, want %q", got, test.want)
			}
			w.builderEnds(success)
			w.settle()
			if copied, err = find[corev1.Secret](t.Context(), w.client, keys.Namespace, entitlementName(w.current().Name)); err != nil || copied != nil {
				t.Errorf("private keys outlive the build: %v", err)
			}
		})
	}
}

func TestCredentialHelpersAreSaidToBeUnused(t *testing.T) {
	w := newWorld(t)
	push := read[corev1.Secret](w, keys.Namespace, "push")
	push.Data[corev1.DockerConfigJsonKey] = []byte(`{"auths":{"registry.example.com":{"auth":"dXNlcjpwYXNz"}},"credHelpers":{"other.example.com":"pass"}}`)
	if err := w.client.Update(t.Context(), push); err != nil {
		t.Fatal(err)
	}
	w.settle()
	if message := w.condition(keys.ConditionValid).Message; !strings.Contains(message, "not used: push") {
		t.Errorf("message %q", message)
	}
	w.wantPhase(w.current(), mcfgv1.MachineOSBuildPrepared)
}

func TestAnImageThatCannotBeDeletedHoldsUpNoBuild(t *testing.T) {
	w := newWorld(t)
	w.held(digestNumber(1))
	w.refuses = func(asked, _ string) error {
		if asked == "delete" {
			return errors.New("denied")
		}
		return nil
	}
	for range 2 {
		_ = w.pruner.prune(t.Context())
		w.now = w.now.Add(pruneGrace)
	}
	w.settle()
	w.builderEnds(success)
	w.settle()
	w.wantConditions("True Valid", "False Ready", "True Ready", "False BuildSuccess")
}

func TestARecreatedConfigDoesNotTakeTheBuildsOfTheDeletedOne(t *testing.T) {
	w, first := aBuiltWorld(t)
	if err := w.client.Delete(t.Context(), w.config()); err != nil {
		t.Fatal(err)
	}
	w.round()
	w.create(builders.MachineOSConfig("worker", builders.Containerfile(withoutRun)))
	w.settle()
	second := w.current()
	if isOwnedBy(second, metav1.GetControllerOf(first).UID) || second.Name == first.Name {
		t.Errorf("current is %s", second.Name)
	}
	w.collect()
	w.settle()
	if got := w.current(); got.UID != second.UID {
		t.Error("the garbage of the deleted one took the new one's build along")
	}
}

func TestEventsTellTheStory(t *testing.T) {
	w := newWorld(t)
	recorder := events.NewFakeRecorder(1000)
	w.configs.events, w.builds.events = reporter{recorder}, reporter{recorder}
	w.settle()
	w.podRuns()
	w.settle()
	w.deletePods()
	w.builderEnds(runFail)
	w.settle()
	w.edit(askRebuild("x"))
	w.settle()
	w.builderEnds(success)
	w.settle()
	w.delete(w.config())
	w.settle()
	close(recorder.Events)
	var told []string
	for event := range recorder.Events {
		fields := strings.Fields(event)
		told = append(told, fields[0]+" "+fields[1])
	}
	want := []string{
		"Normal BuildStarted", "Normal ConfigReconciled", "Normal JobCreated", "Normal BuildPreparing", "Normal JobStarted", "Normal BuildBuilding",
		"Warning JobFailed", "Warning BuildFailed", "Warning BuildDegraded", "Normal RebuildRequested", "Normal JobCompleted", "Normal BuildCompleted",
		"Normal BuildRecovered", "Normal ConfigDeleted",
	}
	rest := told
	for _, event := range want {
		found := false
		for i := range rest {
			if rest[i] == event {
				rest, found = rest[i+1:], true
				break
			}
		}
		if !found {
			t.Errorf("%s is not told in its place: %s", event, strings.Join(told, ", "))
		}
	}
}
