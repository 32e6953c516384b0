package machineosbuild

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"

	keys "github.com/imagemode/imagemode/api/machineconfiguration"
	"github.com/imagemode/imagemode/test/builders"
)

const (
	renderedName = "rendered-worker-0123456789abcdef0123456789abcdef"
	baseImage    = "registry.example.com/os/base@sha256:1111111111111111111111111111111111111111111111111111111111111111"
	otherBase    = "registry.example.com/os/base@sha256:2222222222222222222222222222222222222222222222222222222222222222"
	extImage     = "registry.example.com/os/extensions@sha256:3333333333333333333333333333333333333333333333333333333333333333"
	imageDigest  = "sha256:4444444444444444444444444444444444444444444444444444444444444444"

	withRun        = "FROM configs AS final\nRUN true\n"
	withoutRun     = "FROM configs AS final\nLABEL site=here\n"
	withExtensions = "FROM configs AS final\nRUN --mount=type=bind,from=extensions,target=/run/extensions true\n"
	withMistake    = "FROM configs AS final\nRUNN true\n"
)

// aScope is one in which everything is there that a build needs.
func aScope(changes ...func(*scope)) *scope {
	config := builders.MachineOSConfig("worker", builders.Containerfile(withRun))
	config.UID = "config-uid"
	config.Generation = 3
	s := &scope{
		config:           config,
		pool:             builders.MachineConfigPool("worker", builders.Rendered(renderedName)),
		rendered:         aRendered(),
		secrets:          map[string]*corev1.Secret{"push": builders.DockerConfig(keys.Namespace, "push", "registry.example.com")},
		namespace:        keys.Namespace,
		architecture:     "amd64",
		globalPullSecret: defaultGlobalPullSecret,
		now:              someTime,
	}
	for _, change := range changes {
		change(s)
	}
	return s
}

func aRendered() *mcfgv1.MachineConfig {
	rendered := builders.MachineConfig(renderedName, "worker", builders.File("/etc/motd", "hello\n"))
	rendered.Spec.OSImageURL = baseImage
	rendered.Spec.BaseOSExtensionsContainerImage = extImage
	return rendered
}

// text sets the Containerfile.
func text(content string) func(*scope) {
	return func(s *scope) { builders.Containerfile(content)(s.config) }
}

// annotated sets an annotation of the MachineOSConfig.
func annotated(key, value string) func(*scope) {
	return func(s *scope) { metav1.SetMetaDataAnnotation(&s.config.ObjectMeta, key, value) }
}

// spec changes the rendered config's spec.
func spec(change func(*mcfgv1.MachineConfigSpec)) func(*scope) {
	return func(s *scope) { change(&s.rendered.Spec) }
}

// built plans a scope, and adds the build in a phase: "" for one just created.
func built(in phase) func(*scope) {
	return func(s *scope) {
		chosen := decide(s)
		metav1.SetMetaDataAnnotation(&s.config.ObjectMeta, keys.AnnotationBuildCounters, chosen.counters.encode())
		build := newBuild(s, &chosen)
		build.UID = types.UID("uid-of-" + build.Name)
		build.CreationTimestamp = metav1.NewTime(someTime.Add(time.Duration(len(s.builds)) * time.Minute))
		if in != "" {
			said := state{phase: in}
			if in == mcfgv1.MachineOSBuildSucceeded {
				said.digest = imageDigest
			}
			build.Status = buildStatus(build.Status, chosen.blueprint.inputs.PushRepository, said, someTime)
		}
		s.builds = append(s.builds, *build)
	}
}

// superseded marks the last build.
func superseded(s *scope) {
	metav1.SetMetaDataAnnotation(&s.builds[len(s.builds)-1].ObjectMeta, keys.AnnotationSupersededBy, "worker-other")
}

var someTime = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// nameOf is the name of the build that a scope asks for.
func nameOf(t *testing.T, s *scope) string {
	t.Helper()
	chosen := decide(s)
	if chosen.blueprint == nil {
		t.Fatalf("nothing is planned: %+v", chosen.problem)
	}
	return chosen.blueprint.name
}
