package machineosbuild

import (
	"fmt"
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"

	keys "github.com/imagemode/imagemode/api/machineconfiguration"
	"github.com/imagemode/imagemode/builder/request"
	"github.com/imagemode/imagemode/test/builders"
)

// renderFrom gives the pool a rendered config with options, and sources.
func (w *world) renderFrom(options []builders.MachineConfigOption, sources ...*mcfgv1.MachineConfig) {
	w.t.Helper()
	rendered := builders.MachineConfig(anotherRendered, "worker", options...)
	rendered.Spec.OSImageURL = baseImage
	w.create(rendered)
	w.updatePool(func(pool *mcfgv1.MachineConfigPool) {
		pool.Spec.Configuration.Name = anotherRendered
		pool.Spec.Configuration.Source = nil
		for _, source := range sources {
			pool.Spec.Configuration.Source = append(pool.Spec.Configuration.Source, corev1.ObjectReference{Name: source.Name})
		}
	})
	for _, source := range sources {
		w.create(source)
	}
}

func TestAConfigThatNoImageCanHoldFailsWithoutAPod(t *testing.T) {
	file := func(path string) builders.MachineConfigOption { return builders.File(path, "x\n") }
	for sentence, test := range map[string]struct {
		rendered []builders.MachineConfigOption
		sources  []*mcfgv1.MachineConfig
		says     string
	}{
		"paths that exclude each other": {
			[]builders.MachineConfigOption{file("/etc/a"), file("/etc/a/b")},
			[]*mcfgv1.MachineConfig{
				builders.MachineConfig("50-one", "worker", file("/etc/a")), builders.MachineConfig("51-other", "worker", file("/etc/ab")),
				builders.MachineConfig("60-two", "worker", file("/etc/a/b")),
			},
			"MachineConfigs 50-one, 60-two: /etc/a/b: it is below /etc/a, which is a file in the same config",
		},
		"a kernel argument with an open quote": {
			[]builders.MachineConfigOption{builders.KernelArguments("quiet", `a="b c`)},
			[]*mcfgv1.MachineConfig{
				builders.MachineConfig("50-quiet", "worker", builders.KernelArguments("quiet")), builders.MachineConfig("60-quote", "worker", builders.KernelArguments(`a="b c`)),
			},
			`MachineConfig 60-quote: kernelArguments: kernel argument "a=\"b c": a double quote is not closed`,
		},
		"a path that no image has, of a MachineConfig that is gone": {
			[]builders.MachineConfigOption{file("/run/a")}, nil, "MachineConfig " + anotherRendered + ": /run/a: /run is empty at every boot",
		},
	} {
		t.Run(sentence, func(t *testing.T) {
			w := newWorld(t)
			w.renderFrom(test.rendered, test.sources...)
			w.settle()
			failed := w.current()
			w.wantPhase(failed, mcfgv1.MachineOSBuildFailed)
			w.wantConditions("True Valid", "False Config", "False BuildFailed", "True BuildFailed")
			if message := w.condition(keys.ConditionImageBuildDegraded).Message; !strings.Contains(message, test.says) {
				t.Errorf("message %q, want %q", message, test.says)
			}
			if got := w.made["*v1.Job"]; got != 0 || w.count(&batchv1.JobList{}) != 0 {
				t.Errorf("%d Jobs were made", got)
			}
			w.updatePool(func(pool *mcfgv1.MachineConfigPool) { pool.Spec.Configuration.Name = renderedName })
			w.settle()
			w.wantPhase(w.current(), mcfgv1.MachineOSBuildPrepared)
		})
	}
}

// TestWhatOnlyTheBaseImageCouldTellNamesItsMachineConfig has a builder find it.
func TestWhatOnlyTheBaseImageCouldTellNamesItsMachineConfig(t *testing.T) {
	for message, want := range map[string]string{
		"the Ignition config cannot be put in an image: a.service: enabled: neither the config nor the base image has this unit": "; it comes from MachineConfig 50-unit",
		`spec.extensions: the extensions image of this OS stream has no "usbgard"; it has usbguard`:                              "; it comes from MachineConfig 60-extension",
		"kernelArguments.shouldNotExist: the base image does not set \"a\"":                                                      "",
	} {
		failure := request.Failure{Class: request.Config, Step: "configs", Message: message}
		s := aBuildScope(mcfgv1.MachineOSBuilding, withJob(resumed), withPods(aPod(reported(request.Result{Failure: &failure}))), func(s *buildScope) {
			s.owner.sources = []*mcfgv1.MachineConfig{
				builders.MachineConfig("50-unit", "worker", builders.Unit("a.service", "")), builders.MachineConfig("60-extension", "worker", builders.Extensions("usbgard")),
				builders.MachineConfig("70-other", "worker", builders.File("/etc/a", "")),
			}
		})
		got := nextStep(s)
		if got.action != finish || got.state.reason != string(request.Config) || !strings.HasSuffix(got.state.message, message+want) {
			t.Errorf("%s: %+v", message, got.state)
		}
	}
}

func TestManyProblemsAreCut(t *testing.T) {
	var files []builders.MachineConfigOption
	for number := range 30 {
		files = append(files, builders.File(fmt.Sprintf("/run/%d", number), ""))
	}
	s := aScope(func(s *scope) {
		s.rendered.Spec.Config.Raw = builders.MachineConfig("x", "worker", files...).Spec.Config.Raw
	})
	message := s.failureOf(s.configMistake()).Message
	if got := strings.Count(message, "/run is empty"); got != maxProblems || !strings.HasSuffix(message, "; and 20 more") {
		t.Errorf("%d problems in %q", got, message)
	}
}

func TestKeysThatIgnitionDoesNotKnowAreToldAndBlockNothing(t *testing.T) {
	w := newWorld(t)
	recorder := events.NewFakeRecorder(1000)
	w.configs.events = reporter{recorder}
	const misspelt = `{"ignition":{"version":"3.4.0"},"strage":{"files":[]},"storage":{"files":[{"path":"/etc/a","contnts":{}}]}}`
	w.renderFrom([]builders.MachineConfigOption{builders.File("/etc/a", "")},
		builders.MachineConfig("50-right", "worker", builders.File("/etc/motd", "hello")),
		builders.MachineConfig("60-wrong", "worker", builders.Ignition(misspelt)))
	w.settle()
	w.wantConditions("True Valid", "True Prepared", "False Building", "False Building")
	const want = "strage, storage.files.0.contnts of MachineConfig 60-wrong"
	message := w.condition(keys.ConditionValid).Message
	if !strings.Contains(message, want) && !strings.Contains(message, "storage.files.0.contnts, strage of MachineConfig 60-wrong") || strings.Contains(message, "50-right") {
		t.Errorf("message %q, want %q", message, want)
	}
	w.builderEnds(success)
	w.settle()
	w.wantConditions("True Valid", "False Ready", "True Ready", "False BuildSuccess")

	source := read[mcfgv1.MachineConfig](w, "", "60-wrong")
	source.Spec.Config.Raw = []byte(`{"ignition":{"version":"3.4.0"}}`)
	if err := w.client.Update(t.Context(), source); err != nil {
		t.Fatal(err)
	}
	w.settle()
	if message := w.condition(keys.ConditionValid).Message; strings.Contains(message, "60-wrong") {
		t.Errorf("message %q after the correction", message)
	}
	close(recorder.Events)
	told := 0
	for event := range recorder.Events {
		if strings.HasPrefix(event, "Warning UnknownKeys ") && strings.Contains(event, "of MachineConfig 60-wrong") {
			told++
		}
	}
	if told != 1 {
		t.Errorf("%d events tell of it, want one", told)
	}
}

func TestManyUnknownKeysAreCut(t *testing.T) {
	keysOf := func(name string) *mcfgv1.MachineConfig {
		return builders.MachineConfig(name, "worker", builders.Ignition(`{"ignition":{"version":"3.4.0"},"a":1,"b":1,"c":1,"d":1,"`+name+`":1}`))
	}
	s := aScope(func(s *scope) {
		s.sources = []*mcfgv1.MachineConfig{keysOf("50-one"), keysOf("60-two"), keysOf("70-three")}
	})
	if got := s.unknownKeys(); strings.Count(got, ",")+1 != maxUnknownKeys || !strings.Contains(got, "50-one") || !strings.HasSuffix(got, "and 10 more") {
		t.Errorf("%q", got)
	}
}

// TestAMachineConfigWakesTheConfigsOfItsPools: only its own rendered config would be
// too few, since a key that nobody knows changes none.
func TestAMachineConfigWakesTheConfigsOfItsPools(t *testing.T) {
	w := newWorld(t)
	w.poolNamed("infra")
	w.updatePool(func(pool *mcfgv1.MachineConfigPool) {
		pool.Spec.Configuration.Source = []corev1.ObjectReference{{Name: "50-part"}}
	})
	for name, want := range map[string]int{"50-part": 1, "51-stranger": 0} {
		var changed client.Object = builders.MachineConfig(name, "worker")
		got := w.configs.requestsForMachineConfig(t.Context(), changed)
		if len(got) != want || want == 1 && got[0].Name != "worker" {
			t.Errorf("%s wakes %v", name, got)
		}
	}
}
