package machineosbuild

import (
	"context"
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
)

// collectTimeout ends a scrape that the cache does not answer: it does not
// answer before it has started.
const collectTimeout = 5 * time.Second

// collector reads the state of builds from the cache when it is scraped: what it
// says is never older than the objects, and a pool that is gone is gone here too.
type collector struct{ reader client.Reader }

func gauge(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, labels, nil)
}

var (
	configCountDesc = gauge("mco_mosc_count", "MachineOSConfigs.")
	buildStateDesc  = gauge("ocl_build_state", "1 for the state that the current build of a pool is in, 0 for the others.", "pool", "state")
	jobStateDesc    = gauge("ocl_build_job_state", "1 for the state that the Job of the current build is in, 0 for the others.", "pool", "state")
	buildStartDesc  = gauge("ocl_build_start_timestamp_seconds", "When the current build of a pool started.", "pool")
	buildEndDesc    = gauge("ocl_build_end_timestamp_seconds", "When the current build of a pool ended.", "pool", "state")
	activeDesc      = gauge("ocl_active_builds", "Builds of a pool that have not ended.", "pool")
	layeredDesc     = gauge("ocl_layered_nodes_count", "Nodes of a pool that has a MachineOSConfig.", "pool")
	updatedDesc     = gauge("ocl_rollout_updated_nodes", "Nodes of a pool that run its image.", "pool")
	totalDesc       = gauge("ocl_rollout_total_nodes", "Nodes of a pool.", "pool")
)

// Describe sends the descriptions of all metrics.
func (c collector) Describe(descriptions chan<- *prometheus.Desc) {
	for _, description := range []*prometheus.Desc{
		configCountDesc, buildStateDesc, jobStateDesc, buildStartDesc, buildEndDesc, activeDesc, layeredDesc, updatedDesc, totalDesc,
	} {
		descriptions <- description
	}
}

// Collect reads and sends them.
func (c collector) Collect(samples chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), collectTimeout)
	defer cancel()
	var configs mcfgv1.MachineOSConfigList
	var builds mcfgv1.MachineOSBuildList
	var pools mcfgv1.MachineConfigPoolList
	err := errors.Join(
		c.reader.List(ctx, &configs, client.UnsafeDisableDeepCopy),
		c.reader.List(ctx, &builds, client.UnsafeDisableDeepCopy),
		c.reader.List(ctx, &pools, client.UnsafeDisableDeepCopy),
	)
	if err != nil {
		samples <- prometheus.NewInvalidMetric(configCountDesc, err)
		return
	}
	send := func(description *prometheus.Desc, value float64, labels ...string) {
		samples <- prometheus.MustNewConstMetric(description, prometheus.GaugeValue, value, labels...)
	}
	send(configCountDesc, float64(len(configs.Items)))
	hasConfig := map[string]bool{}
	for i := range configs.Items {
		hasConfig[configs.Items[i].Spec.MachineConfigPool.Name] = true
		collectBuild(send, &configs.Items[i], builds.Items)
	}
	for i := range pools.Items {
		if pool := &pools.Items[i]; hasConfig[pool.Name] {
			send(layeredDesc, float64(pool.Status.MachineCount), pool.Name)
			send(totalDesc, float64(pool.Status.MachineCount), pool.Name)
			send(updatedDesc, float64(pool.Status.UpdatedMachineCount), pool.Name)
		}
	}
}

// collectBuild is about the current build of one MachineOSConfig.
func collectBuild(send func(*prometheus.Desc, float64, ...string), config *mcfgv1.MachineOSConfig, builds []mcfgv1.MachineOSBuild) {
	pool, current := config.Spec.MachineConfigPool.Name, currentOf(config, builds)
	active := 0
	for i := range builds {
		if isOwnedBy(&builds[i], config.UID) && !isTerminal(&builds[i]) {
			active++
		}
	}
	send(activeDesc, float64(active), pool)
	now, hasJob := phase(""), false
	if current != nil {
		now, hasJob = phaseOf(current), current.Status.Builder != nil
	}
	for known, state := range stateNames {
		send(buildStateDesc, isOne(known == now), pool, state)
		if hasJob {
			send(jobStateDesc, isOne(known == now), pool, state)
		}
	}
	if current == nil {
		return
	}
	if start := current.Status.BuildStart; start != nil {
		send(buildStartDesc, float64(start.Unix()), pool)
	}
	if end := current.Status.BuildEnd; end != nil {
		send(buildEndDesc, float64(end.Unix()), pool, stateNames[now])
	}
}

func isOne(yes bool) float64 {
	if yes {
		return 1
	}
	return 0
}
