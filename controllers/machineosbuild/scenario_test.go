package machineosbuild

import (
	"fmt"
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"

	keys "github.com/imagemode/imagemode/api/machineconfiguration"
	"github.com/imagemode/imagemode/builder/request"
	"github.com/imagemode/imagemode/test/builders"
)

// What users of on-cluster builds do, one after the other, each as a test.

const anotherRendered = renderedName + "b"

// otherText is a Containerfile of its own for each number.
func otherText(number int) func(*mcfgv1.MachineOSConfig) {
	return builders.Containerfile(fmt.Sprintf("FROM configs AS final\nRUN echo %d\n", number))
}

// succeeds lets the current build end with an image.
func (w *world) succeeds(digest string) *mcfgv1.MachineOSBuild {
	w.t.Helper()
	w.settle()
	w.builderEnds(request.Result{Digest: digest})
	w.settle()
	return w.current()
}

func TestAnotherRenderedConfigInterruptsTheRunningBuild(t *testing.T) {
	w := newWorld(t)
	w.settle()
	w.podRuns()
	w.settle()
	first := w.current()

	w.renderFrom([]builders.MachineConfigOption{builders.File("/etc/motd", "another\n")})
	w.settle()
	w.wantPhase(read[mcfgv1.MachineOSBuild](w, "", first.Name), mcfgv1.MachineOSBuildInterrupted)
	if w.job(first) != nil {
		t.Error("the Job of the config before still runs")
	}
	second := w.current()
	w.wantPhase(second, mcfgv1.MachineOSBuildPrepared)
	if second.Spec.MachineConfig.Name != anotherRendered {
		t.Errorf("the build is for %s", second.Spec.MachineConfig.Name)
	}
}

func TestAnotherRenderedConfigHealsAFailedBuild(t *testing.T) {
	w := newWorld(t)
	w.settle()
	w.builderEnds(runFail)
	w.settle()
	failed := w.current()

	w.renderAgain(anotherRendered)
	w.settle()
	w.wantConditions("True Valid", "True Prepared", "False Building", "False Building")
	if w.job(failed) != nil {
		t.Error("the failed Job was not replaced")
	}
	w.builderEnds(success)
	w.settle()
	w.wantConditions("True Valid", "False Ready", "True Ready", "False BuildSuccess")
}

func TestASuccessIsKeptWhenAnotherBuildStarts(t *testing.T) {
	for name, change := range map[string]func(*world){
		"an edit":                 func(w *world) { w.edit(builders.Containerfile(withoutRun)) },
		"another rendered config": func(w *world) { w.renderAgain(anotherRendered) },
	} {
		t.Run(name, func(t *testing.T) {
			w, first := aBuiltWorld(t)
			change(w)
			w.settle()
			w.wantPhase(read[mcfgv1.MachineOSBuild](w, "", first.Name), mcfgv1.MachineOSBuildSucceeded)
			w.wantPhase(w.current(), mcfgv1.MachineOSBuildPrepared)
		})
	}
}

func TestEachOfManyChangesIsABuildOfItsOwn(t *testing.T) {
	for name, change := range map[string]func(*world, int){
		"edits":            func(w *world, number int) { w.edit(otherText(number)) },
		"rendered configs": func(w *world, number int) { w.renderAgain(fmt.Sprintf("%s%d", renderedName, number)) },
	} {
		t.Run(name, func(t *testing.T) {
			w, first := aBuiltWorld(t)
			seen := map[string]bool{first.Name: true}
			for number := range 6 {
				change(w, number)
				build := w.succeeds(digestNumber(number))
				if seen[build.Name] {
					t.Fatalf("change %d gives %s again", number, build.Name)
				}
				seen[build.Name] = true
				if got := w.config().Status.MachineOSBuild; got == nil || got.Name != build.Name {
					t.Errorf("status.machineOSBuild %+v, want %s", got, build.Name)
				}
			}
		})
	}
}

func TestATextThatIsTakenOutGivesTheFirstImage(t *testing.T) {
	w := newWorld(t)
	w.edit(func(config *mcfgv1.MachineOSConfig) { config.Spec.Containerfile = nil })
	first := w.succeeds(plainDigest)
	for number := range 2 {
		w.edit(otherText(number))
		w.succeeds(digestNumber(number))
	}
	jobs := w.made["*v1.Job"]
	w.edit(func(config *mcfgv1.MachineOSConfig) { config.Spec.Containerfile = nil })
	w.settle()
	if got := w.current().Name; got != first.Name || w.made["*v1.Job"] != jobs {
		t.Errorf("current is %s after %d further Jobs, want %s", got, w.made["*v1.Job"]-jobs, first.Name)
	}
}

func TestAnotherRepositoryIsAnotherBuild(t *testing.T) {
	w, first := aBuiltWorld(t)
	w.edit(builders.PushTo("registry.example.com/os/elsewhere:latest", "push"))
	second := w.succeeds(imageDigest)
	if image := string(second.Status.DigestedImagePushSpec); !strings.HasPrefix(image, "registry.example.com/os/elsewhere@") {
		t.Errorf("image %s", image)
	}
	w.edit(builders.PushTo(repository+":latest", "push"))
	w.settle()
	if got := w.current().Name; got != first.Name {
		t.Errorf("current is %s, want %s, which has the image", got, first.Name)
	}
}

func TestAnImageLostMeanwhileIsBuiltWhenItsConfigReturns(t *testing.T) {
	w, first := aBuiltWorld(t)
	w.edit(otherText(1))
	second := w.succeeds(digestNumber(1))
	w.gone[imageDigest] = true

	w.edit(builders.Containerfile(withRun))
	w.settle()
	// Whether it is really gone is asked twice, a minute apart.
	w.now = w.now.Add(registryDelay)
	w.settle()
	again := w.current()
	if again.Name == first.Name || inputsHashOf(again) != inputsHashOf(first) {
		t.Fatalf("current is %s of inputs %s", again.Name, inputsHashOf(again))
	}
	w.gone[imageDigest] = false
	w.succeeds(imageDigest)

	jobs := w.made["*v1.Job"]
	w.edit(otherText(1))
	w.settle()
	if got := w.current().Name; got != second.Name || w.made["*v1.Job"] != jobs {
		t.Errorf("current is %s after %d further Jobs, want %s", got, w.made["*v1.Job"]-jobs, second.Name)
	}
}

func TestARebuildMayBeAskedForAtAnyTime(t *testing.T) {
	for name, test := range map[string]struct {
		asks    func(*world)
		rebuild int
	}{
		"while a build runs":         {func(w *world) { w.podRuns(); w.settle(); w.edit(askRebuild("x")) }, 1},
		"after a failure":            {func(w *world) { w.builderEnds(runFail); w.settle(); w.edit(askRebuild("x")) }, 1},
		"together with an edit":      {func(w *world) { w.edit(askRebuild("x"), builders.Containerfile("FROM base\nRUN x\n")) }, 1},
		"with another value, before": {func(w *world) { w.edit(askRebuild("x")); w.edit(askRebuild("y")) }, 1},
		"with another value, after":  {func(w *world) { w.edit(askRebuild("x")); w.settle(); w.edit(askRebuild("y")) }, 2},
		"with the same value, again": {func(w *world) { w.edit(askRebuild("x")); w.settle(); w.edit(askRebuild("x")) }, 2},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.settle()
			test.asks(w)
			w.settle()
			build := w.current()
			if got := w.inputs(build).Rebuild; got != test.rebuild {
				t.Errorf("rebuild %d, want %d", got, test.rebuild)
			}
			if _, still := w.config().Annotations[keys.AnnotationRebuild]; still {
				t.Error("the annotation stays")
			}
			w.wantPhase(build, mcfgv1.MachineOSBuildPrepared)
			if running := w.count(&batchv1.JobList{}); running != 1 {
				t.Errorf("%d Jobs", running)
			}
		})
	}
}

func TestAPointerThatIsWrongIsPutRight(t *testing.T) {
	for name, wrong := range map[string]string{"to nothing": "no-such-build", "empty": ""} {
		t.Run(name, func(t *testing.T) {
			w, build := aBuiltWorld(t)
			w.edit(func(config *mcfgv1.MachineOSConfig) {
				metav1.SetMetaDataAnnotation(&config.ObjectMeta, keys.AnnotationCurrentMachineOSBuild, wrong)
			})
			w.settle()
			if got := w.current().Name; got != build.Name || w.count(&mcfgv1.MachineOSBuildList{}) != 1 {
				t.Errorf("current is %s, want %s and no other", got, build.Name)
			}
		})
	}
}

func TestAFormerSuccessThatIsDeletedStaysDeleted(t *testing.T) {
	w, first := aBuiltWorld(t)
	w.edit(otherText(1))
	second := w.succeeds(digestNumber(1))
	w.delete(first)
	w.settle()
	if got := w.count(&mcfgv1.MachineOSBuildList{}); got != 1 || w.current().Name != second.Name {
		t.Errorf("%d builds, current %s", got, w.current().Name)
	}
	w.pruneAfterGrace()
	if !w.gone[imageDigest] || w.gone[digestNumber(1)] {
		t.Errorf("gone are %v, want the image of the deleted build alone", w.gone)
	}
}

func TestThePullSecretsThatABuildGets(t *testing.T) {
	const base, global, push = "base.example.com", "global.example.com", "registry.example.com"
	for name, test := range map[string]struct {
		named, isThere bool
		want           []string
	}{
		"the cluster's own, where none is named": {false, true, []string{global, push}},
		"the named one comes with the cluster's": {true, true, []string{base, global, push}},
		"there is no cluster's":                  {true, false, []string{base, push}},
		"there is none at all":                   {false, false, []string{push}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, builders.DockerConfig(keys.Namespace, "base", base))
			if test.isThere {
				w.create(builders.DockerConfig(keys.Namespace, defaultGlobalPullSecret, global))
			}
			if test.named {
				w.edit(builders.BasePullSecret("base"))
			}
			w.settle()
			got := string(read[corev1.Secret](w, keys.Namespace, pullSecretName(w.current().Name)).Data[corev1.DockerConfigJsonKey])
			for _, registry := range []string{base, global, push} {
				isWanted := strings.Contains(strings.Join(test.want, " "), registry)
				if strings.Contains(got, registry) != isWanted {
					t.Errorf("credentials of %s: %t, want %t", registry, !isWanted, isWanted)
				}
			}
		})
	}
}

func TestAPoolThatIsDeletedHoldsUpNoOther(t *testing.T) {
	w := newWorld(t)
	w.poolNamed("gone", builders.PushTo("registry.example.com/os/gone:latest", "push"))
	w.settle()
	w.delete(read[mcfgv1.MachineConfigPool](w, "", "gone"))
	w.succeeds(imageDigest)
	w.wantConditions("True Valid", "False Ready", "True Ready", "False BuildSuccess")
	config := read[mcfgv1.MachineOSConfig](w, "", "gone")
	for _, condition := range config.Status.Conditions {
		if condition.Type == keys.ConditionValid && condition.Reason != "PoolNotFound" {
			t.Errorf("%+v", condition)
		}
	}
}

// TestLeftoversOfAnEarlierJobAreNotUsed has what a build of the same name left behind:
// a controller broke off before it had an owner, or the garbage collector is late.
func TestLeftoversOfAnEarlierJobAreNotUsed(t *testing.T) {
	before := newWorld(t)
	before.settle()
	name := before.current().Name

	w := newWorld(t, secret(pushSecretName(name), map[string][]byte{corev1.DockerConfigJsonKey: []byte("of before")}), configMap(requestName(name), map[string]string{"of": "before"}))
	w.settle()
	build := w.current()
	if build.Name != name {
		t.Fatalf("the build is %s, not %s", build.Name, name)
	}
	job := w.job(build)
	if isSuspended(job) {
		t.Fatal("the leftovers are in its way")
	}
	copied := read[corev1.Secret](w, keys.Namespace, pushSecretName(name))
	if !isOwnedBy(copied, job.UID) || !strings.Contains(string(copied.Data[corev1.DockerConfigJsonKey]), "registry.example.com") {
		t.Errorf("the build has the credentials of before: %v", copied.OwnerReferences)
	}
	if asked := read[corev1.ConfigMap](w, keys.Namespace, requestName(name)); !isOwnedBy(asked, job.UID) || asked.Data["of"] != "" {
		t.Errorf("the build has the request of before: %v", asked.Data)
	}
}
