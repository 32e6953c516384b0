package osimagestream

import (
	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

var (
	problemCount = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "imagemode_osimagestream_problems",
		Help: "Problems with sources of OS image streams: what was left out of OSImageStream cluster, or kept from before.",
	})
	isComplete = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "imagemode_osimagestream_complete",
		Help: "1 when every source of OS image streams and every image could be read, else 0.",
	})
)

func init() { metrics.Registry.MustRegister(problemCount, isComplete) }

// observe sets the metrics after a reconcile.
func observe(decided outcome) {
	problemCount.Set(float64(len(decided.Problems)))
	isComplete.Set(0)
	if decided.isComplete() && !decided.gaps.PayloadBroken {
		isComplete.Set(1)
	}
}
