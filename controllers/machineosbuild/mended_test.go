package machineosbuild

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"

	keys "github.com/imagemode/imagemode/api/machineconfiguration"
	"github.com/imagemode/imagemode/builder/request"
	"github.com/imagemode/imagemode/test/builders"
)

// attemptFails lets one pod of the current build's Job fail, after which the Job makes
// another one.
func (w *world) attemptFails(class request.FailureClass) {
	w.t.Helper()
	build := w.current()
	pod := w.podRunsFor(build)
	reported(failsWith(class))(pod)
	w.updateStatus(pod)
	job := w.job(build)
	job.Status.Failed++
	w.updateStatus(job)
}

func TestACorrectionReachesTheNextAttemptAtOnce(t *testing.T) {
	for name, correct := range map[string]func(*world){
		"a secret": func(w *world) { w.replaceSecret("push") },
		"a certificate": func(w *world) {
			w.create(configMap(keys.ConfigMapTrustBundle, map[string]string{keys.KeyTrustBundle: "PEM"}))
		},
	} {
		for when, happens := range map[string]func(*world){
			"after an attempt": func(w *world) { w.attemptFails(request.Network); w.settle(); correct(w) },
			"during it":        func(w *world) { correct(w); w.settle(); w.attemptFails(request.Network) },
		} {
			t.Run(name+" is corrected "+when, func(t *testing.T) {
				w := newWorld(t)
				w.settle()
				first := w.current()
				happens(w)
				w.settle()
				second := w.current()
				if second.Name == first.Name {
					t.Fatal("what was corrected waits for the attempts to be used up")
				}
				w.wantPhase(second, mcfgv1.MachineOSBuildPrepared)
				if inputsHashOf(second) != inputsHashOf(first) {
					t.Error("it is said to be another image")
				}
				if w.job(first) != nil {
					t.Error("the Job with the old copies goes on")
				}
				first = read[mcfgv1.MachineOSBuild](w, "", first.Name)
				w.wantPhase(first, mcfgv1.MachineOSBuildFailed)
				for _, part := range []string{"was changed meanwhile", "it did not work"} {
					if message := conditionOf(first).Message; !strings.Contains(message, part) {
						t.Errorf("message %q does not say %q", message, part)
					}
				}
				if name == "a secret" {
					copied := read[corev1.Secret](w, keys.Namespace, pushSecretName(second.Name))
					if !strings.Contains(string(copied.Data[corev1.DockerConfigJsonKey]), "other.example.com") {
						t.Error("the new build has the old credentials")
					}
				}
				w.builderEnds(success)
				w.settle()
				w.wantConditions("True Valid", "False Ready", "True Ready", "False BuildSuccess")
			})
		}
	}
}

func TestWhatIsNoCorrectionLetsTheAttemptsGoOn(t *testing.T) {
	for name, happens := range map[string]func(*world){
		"nothing changed": func(w *world) { w.attemptFails(request.Network) },
		"the secret was damaged": func(w *world) {
			w.attemptFails(request.Network)
			w.setSecret("push", `{"auths":{"registry.example.com":{"auth":"!!!"}}}`)
		},
		"a pod was moved away": func(w *world) {
			pod := w.podRuns()
			ended(137, "")(pod)
			disrupted(pod)
			w.updateStatus(pod)
			w.replaceSecret("push")
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.settle()
			first := w.current()
			happens(w)
			w.settle()
			if got := w.current(); got.Name != first.Name || isTerminal(got) || w.job(got) == nil {
				t.Errorf("current is %s (%s)", got.Name, phaseOf(got))
			}
		})
	}
}

// TestWhichFailuresAPodMoreDoesNotMend lets the first pod of a build fail.
func TestWhichFailuresAPodMoreDoesNotMend(t *testing.T) {
	final := []request.FailureClass{request.Authentication, request.Config}
	for _, class := range classes {
		t.Run(string(class), func(t *testing.T) {
			w := newWorld(t)
			w.settle()
			first := w.current()
			w.attemptFails(class)
			w.settle()
			want := mcfgv1.MachineOSBuilding
			if slices.Contains(final, class) {
				want = mcfgv1.MachineOSBuildFailed
			}
			w.wantPhase(w.current(), want)
			if got := w.current(); got.Name != first.Name || (&request.Failure{Class: class}).IsFinal() != isTerminal(got) {
				t.Errorf("current is %s (%s)", got.Name, phaseOf(got))
			}
		})
	}
}

// setSecret gives a Secret a content, as a user does.
func (w *world) setSecret(name, config string) {
	w.t.Helper()
	found := read[corev1.Secret](w, keys.Namespace, name)
	found.Data = map[string][]byte{corev1.DockerConfigJsonKey: []byte(config)}
	if err := w.client.Update(w.t.Context(), found); err != nil {
		w.t.Fatal(err)
	}
}

func TestARefusalNamesTheSecretThatWasUsed(t *testing.T) {
	const pushed = "registry.example.com/os/worker"
	for sentence, test := range map[string]struct {
		repository string
		class      request.FailureClass
		secrets    map[string]string
		says       string
	}{
		"a push": {
			pushed, request.Authentication, map[string]string{"push": "registry.example.com/os", "base": pushed},
			`it was asked with the entry for registry.example.com/os in secret "push" (spec.renderedImagePushSecret.name): correct that`,
		},
		"a pull": {
			"base.example.com/os/base", request.Authentication, map[string]string{"push": "registry.example.com", "base": "base.example.com"},
			`the entry for base.example.com in secret "base" (spec.baseImagePullSecret.name)`,
		},
		"a pull with the push secret": {
			"registry.example.com/os/base", request.Authentication, map[string]string{"push": "registry.example.com", "base": "base.example.com"},
			`the entry for registry.example.com in secret "push" (spec.renderedImagePushSecret.name)`,
		},
		"a pull with the cluster's own": {
			"other.example.com/os/base", request.Authentication, map[string]string{"push": "registry.example.com", defaultGlobalPullSecret: "other.example.com"},
			`the entry for other.example.com in secret "global-pull-secret-copy" (--global-pull-secret)`,
		},
		"the nearer entry of a later Secret": {
			"base.example.com/os/base", request.Authentication, map[string]string{"push": "base.example.com/os", "base": "base.example.com"},
			`the entry for base.example.com/os in secret "push"`,
		},
		"a pull that none has an entry for": {
			"none.example.com/os/base", request.Authentication, map[string]string{"push": "registry.example.com", "base": "base.example.com"},
			`without credentials, since there is no entry for none.example.com/os/base in secret "base" (spec.baseImagePullSecret.name), secret "push" (spec.renderedImagePushSecret.name): add one`,
		},
		"a push that the push secret has no entry for": {
			pushed, request.Authentication, map[string]string{"push": "elsewhere.example.com", "base": "registry.example.com"},
			`no entry for registry.example.com/os/worker in secret "push" (spec.renderedImagePushSecret.name): add one`,
		},
		"a failure that is not about credentials": {pushed, request.Network, map[string]string{"push": "registry.example.com"}, ""},
		"one that does not say of what":           {"", request.Authentication, map[string]string{"push": "registry.example.com"}, ""},
	} {
		t.Run(sentence, func(t *testing.T) {
			failure := request.Failure{Class: test.class, Step: "base", Message: "authentication required", Repository: test.repository}
			pod := aPod(reported(request.Result{Failure: &failure}))
			s := aBuildScope(mcfgv1.MachineOSBuilding, withJob(jobEnded("Failed", "PodFailurePolicy")), withPods(pod), func(s *buildScope) {
				builders.BasePullSecret("base")(s.owner.config)
				s.owner.secrets = map[string]*corev1.Secret{}
				for name, entry := range test.secrets {
					s.owner.secrets[name] = builders.DockerConfig(keys.Namespace, name, entry)
				}
			})
			said := nextStep(s).state
			if said == nil || said.phase != mcfgv1.MachineOSBuildFailed || !strings.Contains(said.message, test.says) {
				t.Fatalf("it says %+v, want %q", said, test.says)
			}
			if test.says == "" && !strings.HasSuffix(said.message, "authentication required") {
				t.Errorf("it says %q", said.message)
			}
			for _, found := range s.owner.secrets {
				var content struct {
					Auths map[string]struct{ Auth string }
				}
				if err := json.Unmarshal(found.Data[corev1.DockerConfigJsonKey], &content); err != nil {
					t.Fatal(err)
				}
				for _, entry := range content.Auths {
					if entry.Auth == "" || strings.Contains(said.message, entry.Auth) {
						t.Errorf("content %q is shown: %s", entry.Auth, said.message)
					}
				}
			}
		})
	}
}

func TestADamagedEntryIsNamedAndWaitedFor(t *testing.T) {
	w := newWorld(t)
	w.setSecret("push", `{"auths":{"registry.example.com":{"auth":"!!!"}}}`)
	w.settle()
	w.wantConditions("False SecretInvalid", "False SecretInvalid", "False SecretInvalid", "False SecretInvalid")
	message := w.condition(keys.ConditionValid).Message
	for _, part := range []string{`spec.renderedImagePushSecret.name: secret "push"`, "key .dockerconfigjson", "entry for registry.example.com ", "not base64"} {
		if !strings.Contains(message, part) {
			t.Errorf("message %q does not say %q", message, part)
		}
	}
	if strings.Contains(message, "!!!") {
		t.Errorf("content is shown: %s", message)
	}
	if got := w.count(&mcfgv1.MachineOSBuildList{}); got != 0 {
		t.Errorf("%d builds", got)
	}
	w.replaceSecret("push")
	w.settle()
	w.wantConditions("True Valid", "True Prepared", "False Building", "False Building")
}

// TestADamagedEntryOfTheClustersSecretHoldsUpNothing: it may be about a registry that
// no pool has anything in.
func TestADamagedEntryOfTheClustersSecretHoldsUpNothing(t *testing.T) {
	global := builders.DockerConfig(keys.Namespace, defaultGlobalPullSecret, "other.example.com")
	global.Data[corev1.DockerConfigJsonKey] = []byte(`{"auths":{"other.example.com":{"auth":"!!!"},"good.example.com":{"auth":"dXNlcjpwYXNz"}}}`)
	w := newWorld(t, global)
	w.settle()
	w.wantConditions("True Valid", "True Prepared", "False Building", "False Building")
	copied := read[corev1.Secret](w, keys.Namespace, pullSecretName(w.current().Name))
	if !strings.Contains(string(copied.Data[corev1.DockerConfigJsonKey]), "good.example.com") {
		t.Error("its other entries are not used either")
	}
}

func TestARefusalIsTriedAgainAtOnceWhenASecretChanges(t *testing.T) {
	w := newWorld(t)
	w.settle()
	w.attemptFails(request.Authentication)
	w.settle()
	first := w.current()
	w.wantPhase(first, mcfgv1.MachineOSBuildFailed)
	w.now = w.now.Add(firstRetry / 2)
	w.settle()
	if got := w.current().Name; got != first.Name {
		t.Fatal("the same password is tried again at once")
	}
	again := "it is tried again at " + first.Status.BuildEnd.Add(firstRetry).UTC().Format(time.RFC3339) + ", and at once when a Secret that it uses is corrected"
	if message := w.condition(keys.ConditionReady).Message; !strings.HasSuffix(message, again) {
		t.Errorf("Ready does not say %q: %s", again, message)
	}
	w.replaceSecret("push")
	w.settle()
	if got := w.current().Name; got == first.Name {
		t.Error("the corrected secret is not tried")
	}
}
