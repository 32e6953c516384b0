package machineconfigpool

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/imagemode/imagemode/test/builders"
)

func TestSuperfluousRenderedConfigs(t *testing.T) {
	pool := builders.MachineConfigPool("worker", builders.Rendered("rendered-worker-09"))
	pool.UID = "uid"
	pool.Status.Configuration.Name = "rendered-worker-00"
	var configs []mcfgv1.MachineConfig
	for i := range 10 {
		config := builders.MachineConfig(fmt.Sprintf("rendered-worker-%02d", i), "")
		config.CreationTimestamp = metav1.NewTime(earlier.Add(time.Duration(i) * time.Minute))
		config.OwnerReferences = []metav1.OwnerReference{{Kind: "MachineConfigPool", Name: "worker", UID: pool.UID, Controller: new(true)}}
		configs = append(configs, *config)
	}
	foreign := builders.MachineConfig("rendered-other-1", "")
	configs = append(configs, *foreign, *builders.MachineConfig("50-users", "worker"))
	builds := []mcfgv1.MachineOSBuild{build("worker-1", "rendered-worker-01", mcfgv1.MachineOSBuildSucceeded, image1)}

	var got []string
	for _, config := range superfluous(pool, configs, builds) {
		got = append(got, config.Name)
	}
	// 09 and 00 are the pool's, 01 a build's, 08 to 04 the newest five.
	if diff := cmp.Diff([]string{"rendered-worker-03", "rendered-worker-02"}, got); diff != "" {
		t.Error(diff)
	}
}
