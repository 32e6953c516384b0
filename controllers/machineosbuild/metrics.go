package machineosbuild

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	batchv1 "k8s.io/api/batch/v1"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"

	keys "github.com/imagemode/imagemode/api/machineconfiguration"
	"github.com/imagemode/imagemode/builder/request"
)

// Metrics of builds, under the names that dashboards of on-cluster builds know.
// What a scrape can read from the objects is in collector.go; what is over when
// it is scraped is counted here.

// seconds are the buckets of durations: an appended config takes about one, a
// build with packages minutes, and one that takes an hour is in trouble.
var seconds = []float64{1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600}

var (
	buildTotal = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "ocl_build_total", Help: "Builds that ended, by state (succeeded, failed, interrupted).",
	}, []string{"pool", "state"})
	buildDuration = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "ocl_build_duration_seconds", Help: "Time from the start to the end of a build.", Buckets: seconds,
	}, []string{"pool", "state"})
	buildQueueDuration = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "ocl_build_queue_duration_seconds", Help: "Time from the start of a build until its first pod ran.", Buckets: seconds,
	}, []string{"pool"})
	buildRetries = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "ocl_build_retries_total", Help: "Builder pods that followed one that failed, and builds that were tried again.",
	}, []string{"pool"})
	buildReused = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "ocl_build_reused_total", Help: "Builds that found the image of the same inputs and needed no pod.",
	}, []string{"pool"})
	stepDuration = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "ocl_build_step_duration_seconds", Help: "Time of one step of a build that succeeded.", Buckets: seconds,
	}, []string{"pool", "step", "reused"})
	pushTotal = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "ocl_image_push_total", Help: "Pushes of images, by state (succeeded, failed).",
	}, []string{"pool", "state"})
	pushDuration = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "ocl_image_push_duration_seconds", Help: "Time that a builder took to push an image.", Buckets: seconds,
	}, []string{"pool", "state"})
	configChanges = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "ocl_config_change_total", Help: "Builds that another rendered MachineConfig caused.",
	}, []string{"pool"})
)

// publishStep is the name of the builder's step that pushes.
const publishStep = "publish"

// registerOnce adds the metrics to the registry that the manager serves.
var registerOnce = sync.OnceValue(func() error {
	for _, collector := range []prometheus.Collector{
		buildTotal, buildDuration, buildQueueDuration, buildRetries, buildReused, stepDuration, pushTotal, pushDuration, configChanges,
	} {
		if err := metrics.Registry.Register(collector); err != nil {
			return err
		}
	}
	return nil
})

// stateNames are the metrics' names of phases.
var stateNames = map[phase]string{
	"":                               "none",
	mcfgv1.MachineOSBuildPrepared:    "pending",
	mcfgv1.MachineOSBuilding:         "building",
	mcfgv1.MachineOSBuildSucceeded:   "succeeded",
	mcfgv1.MachineOSBuildFailed:      "failed",
	mcfgv1.MachineOSBuildInterrupted: "interrupted",
}

// poolOf is the pool that a build is for. A MachineOSConfig has its pool's name.
func poolOf(build *mcfgv1.MachineOSBuild) string { return build.Spec.MachineOSConfig.Name }

// countPhase counts a build that has come to another phase.
func countPhase(s *buildScope) {
	pool, now := poolOf(s.build), phaseOf(s.build)
	if now == mcfgv1.MachineOSBuilding {
		buildQueueDuration.WithLabelValues(pool).Observe(conditionOf(s.build).LastTransitionTime.Sub(s.build.Status.BuildStart.Time).Seconds())
	}
	if !isTerminalPhase(now) {
		return
	}
	state := stateNames[now]
	buildTotal.WithLabelValues(pool, state).Inc()
	if counted, ok := decodeCounters(s.build.Annotations); ok && counted.Attempt > 0 {
		buildRetries.WithLabelValues(pool).Inc()
	}
	if s.build.Status.Builder == nil {
		if conditionOf(s.build).Reason == reasonReused {
			buildReused.WithLabelValues(pool).Inc()
		}
		return
	}
	buildDuration.WithLabelValues(pool, state).Observe(s.build.Status.BuildEnd.Sub(s.build.Status.BuildStart.Time).Seconds())
	countPods(s, pool)
}

// countPods counts what the builder pods report.
func countPods(s *buildScope, pool string) {
	if s.job != nil && s.job.Status.Failed > 0 {
		retries := s.job.Status.Failed
		if jobHas(s.job, batchv1.JobFailed) {
			retries--
		}
		buildRetries.WithLabelValues(pool).Add(float64(retries))
	}
	result, found := resultOf(s.pods)
	if !found {
		return
	}
	if failure := result.Failure; failure != nil {
		if failure.Step == publishStep {
			pushTotal.WithLabelValues(pool, "failed").Inc()
		}
		return
	}
	for _, step := range result.Steps {
		countStep(pool, step)
	}
}

func countStep(pool string, step request.Step) {
	reused := map[bool]string{true: "true", false: "false"}[step.Reused]
	stepDuration.WithLabelValues(pool, step.Name, reused).Observe(step.Duration.Seconds())
	if step.Name == publishStep {
		pushTotal.WithLabelValues(pool, "succeeded").Inc()
		pushDuration.WithLabelValues(pool, "succeeded").Observe(step.Duration.Seconds())
	}
}

// currentOf is the build that a MachineOSConfig points at, or nil.
func currentOf(config *mcfgv1.MachineOSConfig, builds []mcfgv1.MachineOSBuild) *mcfgv1.MachineOSBuild {
	for i := range builds {
		if builds[i].Name == config.Annotations[keys.AnnotationCurrentMachineOSBuild] && isOwnedBy(&builds[i], config.UID) {
			return &builds[i]
		}
	}
	return nil
}
