package machineosbuild

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"

	"github.com/imagemode/imagemode/builder/request"
)

// grows returns by how much a metric grows while something happens.
func grows(read func() float64, happens func()) float64 {
	before := read()
	happens()
	return read() - before
}

func TestEndedBuildsAreCounted(t *testing.T) {
	stepped := request.Result{Digest: imageDigest, Steps: []request.Step{
		{Name: "configs", Duration: metav1.Duration{Duration: time.Second}, Reused: true},
		{Name: publishStep, Duration: metav1.Duration{Duration: 2 * time.Second}},
	}}
	failedPush := request.Result{Failure: &request.Failure{Class: request.Registry, Step: publishStep, Message: "503"}}
	for state, result := range map[string]request.Result{"succeeded": stepped, "failed": failedPush} {
		t.Run(state, func(t *testing.T) {
			w := newWorld(t)
			w.settle()
			ends := func() { w.builderEnds(result); w.settle() }
			counter := buildTotal.WithLabelValues("worker", state)
			pushes := pushTotal.WithLabelValues("worker", state)
			beforePush := testutil.ToFloat64(pushes)
			if got := grows(func() float64 { return testutil.ToFloat64(counter) }, ends); got != 1 {
				t.Errorf("ocl_build_total grew by %v", got)
			}
			if got := testutil.ToFloat64(pushes) - beforePush; got != 1 {
				t.Errorf("ocl_image_push_total grew by %v", got)
			}
		})
	}
	if testutil.CollectAndCount(stepDuration, "ocl_build_step_duration_seconds") == 0 {
		t.Error("no step was measured")
	}
}

func TestTheStateOfBuildsIsReadWhenItIsScraped(t *testing.T) {
	w := newWorld(t)
	w.settle()
	w.podRuns()
	w.settle()
	w.updatePool(func(pool *mcfgv1.MachineConfigPool) {
		pool.Status.MachineCount, pool.Status.UpdatedMachineCount = 3, 2
	})
	want := `
# HELP mco_mosc_count MachineOSConfigs.
# TYPE mco_mosc_count gauge
mco_mosc_count 1
# HELP ocl_active_builds Builds of a pool that have not ended.
# TYPE ocl_active_builds gauge
ocl_active_builds{pool="worker"} 1
# HELP ocl_build_state 1 for the state that the current build of a pool is in, 0 for the others.
# TYPE ocl_build_state gauge
ocl_build_state{pool="worker",state="building"} 1
ocl_build_state{pool="worker",state="failed"} 0
ocl_build_state{pool="worker",state="interrupted"} 0
ocl_build_state{pool="worker",state="none"} 0
ocl_build_state{pool="worker",state="pending"} 0
ocl_build_state{pool="worker",state="succeeded"} 0
# HELP ocl_rollout_updated_nodes Nodes of a pool that run its image.
# TYPE ocl_rollout_updated_nodes gauge
ocl_rollout_updated_nodes{pool="worker"} 2
`
	err := testutil.CollectAndCompare(collector{w.client}, strings.NewReader(want),
		"mco_mosc_count", "ocl_active_builds", "ocl_build_state", "ocl_rollout_updated_nodes")
	if err != nil {
		t.Error(err)
	}
	if problems, err := testutil.CollectAndLint(collector{w.client}); err != nil {
		t.Error(err)
	} else {
		for _, problem := range problems {
			if !strings.Contains(problem.Metric, "_count") { // the name that dashboards know
				t.Errorf("%s: %s", problem.Metric, problem.Text)
			}
		}
	}
}
