package machineosbuild

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"

	"github.com/imagemode/imagemode/builder/request"
	"github.com/imagemode/imagemode/registry"
	"github.com/imagemode/imagemode/test/builders"
)

// onShelf puts an image of the current build's inputs into the registry, as if
// another pool or an earlier build had made it.
func (w *world) onShelf(build *mcfgv1.MachineOSBuild) {
	w.shelf[inputsTag(build)] = ImageFacts{Digest: imageDigest, InputsHash: inputsHashOf(build)}
}

// poolNamed adds a pool with its own rendered config, of the same content, whose
// images go to the same repository.
func (w *world) poolNamed(name string, changes ...func(*mcfgv1.MachineOSConfig)) {
	w.t.Helper()
	rendered := aRendered()
	rendered.Name = "rendered-" + name + "-" + strings.Repeat("a", 32)
	config := builders.MachineOSConfig(name, append([]func(*mcfgv1.MachineOSConfig){builders.Containerfile(withRun)}, changes...)...)
	w.create(builders.MachineConfigPool(name, builders.Rendered(rendered.Name)), rendered, config)
}

// currentOf is the build that a pool's MachineOSConfig points at.
func (w *world) currentOf(pool string) *mcfgv1.MachineOSBuild {
	w.t.Helper()
	config := read[mcfgv1.MachineOSConfig](w, "", pool)
	return read[mcfgv1.MachineOSBuild](w, "", config.Annotations["machineconfiguration.openshift.io/current-machine-os-build"])
}

func sameRepository(config *mcfgv1.MachineOSConfig) {
	config.Spec.RenderedImagePushSpec = "registry.example.com/os/worker:latest"
}

func TestAnotherRenderedConfigOfTheSameContentNeedsNoPod(t *testing.T) {
	w, first := aBuiltWorld(t)
	w.onShelf(first)

	w.renderAgain("rendered-worker-" + strings.Repeat("b", 32))
	w.settle()
	second := w.current()
	w.wantPhase(second, mcfgv1.MachineOSBuildSucceeded)
	if condition := conditionOf(second); condition.Reason != "Reused" || !strings.Contains(condition.Message, ":inputs-") {
		t.Errorf("%+v", condition)
	}
	if second.Status.Builder != nil || second.Status.DigestedImagePushSpec != first.Status.DigestedImagePushSpec {
		t.Errorf("status %+v", second.Status)
	}
	if end, start := second.Status.BuildEnd, second.Status.BuildStart; end.Sub(start.Time) != time.Second {
		t.Errorf("from %s to %s", start, end)
	}
	if facts := w.shelf[string(second.Spec.RenderedImagePushSpec)]; facts.Digest != imageDigest {
		t.Error("the image does not have the build's own tag")
	}
	if got := w.count(&batchv1.JobList{}); got != 1 {
		t.Errorf("%d Jobs", got)
	}
}

func TestARebuildWithoutProgramsIsReused(t *testing.T) {
	w := newWorld(t)
	w.edit(builders.Containerfile(withoutRun))
	w.settle()
	w.builderEnds(success)
	w.settle()
	w.onShelf(w.current())
	w.edit(askRebuild("x"))
	w.settle()
	if reason := conditionOf(w.current()).Reason; reason != "Reused" || w.inputs(w.current()).Rebuild != 1 {
		t.Errorf("reason %s, inputs %+v", reason, w.inputs(w.current()))
	}
}

func TestWhatStandsInTheWayOfReusingStartsABuild(t *testing.T) {
	for name, prepare := range map[string]func(*world, *mcfgv1.MachineOSBuild){
		"the image has another label": func(w *world, build *mcfgv1.MachineOSBuild) {
			w.shelf[inputsTag(build)] = ImageFacts{Digest: imageDigest, InputsHash: "other"}
		},
		"the registry does not answer": func(w *world, _ *mcfgv1.MachineOSBuild) {
			w.refuses = func(string, string) error { return errors.New("connection refused") }
		},
		"the image cannot be tagged": func(w *world, build *mcfgv1.MachineOSBuild) {
			w.onShelf(build)
			w.refuses = func(request, _ string) error {
				if request == "tag" {
					return errors.New("denied")
				}
				return nil
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			probe := newWorld(t)
			probe.settle()
			w := newWorld(t)
			prepare(w, probe.current())
			w.settle()
			w.wantPhase(w.current(), mcfgv1.MachineOSBuildPrepared)
			if w.job(w.current()) == nil {
				t.Error("there is no Job")
			}
		})
	}
}

func TestPoolsOfTheSameInputsBuildOnce(t *testing.T) {
	w := newWorld(t)
	w.poolNamed("infra", sameRepository)
	w.settle()
	jobs := w.count(&batchv1.JobList{})
	if jobs != 1 {
		t.Fatalf("%d Jobs for one image", jobs)
	}
	builder, waiting := w.currentOf("infra"), w.current()
	if w.job(waiting) != nil {
		builder, waiting = waiting, builder
	}
	if message := conditionOf(waiting).Message; !strings.Contains(message, "MachineOSBuild "+builder.Name+" makes the same image") {
		t.Errorf("message %q", message)
	}
	w.builderEndsFor(builder, success)
	w.onShelf(builder)
	w.now = w.now.Add(askPause)
	w.settle()
	for _, pool := range []string{"worker", "infra"} {
		w.wantPhase(w.currentOf(pool), mcfgv1.MachineOSBuildSucceeded)
	}
	if got := w.count(&batchv1.JobList{}); got != 1 {
		t.Errorf("%d Jobs", got)
	}
}

// TestARunningBuildOfTheSameImageGoesOn: a rendered config that changes nothing in
// the image throws no work away, whichever way that ends.
func TestARunningBuildOfTheSameImageGoesOn(t *testing.T) {
	for name, result := range map[string]request.Result{"and is taken": success, "and fails": runFail} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.settle()
			first := w.current()
			w.renderAgain(anotherRendered)
			w.settle()
			second := w.current()
			if first = read[mcfgv1.MachineOSBuild](w, "", first.Name); second.Name == first.Name || isTerminal(first) || w.job(first) == nil {
				t.Fatalf("%s is %s, current is %s", first.Name, phaseOf(first), second.Name)
			}
			if message := conditionOf(second).Message; w.job(second) != nil || !strings.Contains(message, "MachineOSBuild "+first.Name+" makes the same image") {
				t.Errorf("it does not wait: %q", message)
			}
			w.builderEndsFor(first, result)
			if result.Failure != nil {
				w.settle()
				if w.job(second) == nil {
					t.Error("it still waits")
				}
				return
			}
			w.onShelf(first)
			w.settle()
			w.wantPhase(w.current(), mcfgv1.MachineOSBuildSucceeded)
			if reason := conditionOf(w.current()).Reason; reason != reasonReused || w.made["*v1.Job"] != 1 {
				t.Errorf("reason %s, %d Jobs", reason, w.made["*v1.Job"])
			}
		})
	}
}

func TestATwinThatFailsLeavesTheBuildToTheOther(t *testing.T) {
	w := newWorld(t)
	w.poolNamed("infra", sameRepository)
	w.settle()
	builder, waiting := w.currentOf("infra"), w.current()
	if w.job(waiting) != nil {
		builder, waiting = waiting, builder
	}
	w.builderEndsFor(builder, runFail)
	w.settle()
	if w.job(waiting) == nil {
		t.Error("it still waits")
	}
}

// TestALostImageIsBuiltAgain takes the image out of the registry.
func TestALostImageIsBuiltAgain(t *testing.T) {
	w, first := aBuiltWorld(t)
	w.gone[imageDigest] = true

	w.settle()
	w.wantConditions("True Valid", "False Ready", "True Ready", "False BuildSuccess")
	w.now = w.now.Add(watchInterval)
	w.round()
	if got := w.current().Name; got != first.Name {
		t.Fatal("it is built again though the registry said so only once")
	}
	if message := w.condition("Ready").Message; !strings.Contains(message, "does not have it any more") {
		t.Errorf("message %q", message)
	}
	w.now = w.now.Add(registryDelay)
	w.settle()
	second := w.current()
	if second.Name == first.Name || w.inputs(second).Attempt != 1 || inputsHashOf(second) != inputsHashOf(first) {
		t.Fatalf("current is %s, inputs %+v", second.Name, w.inputs(second))
	}
	w.wantPhase(second, mcfgv1.MachineOSBuildPrepared)
	w.gone[imageDigest] = false
	w.builderEnds(success)
	w.settle()
	w.wantConditions("True Valid", "False Ready", "True Ready", "False BuildSuccess")
}

func TestAnImageThatIsHiddenIsNotLost(t *testing.T) {
	for name, refuses := range map[string]func(request, image string) error{
		"the registry is down": func(string, string) error {
			return &registry.Error{Class: request.Network, Err: errors.New("connection refused")}
		},
		"the nodes may not see it": func(asked, image string) error {
			if asked == "read" && !strings.Contains(image, ":inputs-") {
				return &registry.Error{Class: request.Image, Err: errors.New("manifest unknown")}
			}
			return nil
		},
		"the push secret is refused": func(string, string) error {
			return &registry.Error{Class: request.Authentication, Err: errors.New("unauthorized")}
		},
	} {
		t.Run(name, func(t *testing.T) {
			w, first := aBuiltWorld(t)
			w.refuses = refuses
			for range 5 {
				w.now = w.now.Add(watchInterval)
				w.settle()
			}
			if got := w.current(); got.Name != first.Name || !hasImage(got) {
				t.Errorf("current is %s", got.Name)
			}
		})
	}
}

func TestAnImageIsLookedUpEveryTenMinutes(t *testing.T) {
	w, _ := aBuiltWorld(t)
	before := w.asked
	for range 9 {
		w.now = w.now.Add(time.Minute)
		w.round()
	}
	if w.asked != before {
		t.Errorf("%d requests within ten minutes", w.asked-before)
	}
	w.now = w.now.Add(2 * time.Minute)
	w.round()
	if w.asked != before+1 {
		t.Errorf("%d requests after ten minutes", w.asked-before)
	}
}

func TestTheQueueHasAnOrder(t *testing.T) {
	build := func(name string, age int, why string) *mcfgv1.MachineOSBuild {
		made := builders.MachineOSBuild(name)
		made.CreationTimestamp.Time = someTime.Add(time.Duration(age) * time.Second)
		made.Annotations = map[string]string{"imagemode.dev/build-reason": fmt.Sprintf(`[{"input":%q}]`, why)}
		return made
	}
	first, second := build("automatic-a", 1, "baseImage"), build("automatic-b", 2, "renderedMachineConfig")
	asked := build("asked", 3, "containerfile")
	q := newQueue(2)
	var woken []string
	q.wake = func(builds ...string) { woken = append(woken, builds...) }
	running := []string{"one", "two"}
	for _, waiting := range []*mcfgv1.MachineOSBuild{first, second, asked} {
		if q.ask(waiting, running).granted {
			t.Errorf("%s may start beside two others", waiting.Name)
		}
	}
	q.leave("one")
	if len(woken) != 1 || woken[0] != "asked" {
		t.Errorf("woken: %v", woken)
	}
	running = []string{"two"}
	if q.ask(first, running).granted || !q.ask(asked, running).granted || q.ask(first, running).granted {
		t.Error("what a user asked for does not go first")
	}
	q.leave("two")
	if !q.ask(first, []string{"asked"}).granted || q.ask(second, []string{"asked"}).granted {
		t.Error("the older does not go before the younger")
	}
	q.leave("unknown")
	q.leave("asked")
	if !q.ask(second, nil).granted {
		t.Error("the last one does not start")
	}
}

func TestAtMostSoManyBuildsAtATime(t *testing.T) {
	w := newWorld(t)
	w.start(func(options *Options) { options.MaxConcurrentBuilds = 2 })
	pools := []string{"worker"}
	for i := range 4 {
		pools = append(pools, fmt.Sprintf("pool-%d", i))
		w.poolNamed(pools[i+1])
	}
	w.settle()
	for ended := 0; ended < len(pools); {
		running := 0
		for _, pool := range pools {
			if build := w.currentOf(pool); w.job(build) != nil && !isTerminal(build) {
				running++
			}
		}
		if want := min(2, len(pools)-ended); running != want {
			t.Fatalf("%d builds run after %d have ended, want %d", running, ended, want)
		}
		for _, pool := range pools {
			if build := w.currentOf(pool); w.job(build) != nil && !isTerminal(build) {
				w.builderEndsFor(build, success)
				ended++
				break
			}
		}
		w.settle()
	}
}
