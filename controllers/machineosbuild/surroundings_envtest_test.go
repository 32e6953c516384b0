//go:build envtest

package machineosbuild

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"

	keys "github.com/imagemode/imagemode/api/machineconfiguration"
	"github.com/imagemode/imagemode/test/builders"
)

// TestNothingIsBuiltBesideAnotherBuilder has a machine-os-builder in the namespace.
func TestNothingIsBuiltBesideAnotherBuilder(t *testing.T) {
	s := startServer(t)
	s.create(
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: keys.Namespace}},
		builders.Deployment(keys.Namespace, keys.DeploymentMachineOSBuilder),
		builders.DockerConfig(keys.Namespace, "push", "registry.example.com"),
		builders.DockerConfig(keys.Namespace, "nodes", "registry.example.com"),
		aRendered(),
		builders.MachineConfigPool("worker", builders.Rendered(renderedName)),
		builders.MachineOSConfig("worker", builders.Containerfile(withRun)),
	)
	s.condition(keys.ConditionUpdaterConflict, metav1.ConditionTrue, reasonUpdaterConflict)
	time.Sleep(2 * time.Second)
	var builds mcfgv1.MachineOSBuildList
	if err := s.List(context.Background(), &builds); err != nil || len(builds.Items) != 0 {
		t.Errorf("%d MachineOSBuilds, error %v", len(builds.Items), err)
	}
}
