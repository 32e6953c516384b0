package agent

import (
	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/imagemode/imagemode/rollout/bootc"
)

// Metrics of one node's agent.
var (
	commandSeconds = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "imagemode_agent_bootc_seconds",
		Help:    "How long a bootc command took on the host, to the second: stage (the download), lock, unlock.",
		Buckets: []float64{1, 5, 15, 30, 60, 120, 300, 600, 1200, 1800},
	}, []string{"verb"})
	commandFailures = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "imagemode_agent_bootc_failures_total",
		Help: "bootc commands that failed on the host, by failure class.",
	}, []string{"verb", "class"})
	driftedFiles = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "imagemode_agent_drifted_files",
		Help: "Files that the booted image delivers and that are different on the node.",
	})
)

func init() { metrics.Registry.MustRegister(commandSeconds, commandFailures, driftedFiles) }

// observeCommand measures a command that has ended, once: it is forgotten next.
func observeCommand(in Inputs) {
	verb, _ := bootc.Describe(in.Command.Arguments)
	if verb == "" {
		return
	}
	commandSeconds.WithLabelValues(string(verb)).Observe(max(in.Now.Sub(in.Command.Started).Seconds(), 0))
	if failure, isFailure := judge(in, verb); isFailure {
		commandFailures.WithLabelValues(string(verb), string(failure.Class)).Inc()
	}
}
