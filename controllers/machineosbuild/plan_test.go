package machineosbuild

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"

	keys "github.com/imagemode/imagemode/api/machineconfiguration"
	"github.com/imagemode/imagemode/test/builders"
)

func TestDecide(t *testing.T) {
	for name, test := range map[string]struct {
		scope    *scope
		decision decision
		// reason of the problem; "": none.
		reason string
		// says is part of the problem's message.
		says string
		// stands is true when the build is one that exists.
		stands bool
	}{
		"everything is there: a build": {
			scope: aScope(), decision: Build,
		},
		"no Containerfile is a build too": {
			scope: aScope(func(s *scope) { s.config.Spec.Containerfile = nil }), decision: Build,
		},
		"without the pool there is nothing to build": {
			scope: aScope(func(s *scope) { s.pool, s.rendered = nil, nil }), decision: Wait, reason: "PoolNotFound",
			says: `MachineOSConfig worker: spec.machineConfigPool.name: MachineConfigPool "worker" not found; create it`,
		},
		"one node that is the control plane has images of its own pool only": {
			scope:    aScope(func(s *scope) { s.onlyNode = "n1" }),
			decision: Invalid, reason: reasonSingleNode, says: "this cluster has a single node, n1, and only its control-plane pool can have an image; MachineConfigPool worker is another",
		},
		"and of that it has": {
			scope: aScope(func(s *scope) {
				s.onlyNode = "n1"
				s.pool.Spec.NodeSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"node-role.kubernetes.io/control-plane": ""}}
			}), decision: Build,
		},
		"what leaves a cluster with one node may leave": {
			scope: aScope(func(s *scope) { s.onlyNode = "n1"; s.config.DeletionTimestamp = &metav1.Time{} }), decision: Build,
		},
		"another builder is waited for": {
			scope:    aScope(func(s *scope) { s.rivals.Builder = true }),
			decision: Wait, reason: reasonUpdaterConflict, says: "Deployment machine-os-builder",
		},
		"another updater of nodes keeps no image from being built": {
			scope: aScope(func(s *scope) { s.rivals.Daemon, s.isRollingOut = true, true }), decision: Build,
		},
		"a pool that was not rendered is waited for": {
			scope:    aScope(func(s *scope) { s.pool.Spec.Configuration.Name, s.rendered = "", nil }),
			decision: Wait, reason: reasonWaitingForRender, says: "MachineConfigPool worker has no rendered config yet",
		},
		"a rendered config that is not there is waited for": {
			scope: aScope(func(s *scope) { s.rendered = nil }), decision: Wait, reason: reasonWaitingForRender, says: renderedName,
		},
		"a rendered config without base image is waited for": {
			scope:    aScope(spec(func(spec *mcfgv1.MachineConfigSpec) { spec.OSImageURL = "" })),
			decision: Wait, reason: "BaseImageMissing", says: "spec.osImageURL is empty",
		},
		"a base image by tag is refused": {
			scope:    aScope(spec(func(spec *mcfgv1.MachineConfigSpec) { spec.OSImageURL = "registry.example.com/os/base:latest" })),
			decision: Invalid, reason: "BaseImageNotByDigest", says: `"registry.example.com/os/base:latest" is not by digest`,
		},
		"an Ignition config that is not JSON is refused": {
			scope:    aScope(spec(func(spec *mcfgv1.MachineConfigSpec) { spec.Config.Raw = []byte("{") })),
			decision: Invalid, reason: "RenderedConfigInvalid",
		},
		"a Containerfile for other architectures only is refused": {
			scope:    aScope(func(s *scope) { s.config.Spec.Containerfile[0].ContainerfileArch = mcfgv1.Arm64 }),
			decision: Invalid, reason: "ContainerfileArchitecture", says: "add one with containerfileArch AMD64 or NoArch",
		},
		"extensions without an extensions image are refused": {
			scope: aScope(spec(func(spec *mcfgv1.MachineConfigSpec) {
				spec.BaseOSExtensionsContainerImage, spec.Extensions = "", []string{"usbguard"}
			})),
			decision: Invalid, reason: "ExtensionsImageMissing",
		},
		"another kernel without an extensions image is refused": {
			scope: aScope(spec(func(spec *mcfgv1.MachineConfigSpec) {
				spec.BaseOSExtensionsContainerImage, spec.KernelType = "", "realtime"
			})),
			decision: Invalid, reason: "ExtensionsImageMissing",
		},
		"a Containerfile that uses the extensions image needs it by digest": {
			scope: aScope(text(withExtensions), spec(func(spec *mcfgv1.MachineConfigSpec) {
				spec.BaseOSExtensionsContainerImage = "registry.example.com/os/extensions:latest"
			})),
			decision: Invalid, reason: "ExtensionsImageNotByDigest",
		},
		"an extensions image that nothing uses may be missing": {
			scope:    aScope(spec(func(spec *mcfgv1.MachineConfigSpec) { spec.BaseOSExtensionsContainerImage = "" })),
			decision: Build,
		},
		"two levels of namespace cannot be named by digest": {
			scope:    aScope(func(s *scope) { builders.PushTo("registry.example.com/a/b/worker:latest", "push")(s.config) }),
			decision: Invalid, reason: "PushSpecInvalid", says: "host[:port]/namespace/name",
		},
		"upper-case letters are refused, with the field": {
			scope:    aScope(func(s *scope) { builders.PushTo("registry.example.com/OS/worker:latest", "push")(s.config) }),
			decision: Invalid, reason: "PushSpecInvalid", says: `spec.renderedImagePushSpec: "registry.example.com/OS/worker": registries take lower-case letters only; write registry.example.com/os/worker`,
		},
		"a port that TCP does not have is refused": {
			scope:    aScope(func(s *scope) { builders.PushTo("registry.example.com:99999/os/worker:latest", "push")(s.config) }),
			decision: Invalid, reason: "PushSpecInvalid", says: "spec.renderedImagePushSpec: \"registry.example.com:99999/os/worker\": 99999 is no port; they go from 1 to 65535",
		},
		"two marks in a row are refused": {
			scope:    aScope(func(s *scope) { builders.PushTo("registry.example.com/os/a..b:latest", "push")(s.config) }),
			decision: Invalid, reason: "PushSpecInvalid", says: "spec.renderedImagePushSpec: \"registry.example.com/os/a..b\" is not host[:port]/path",
		},
		"a missing push secret is named": {
			scope: aScope(func(s *scope) { s.secrets = nil }), decision: Wait, reason: "SecretNotFound",
			says: `MachineOSConfig worker: spec.renderedImagePushSecret.name: secret "push" not found in namespace ` + keys.Namespace +
				`; create it (type kubernetes.io/dockerconfigjson)`,
		},
		"a missing pull secret is named": {
			scope:    aScope(func(s *scope) { builders.BasePullSecret("base")(s.config) }),
			decision: Wait, reason: "SecretNotFound", says: `spec.baseImagePullSecret.name: secret "base" not found`,
		},
		"a secret of another type is not used": {
			scope:    aScope(func(s *scope) { s.secrets["push"].Type = corev1.SecretTypeOpaque }),
			decision: Wait, reason: "SecretInvalid", says: `its type is "Opaque"`,
		},
		"a Containerfile with a mistake is a build, that will fail": {
			scope: aScope(text(withMistake)), decision: Build,
		},
		"so it is without secrets": {
			scope: aScope(text(withMistake), func(s *scope) { s.secrets = nil }), decision: Build, reason: "SecretNotFound",
		},
		"a build that was just created stands": {
			scope: aScope(built("")), decision: Build, stands: true,
		},
		"a build that runs stands": {
			scope: aScope(built(mcfgv1.MachineOSBuilding)), decision: Build, stands: true,
		},
		"a build that runs does not mind a deleted secret": {
			scope:    aScope(built(mcfgv1.MachineOSBuilding), func(s *scope) { s.secrets = nil }),
			decision: Build, reason: "SecretNotFound", stands: true,
		},
		"a build that failed stands until something changes": {
			scope: aScope(built(mcfgv1.MachineOSBuildFailed)), decision: Build, stands: true,
		},
		"a build that was interrupted stands": {
			scope: aScope(built(mcfgv1.MachineOSBuildInterrupted)), decision: Build, stands: true,
		},
		"a build that succeeded is used again": {
			scope: aScope(built(mcfgv1.MachineOSBuildSucceeded)), decision: Reuse, stands: true,
		},
		"an image stays usable when the push secret goes": {
			scope:    aScope(built(mcfgv1.MachineOSBuildSucceeded), func(s *scope) { s.secrets = nil }),
			decision: Reuse, reason: "SecretNotFound", stands: true,
		},
		"an edit is another build": {
			scope: aScope(built(mcfgv1.MachineOSBuildSucceeded), text(withoutRun)), decision: Build,
		},
		"an edit that is taken back finds the earlier build": {
			scope:    aScope(built(mcfgv1.MachineOSBuildSucceeded), text(withoutRun), built(mcfgv1.MachineOSBuilding), text(withRun)),
			decision: Reuse, stands: true,
		},
		"a failed build is tried again when its inputs come back": {
			scope:    aScope(built(mcfgv1.MachineOSBuildFailed), text(withoutRun), built(mcfgv1.MachineOSBuilding), text(withRun)),
			decision: Build,
		},
		"a build about to be interrupted is not waited for": {
			scope:    aScope(built(mcfgv1.MachineOSBuilding), superseded, text(withoutRun), built(mcfgv1.MachineOSBuilding), text(withRun)),
			decision: Build,
		},
		"a rebuild is another build": {
			scope: aScope(built(mcfgv1.MachineOSBuildSucceeded), annotated(keys.AnnotationRebuild, "")), decision: Build,
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := decide(test.scope)
			if got.decision != test.decision {
				t.Errorf("decision %s, want %s (problem %+v)", got.decision, test.decision, got.problem)
			}
			reason, message := "", ""
			if got.problem != nil {
				reason, message = got.problem.reason, got.problem.message
			}
			if reason != test.reason {
				t.Errorf("reason %q, want %q", reason, test.reason)
			}
			if !strings.Contains(message, test.says) {
				t.Errorf("message %q does not say %q", message, test.says)
			}
			if (got.build != nil) != test.stands {
				t.Errorf("build %v, want one that exists: %t", got.build, test.stands)
			}
			if planned := got.decision == Build || got.decision == Reuse; planned != (got.blueprint != nil) {
				t.Errorf("%s has blueprint %v", got.decision, got.blueprint)
			}
		})
	}
}

func TestEveryRuleSaysWhatItIsAbout(t *testing.T) {
	for _, rule := range append(preconditions, secretRules...) {
		if rule.says == "" || rule.check == nil {
			t.Errorf("rule %+v is incomplete", rule)
		}
	}
}

func TestWhatChangesABuildsName(t *testing.T) {
	unchanged := nameOf(t, aScope())
	for name, test := range map[string]struct {
		change func(*scope)
		same   bool
	}{
		"another base image":                          {spec(func(s *mcfgv1.MachineConfigSpec) { s.OSImageURL = otherBase }), false},
		"the same base image from a mirror":           {spec(func(s *mcfgv1.MachineConfigSpec) { s.OSImageURL = strings.Replace(baseImage, "registry", "mirror", 1) }), true},
		"another file":                                {spec(func(s *mcfgv1.MachineConfigSpec) { s.Config.Raw = []byte(`{"ignition":{"version":"3.4.0"}}`) }), false},
		"white space in the Ignition config":          {spec(func(s *mcfgv1.MachineConfigSpec) { s.Config.Raw = append([]byte("\n "), s.Config.Raw...) }), true},
		"an extension":                                {spec(func(s *mcfgv1.MachineConfigSpec) { s.Extensions = []string{"usbguard"} }), false},
		"an empty list of extensions":                 {spec(func(s *mcfgv1.MachineConfigSpec) { s.Extensions = []string{} }), true},
		"the default kernel by name":                  {spec(func(s *mcfgv1.MachineConfigSpec) { s.KernelType = "default" }), true},
		"another kernel":                              {spec(func(s *mcfgv1.MachineConfigSpec) { s.KernelType = "realtime" }), false},
		"a kernel argument":                           {spec(func(s *mcfgv1.MachineConfigSpec) { s.KernelArguments = []string{"debug"} }), false},
		"an empty list of kernel arguments":           {spec(func(s *mcfgv1.MachineConfigSpec) { s.KernelArguments = []string{} }), true},
		"an extensions image that nobody uses":        {spec(func(s *mcfgv1.MachineConfigSpec) { s.BaseOSExtensionsContainerImage = otherBase }), true},
		"another Containerfile":                       {text(withoutRun), false},
		"the Containerfile as the architecture's own": {func(s *scope) { s.config.Spec.Containerfile[0].ContainerfileArch = mcfgv1.Amd64 }, true},
		"a Containerfile for another architecture besides": {func(s *scope) {
			s.config.Spec.Containerfile = append(s.config.Spec.Containerfile,
				mcfgv1.MachineOSContainerfile{ContainerfileArch: mcfgv1.Arm64, Content: withoutRun})
		}, true},
		"another architecture":                  {func(s *scope) { s.architecture = "arm64" }, false},
		"another rendered config, same content": {func(s *scope) { s.rendered.Name = "rendered-worker-ffff" }, false},
		"another push repository":               {func(s *scope) { builders.PushTo("registry.example.com/os/other:latest", "push")(s.config) }, false},
		"another tag to push to":                {func(s *scope) { builders.PushTo("registry.example.com/os/worker:v2", "push")(s.config) }, true},
		"another push secret": {func(s *scope) {
			s.config.Spec.RenderedImagePushSecret.Name, s.secrets["other"] = "other", s.secrets["push"]
		}, true},
		"other credentials":      {func(s *scope) { s.secrets["push"] = builders.DockerConfig("", "push", "other.example.com") }, true},
		"a trust bundle":         {func(s *scope) { s.site.trustBundle = "PEM" }, true},
		"a node pull secret":     {func(s *scope) { s.nodePullSecret = "nodes" }, true},
		"an agent in the image":  {withAgent("registry.example.com"), false},
		"labels and annotations": {annotated("a", "b"), true},
		"a rebuild":              {annotated(keys.AnnotationRebuild, "yes"), false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := nameOf(t, aScope(test.change)); (got == unchanged) != test.same {
				t.Errorf("the name is %s, was %s; want the same: %t", got, unchanged, test.same)
			}
		})
	}
}

// agentDigest is that of the image of the agent, of which there may be mirrors.
const agentDigest = "sha256:a9e2a9e2a9e2a9e2a9e2a9e2a9e2a9e2a9e2a9e2a9e2a9e2a9e2a9e2a9e2a9e2"

func withAgent(host string) func(*scope) {
	return func(s *scope) { s.agentImage = host + "/imagemode/agent@" + agentDigest }
}

func TestTheAgentInTheImage(t *testing.T) {
	first, mirrored := decide(aScope(withAgent("registry.example.com"))), decide(aScope(withAgent("mirror.example.com")))
	if first.blueprint.name != mirrored.blueprint.name {
		t.Error("the same agent from a mirror is another build")
	}
	// Images that were built before there was an agent in them stay what they are.
	raw, err := json.Marshal(decide(aScope()).blueprint.inputs.Image)
	if err != nil || strings.Contains(string(raw), "agentImage") {
		t.Errorf("without an agent the inputs are %s, %v", raw, err)
	}
	why := decide(aScope(built(mcfgv1.MachineOSBuildSucceeded), withAgent("registry.example.com"))).why
	if want := []change{{Input: "agentImage", New: agentDigest}}; !cmp.Equal(want, why) {
		t.Errorf("why %+v, want %+v", why, want)
	}
}

func TestTwoOrdersOfExtensionsAreOneBuild(t *testing.T) {
	order := func(extensions ...string) *scope {
		return aScope(spec(func(s *mcfgv1.MachineConfigSpec) { s.Extensions = extensions }))
	}
	if nameOf(t, order("b", "a")) != nameOf(t, order("a", "b", "a")) {
		t.Error("the order of extensions makes a difference")
	}
}

func TestImageInputsHashNamesNoPool(t *testing.T) {
	worker := decide(aScope()).blueprint
	infra := decide(aScope(func(s *scope) {
		s.config.Name, s.pool.Name, s.rendered.Name = "infra", "infra", "rendered-infra-ffff"
		s.config.Spec.MachineConfigPool.Name = "infra"
		s.config.Spec.RenderedImagePushSpec = "registry.example.com/os/infra:latest"
	})).blueprint
	if worker.inputs.Image.hash() != infra.inputs.Image.hash() {
		t.Error("the same content has two image inputs hashes")
	}
	if worker.name == infra.name {
		t.Error("two pools have one MachineOSBuild")
	}
}

func TestRebuildEntersTheImageOnlyWhereSomethingRuns(t *testing.T) {
	rebuild := annotated(keys.AnnotationRebuild, "now")
	for name, test := range map[string]struct {
		change  func(*scope)
		changes bool
	}{
		"a RUN":           {text(withRun), true},
		"no RUN":          {text(withoutRun), false},
		"extensions":      {func(s *scope) { text(withoutRun)(s); s.rendered.Spec.Extensions = []string{"usbguard"} }, true},
		"another kernel":  {func(s *scope) { text(withoutRun)(s); s.rendered.Spec.KernelType = "realtime" }, true},
		"no text at all":  {func(s *scope) { s.config.Spec.Containerfile = nil }, false},
		"an unknown text": {text(withMistake), true},
	} {
		t.Run(name, func(t *testing.T) {
			before, after := decide(aScope(test.change)).blueprint, decide(aScope(test.change, rebuild)).blueprint
			if got := before.inputs.Image.hash() != after.inputs.Image.hash(); got != test.changes {
				t.Errorf("the image changes: %t, want %t", got, test.changes)
			}
			if before.name == after.name {
				t.Error("a rebuild has the name of the build before")
			}
		})
	}
}

func TestWhyABuildIsMade(t *testing.T) {
	for name, test := range map[string]struct {
		scope *scope
		want  []string
	}{
		"the first build": {aScope(), []string{"MachineOSConfig"}},
		"another base":    {aScope(built(mcfgv1.MachineOSBuildSucceeded), spec(func(s *mcfgv1.MachineConfigSpec) { s.OSImageURL = otherBase })), []string{"baseImage"}},
		"an edit":         {aScope(built(mcfgv1.MachineOSBuildFailed), text(withoutRun)), []string{"containerfile"}},
		"another config":  {aScope(built(mcfgv1.MachineOSBuilding), func(s *scope) { s.rendered.Name = "rendered-worker-ffff" }), []string{"renderedMachineConfig"}},
		"a rebuild":       {aScope(built(mcfgv1.MachineOSBuildSucceeded), annotated(keys.AnnotationRebuild, "x")), []string{"rebuild"}},
		"a build that stands has no reason of its own": {aScope(built(mcfgv1.MachineOSBuilding)), nil},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, change := range decide(test.scope).why {
				got = append(got, change.Input)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("changed inputs (-want +got):\n%s", diff)
			}
		})
	}
}

func TestChangesShowOldAndNewAndAreBounded(t *testing.T) {
	long := strings.Repeat("x", 10000)
	before := aScope(built(mcfgv1.MachineOSBuildSucceeded), spec(func(s *mcfgv1.MachineConfigSpec) { s.KernelArguments = []string{long} }))
	why := decide(before).why
	if len(why) != 1 || why[0].Input != "kernelArguments" || why[0].Old != "" || len(why[0].New) > maxChangeValue {
		t.Errorf("why = %+v", why)
	}
	if len(inputNames) != len(buildInputs{}.values()) {
		t.Error("inputNames and values do not match")
	}
}

func TestCounters(t *testing.T) {
	asks := func(value string) map[string]string { return map[string]string{keys.AnnotationRebuild: value} }
	value := func(text string) *string { return &text }
	for name, test := range map[string]struct {
		before      counters
		annotations map[string]string
		want        counters
	}{
		"nothing asked":                           {counters{Rebuild: 2}, nil, counters{Rebuild: 2}},
		"a request is counted":                    {counters{Rebuild: 2}, asks("a"), counters{Rebuild: 3, HandledValue: value("a")}},
		"an empty value is a request":             {counters{}, asks(""), counters{Rebuild: 1, HandledValue: value("")}},
		"a request is counted once":               {counters{Rebuild: 3, HandledValue: value("a")}, asks("a"), counters{Rebuild: 3, HandledValue: value("a")}},
		"another value is another request":        {counters{Rebuild: 3, HandledValue: value("a")}, asks("b"), counters{Rebuild: 4, HandledValue: value("b")}},
		"a removed request is forgotten":          {counters{Rebuild: 3, HandledValue: value("a")}, nil, counters{Rebuild: 3}},
		"so that the same value counts once more": {counters{Rebuild: 3}, asks("a"), counters{Rebuild: 4, HandledValue: value("a")}},
	} {
		t.Run(name, func(t *testing.T) {
			got := test.before.acceptRebuild(test.annotations)
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if again, ok := decodeCounters(map[string]string{keys.AnnotationBuildCounters: got.encode()}); !ok || !cmp.Equal(again, got) {
				t.Errorf("read back as %+v", again)
			}
		})
	}
}

func TestLostCountersComeFromTheNewestBuild(t *testing.T) {
	for name, damage := range map[string]func(*scope){
		"removed": func(s *scope) { delete(s.config.Annotations, keys.AnnotationBuildCounters) },
		"damaged": annotated(keys.AnnotationBuildCounters, "{"),
	} {
		t.Run(name, func(t *testing.T) {
			s := aScope(built(mcfgv1.MachineOSBuildSucceeded), annotated(keys.AnnotationRebuild, "x"), built(mcfgv1.MachineOSBuildSucceeded),
				func(s *scope) { delete(s.config.Annotations, keys.AnnotationRebuild) }, damage)
			if got := decide(s); got.counters.Rebuild != 1 || got.decision != Reuse || got.build.Name != s.builds[1].Name {
				t.Errorf("decided %s with counters %+v", got.decision, got.counters)
			}
		})
	}
}

func TestAttemptsAreCountedForTheirInputsOnly(t *testing.T) {
	spent := map[int]bool{0: true, 1: true}
	isSpent := func(attempt int) bool { return spent[attempt] }
	if got := (counters{ForInputs: "a", Attempt: 1}).countAttempt("a", isSpent); got.Attempt != 1 {
		t.Errorf("a failed attempt was left without anybody asking: %+v", got)
	}
	if got := (counters{ForInputs: "b", Attempt: 7}).countAttempt("a", isSpent); got.Attempt != 2 || got.ForInputs != "a" {
		t.Errorf("the lowest unspent attempt is 2: %+v", got)
	}
}
