package machineosbuild

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"

	keys "github.com/imagemode/imagemode/api/machineconfiguration"
	"github.com/imagemode/imagemode/builder/request"
	"github.com/imagemode/imagemode/controllers/pullsecret"
	"github.com/imagemode/imagemode/controllers/rivals"
)

// decision is what to do about a MachineOSConfig.
type decision string

const (
	// Reuse: the wanted build has succeeded already.
	Reuse decision = "Reuse"
	// Build: the wanted build is to be made, or stands, running or failed.
	Build decision = "Build"
	// Wait: something that is needed is not there yet.
	Wait decision = "Wait"
	// Invalid: the user has to change something first.
	Invalid decision = "Invalid"
)

// problem is why nothing can be planned. Its message names object, field and
// what to do.
type problem struct {
	decision decision
	reason   string
	message  string
}

// plan is the answer to a scope.
type plan struct {
	decision decision
	// problem is set for Wait and Invalid. For Reuse and Build of an existing
	// build it may name what would be in the way of the next one.
	problem *problem
	// counters are to be recorded, whatever the decision.
	counters counters
	// blueprint says what is to be built; nil for Wait and Invalid.
	blueprint *blueprint
	// build is the build of the blueprint's name; nil when it is to be created.
	build *mcfgv1.MachineOSBuild
	// wakeAt is when the plan changes by itself; zero: never.
	wakeAt time.Time
	// why lists what changed since the build before; for a new build only.
	why []change
}

// blueprint is a build before it has an object: its name and what it is made of.
type blueprint struct {
	name          string
	inputs        buildInputs
	counters      counters
	rendered      *mcfgv1.MachineConfig
	ignition      string
	containerfile string
	// agentImage brings the agent into the image; empty: none does.
	agentImage string
	// mistake is what keeps the Containerfile, or the rendered config, from being
	// built; nil: none.
	mistake error
	// usesExtensions is true when the builder needs the extensions image.
	usesExtensions bool
	// runsPrograms is true when the build runs anything: only then do package
	// repositories and their keys matter, and may a rebuild come out different.
	runsPrograms bool
	// seed is an image built elsewhere that is this build's; empty: none.
	seed string
}

// rule is one precondition of a build. Its check returns nil when it holds.
type rule struct {
	says  string
	check func(*scope) *problem
}

// preconditions hold, in this order, before it is even known what to build.
var preconditions = []rule{
	{"nobody else builds", checkOtherBuilder},
	{"the pool exists", checkPool},
	{"a single node has the images of its control-plane pool", checkSingleNode},
	{"the pool has a rendered config", checkRendered},
	{"the base image is named by digest", checkBaseImage},
	{"the Ignition config can be read", checkIgnition},
	{"there is a Containerfile for the architecture, or none at all", checkContainerfile},
	{"the extensions image, if it is needed, is named by digest", checkExtensionsImage},
	{"the result can be named by digest", checkPushSpec},
	{"an image built before is named by digest", checkPreBuiltImage},
}

// secretRules hold before a build starts. A build that exists needs them no more.
var secretRules = []rule{
	{"the push secret is there and can be used", func(s *scope) *problem { return checkSecret(s, s.pushSecretRef()) }},
	{"so is the pull secret for base images, if one is named", func(s *scope) *problem { return checkSecret(s, s.basePullSecretRef()) }},
}

// decide says what to do about a MachineOSConfig. It is a pure function: no
// client, no clock but the scope's, and no condition that this controller has
// set, other than the end of a build, which the API keeps.
func decide(s *scope) plan {
	accepted := readCounters(s.config, s.builds).acceptRebuild(s.config.Annotations)
	if found := firstProblem(s, preconditions); found != nil {
		answer := plan{decision: found.decision, problem: found, counters: accepted}
		if found.reason == reasonUpdaterConflict {
			answer.wakeAt = s.now.Add(rivals.Interval) // nobody tells when it has gone
		}
		return answer
	}
	answer := planFor(s, draw(s, accepted))
	if answer.build == nil {
		return answer
	}
	if again := tryAgain(s, answer); again != nil {
		return again.apply(s, answer)
	}
	return answer
}

// planFor is the plan for a build, whether it exists or not.
func planFor(s *scope, print *blueprint) plan {
	answer := plan{
		decision:  Build,
		problem:   firstProblem(s, secretRules),
		counters:  print.counters,
		blueprint: print,
		build:     s.buildNamed(print.name),
	}
	switch {
	case answer.build != nil && hasImage(answer.build):
		// The same inputs gave an image before: an edit that was taken back.
		answer.decision = Reuse
	case answer.build != nil:
		// It runs, or it ended badly and stands until something changes.
		answer.decision = Build
	case print.mistake != nil || print.seed != "":
		// It will end without a pod, so it needs no secrets.
		answer.why = whyBuild(s, print)
	case answer.problem != nil:
		answer.decision = answer.problem.decision
		answer.blueprint = nil
	default:
		answer.why = whyBuild(s, print)
	}
	return answer
}

func firstProblem(s *scope, rules []rule) *problem {
	for _, rule := range rules {
		if found := rule.check(s); found != nil {
			return found
		}
	}
	return nil
}

// draw says what a build of the scope is, once the preconditions hold.
func draw(s *scope, accepted counters) *blueprint {
	print := &blueprint{counters: accepted, rendered: s.rendered, agentImage: s.agentImage, seed: s.seed()}
	print.containerfile, _ = s.containerfile()
	text, mistake := checkText(print.containerfile)
	if print.mistake = mistake; mistake == nil {
		print.mistake = s.configMistake()
	}
	print.usesExtensions = wantsExtensionsImage(&s.rendered.Spec, text)
	// A text that does not parse may have meant to run something.
	print.runsPrograms = installsPackages(&s.rendered.Spec) || text == nil || text.HasRun
	print.ignition, _ = canonicalIgnition(s.rendered.Spec.Config.Raw)
	print.inputs = buildInputs{
		Image:                 drawImage(s, print),
		RenderedMachineConfig: s.rendered.Name,
		PushRepository:        repositoryOf(s.config.Spec.RenderedImagePushSpec),
		Rebuild:               accepted.Rebuild,
	}
	print.counters = accepted.countAttempt(print.inputs.identity(), func(attempt int) bool {
		build := s.buildNamed(print.nameOf(s, attempt))
		return build != nil && isSpent(build)
	})
	print.inputs.Attempt = print.counters.Attempt
	print.name = print.nameOf(s, print.counters.Attempt)
	return print
}

// nameOf is the name of one attempt at a build.
func (b *blueprint) nameOf(s *scope, attempt int) string {
	tried := b.inputs
	tried.Attempt = attempt
	return buildName(s.config.Name, tried.hash())
}

func drawImage(s *scope, print *blueprint) imageInputs {
	inputs := imageInputs{
		BaseImage:       digestOf(s.rendered.Spec.OSImageURL),
		Extensions:      canonicalExtensions(s.rendered.Spec.Extensions),
		KernelType:      canonicalKernelType(s.rendered.Spec.KernelType),
		KernelArguments: s.rendered.Spec.KernelArguments,
		Ignition:        hashOfText(print.ignition),
		Containerfile:   hashOfText(print.containerfile),
		AgentImage:      digestOf(s.agentImage),
		Architecture:    s.architecture,
	}
	if print.usesExtensions {
		inputs.ExtensionsImage = digestOf(s.rendered.Spec.BaseOSExtensionsContainerImage)
	}
	if print.runsPrograms {
		inputs.Rebuild = print.counters.Rebuild
		inputs.YumRepos, inputs.GPGKeys = s.repositories.reposHash(), s.repositories.keysHash()
	}
	return inputs
}

// whyBuild compares a new build with the one made last. Of a further attempt it
// says how the one before ended.
func whyBuild(s *scope, print *blueprint) []change {
	var why []change
	for i := len(s.builds) - 1; i >= 0 && why == nil; i-- {
		var previous buildInputs
		raw := s.builds[i].Annotations[keys.AnnotationBuildInputs]
		if json.Unmarshal([]byte(raw), &previous) == nil {
			why = changesBetween(s.config.Name, &previous, print.inputs)
		}
	}
	if why == nil {
		why = changesBetween(s.config.Name, nil, print.inputs)
	}
	for i := range why {
		if before := s.buildNamed(print.nameOf(s, print.inputs.Attempt-1)); why[i].Input == inputAttempt && before != nil {
			why[i].Old = truncate(fmt.Sprintf("%d: %s", print.inputs.Attempt-1, howItEnded(before)), maxChangeValue)
		}
	}
	return why
}

func checkPool(s *scope) *problem {
	if s.pool != nil {
		return nil
	}
	return s.wait("PoolNotFound", "spec.machineConfigPool.name: MachineConfigPool %q not found; create it",
		s.config.Spec.MachineConfigPool.Name)
}

func checkRendered(s *scope) *problem {
	name := s.pool.Spec.Configuration.Name
	if name == "" {
		return s.wait(reasonWaitingForRender, "MachineConfigPool %s has no rendered config yet (spec.configuration.name); "+
			"its RenderDegraded condition says why, if something is in the way", s.pool.Name)
	}
	if s.rendered == nil {
		return s.wait(reasonWaitingForRender, "MachineConfig %s, the rendered config of MachineConfigPool %s, is not there yet",
			name, s.pool.Name)
	}
	return nil
}

func checkBaseImage(s *scope) *problem {
	image := s.rendered.Spec.OSImageURL
	if image == "" {
		return s.wait("BaseImageMissing", "MachineConfig %s: spec.osImageURL is empty; the pool's OS stream has to name an OS image",
			s.rendered.Name)
	}
	if digestOf(image) == "" {
		return s.invalid("BaseImageNotByDigest", "MachineConfig %s: spec.osImageURL %q is not by digest; write name@sha256:<64 hex>",
			s.rendered.Name, image)
	}
	return nil
}

func checkIgnition(s *scope) *problem {
	if _, err := canonicalIgnition(s.rendered.Spec.Config.Raw); err != nil {
		return s.invalid("RenderedConfigInvalid", "MachineConfig %s: %v; mend the MachineConfigs of pool %s", s.rendered.Name, err, s.pool.Name)
	}
	return nil
}

func checkContainerfile(s *scope) *problem {
	if _, found := s.containerfile(); !found {
		return s.invalid("ContainerfileArchitecture", "spec.containerFile: no entry is for %s; add one with containerfileArch %s or NoArch",
			s.architecture, architectures[s.architecture])
	}
	return nil
}

func checkExtensionsImage(s *scope) *problem {
	text, _ := s.containerfile()
	parsed, _ := checkText(text)
	image := s.rendered.Spec.BaseOSExtensionsContainerImage
	if digestOf(image) != "" || !wantsExtensionsImage(&s.rendered.Spec, parsed) {
		return nil
	}
	if image == "" {
		return s.invalid("ExtensionsImageMissing", "MachineConfig %s: spec.baseOSExtensionsContainerImage is empty, "+
			"but extensions, a kernel type or the Containerfile need it; the pool's OS stream has to name an extensions image", s.rendered.Name)
	}
	return s.invalid("ExtensionsImageNotByDigest", "MachineConfig %s: spec.baseOSExtensionsContainerImage %q is not by digest; "+
		"write name@sha256:<64 hex>", s.rendered.Name, image)
}

func checkPushSpec(s *scope) *problem {
	repository := repositoryOf(s.config.Spec.RenderedImagePushSpec)
	if err := request.CheckRepository(repository); err != nil {
		return s.invalid("PushSpecInvalid", "spec.renderedImagePushSpec: %v", err)
	}
	if !digestRepository.MatchString(repository) {
		return s.invalid("PushSpecInvalid", "spec.renderedImagePushSpec: an image in %q cannot be named by digest in the API; "+
			"use host[:port]/namespace/name or host[:port]/name", repository)
	}
	if longest := len(repository) + len(":") + maxImageTag; longest > maxPushSpec {
		return s.invalid("PushSpecInvalid", "spec.renderedImagePushSpec: %q is too long; it may have %d bytes without the tag",
			repository, maxPushSpec-len(":")-maxImageTag)
	}
	return nil
}

// checkPreBuiltImage refuses an image that the API could not take.
func checkPreBuiltImage(s *scope) *problem {
	image := s.seed()
	if image == "" {
		return nil
	}
	repository, _, _ := strings.Cut(image, "@")
	if digestOf(image) != "" && digestRepository.MatchString(repository) {
		return nil
	}
	return s.invalid("PreBuiltImageInvalid", "annotation %s: %q is not an image by digest; write host[:port]/repository@sha256:<64 hex>, or remove it",
		keys.AnnotationPreBuiltImage, image)
}

// checkSecret waits for a Secret, and refuses one of a wrong type or content.
// It never shows content.
func checkSecret(s *scope, ref secretRef) *problem {
	if ref.name == "" {
		return nil
	}
	found, err := s.authsOf(ref)
	if err == nil {
		// Not where it is read: of the credentials that a node or the cluster has, one
		// entry that is damaged may be about a registry that nothing here is in.
		if err = found.Check(); err != nil {
			err = fmt.Errorf("%s: secret %q in namespace %s (key %s): %w",
				ref.source, ref.name, s.namespace, pullsecret.KeyOf(s.secrets[ref.name]), err)
		}
	}
	switch {
	case err == nil:
		return nil
	case s.secrets[ref.name] == nil:
		return s.wait("SecretNotFound", "%v", err)
	default:
		return s.wait("SecretInvalid", "%v", err)
	}
}

func (s *scope) wait(reason, format string, arguments ...any) *problem {
	return s.problem(Wait, reason, format, arguments...)
}

func (s *scope) invalid(reason, format string, arguments ...any) *problem {
	return s.problem(Invalid, reason, format, arguments...)
}

func (s *scope) problem(decision decision, reason, format string, arguments ...any) *problem {
	message := fmt.Sprintf("MachineOSConfig %s: ", s.config.Name) + fmt.Sprintf(format, arguments...)
	return &problem{decision: decision, reason: reason, message: message}
}
