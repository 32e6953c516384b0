//go:build envtest

package scale

import (
	"context"
	"flag"
	"slices"
	"testing"
	"time"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/util/flowcontrol"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/imagemode/imagemode/test/builders"
)

var (
	benchPools = flag.Int("bench.pools", 500, "pools with a MachineOSConfig each")
	benchNodes = flag.Int("bench.nodes", 5000, "nodes of all pools together")
)

// Limits that are printed beside the figures.
const (
	maxRender         = 10 * time.Second
	minStatusInterval = time.Second
)

// BenchmarkPools has many pools whose nodes run their images, changes one
// MachineConfig that all of them select, and takes the time until the last of
// them is rendered. The controllers have the program's limit of requests.
func BenchmarkPools(b *testing.B) {
	for range b.N {
		w := newWorld(b)
		w.populate(*benchPools, *benchNodes)
		w.limiter.set(flowcontrol.NewTokenBucketRateLimiter(qps, burst))
		measured := w.edit("all rendered")
		b.ReportMetric(measured.rendered.Seconds(), "s/rendered")
		b.ReportMetric(measured.left.Seconds(), "s/left-Updated")
		b.Logf("%d pools, %d nodes, one MachineConfig changed: all rendered after %v (limit %v); all have left Updated after %v",
			*benchPools, *benchNodes, measured.rendered.Round(time.Millisecond), maxRender, measured.left.Round(time.Millisecond))
		b.Logf("the closest two writes of the status of one pool: %v apart (limit %v)", measured.closest.Round(time.Millisecond), minStatusInterval)
		b.Logf("writes: %v", measured.writes)
		if measured.rendered > maxRender {
			b.Errorf("rendering took %v", measured.rendered)
		}
		if measured.closest != 0 && measured.closest < minStatusInterval {
			b.Errorf("two writes of the status of one pool are %v apart", measured.closest)
		}
	}
}

// populate makes the pools and their nodes, and waits until all are Updated. The
// controllers do not run while the nodes are made: each would be news to them.
func (w *world) populate(pools, nodes int) {
	w.Helper()
	begin := time.Now()
	objects := []client.Object{builders.MachineConfig("50-motd", "worker", builders.File("/etc/motd", "first\n")), builders.MachineConfigPool("worker")}
	for i := range pools {
		objects = append(objects, builders.MachineConfigPool(poolName(i)), builders.MachineOSConfig(poolName(i)),
			builders.MachineConfig("60-"+poolName(i), poolName(i), builders.File("/etc/pool", poolName(i))))
	}
	w.createAll(objects...)
	stop := w.runControllers(false)
	w.eventually("rendered", 10*time.Minute, func() (bool, error) {
		rendered, err := w.countPools(func(pool *mcfgv1.MachineConfigPool) bool { return pool.Spec.Configuration.Name != "" })
		return rendered == pools+1, err
	})
	stop()
	w.Logf("%d pools are rendered after %v", pools, time.Since(begin).Round(time.Second))
	w.forEach(pools, func(i int) error { return w.finishBuild(poolName(i)) })
	var list mcfgv1.MachineConfigPoolList
	w.must(w.List(w.ctx, &list))
	images := map[string]string{}
	for _, pool := range list.Items {
		images[pool.Name] = imageOf(pool.Spec.Configuration.Name)
	}
	objects = nil
	for i := range nodes {
		node, image := bootedNode(i, poolName(i%pools), images[poolName(i%pools)])
		objects = append(objects, node, image)
	}
	w.createAll(objects...)
	w.Logf("%d nodes are made after %v", nodes, time.Since(begin).Round(time.Second))
	w.runControllers(false)
	w.eventually("all pools are Updated", 20*time.Minute, func() (bool, error) {
		updated, err := w.countPools(func(pool *mcfgv1.MachineConfigPool) bool { return isPool(pool, mcfgv1.MachineConfigPoolUpdated) })
		return updated == pools, err
	})
	w.settle(3*time.Second, 20*time.Minute)
	w.Logf("they are at rest after %v", time.Since(begin).Round(time.Second))
}

// figures of one edit.
type figures struct {
	// rendered and left are the times until the last pool has a new rendered config,
	// and until the last says that it is not Updated.
	rendered, left time.Duration
	closest        time.Duration
	writes         map[string]int
}

// edit changes the MachineConfig that all pools select.
func (w *world) edit(text string) figures {
	w.Helper()
	ctx, cancel := context.WithTimeout(w.ctx, 5*time.Minute)
	defer cancel()
	var list mcfgv1.MachineConfigPoolList
	w.must(w.List(ctx, &list))
	before := map[string]string{}
	for _, pool := range list.Items {
		before[pool.Name] = pool.Spec.Configuration.Name
	}
	stream, err := w.Watch(ctx, &mcfgv1.MachineConfigPoolList{}, &client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: list.ResourceVersion}})
	w.must(err)
	defer stream.Stop()
	config := &mcfgv1.MachineConfig{}
	w.must(w.Get(ctx, client.ObjectKey{Name: "50-motd"}, config))
	config.Spec.Config.Raw = builders.MachineConfig("x", "worker", builders.File("/etc/motd", text)).Spec.Config.Raw
	begin := time.Now()
	w.must(w.Update(ctx, config))
	rendered, left := map[string]time.Duration{}, map[string]time.Duration{}
	for len(rendered) < len(before) || len(left) < len(before) {
		event, isOpen := <-stream.ResultChan()
		pool, isOne := event.Object.(*mcfgv1.MachineConfigPool)
		if !isOpen || !isOne || event.Type == watch.Error {
			w.Fatalf("%d of %d pools are rendered, %d have left Updated: %+v", len(rendered), len(before), len(left), event)
		}
		if _, isKnown := rendered[pool.Name]; !isKnown && pool.Spec.Configuration.Name != before[pool.Name] {
			rendered[pool.Name] = time.Since(begin)
		}
		// The worker pool has no image, so it never was.
		isLeft := pool.Name == "worker" || (pool.Spec.Configuration.Name != before[pool.Name] && !isPool(pool, mcfgv1.MachineConfigPoolUpdated))
		if _, isKnown := left[pool.Name]; !isKnown && isLeft {
			left[pool.Name] = time.Since(begin)
		}
	}
	w.settle(3*time.Second, 10*time.Minute)
	entries := w.writes.since(begin)
	return figures{rendered: longest(rendered), left: longest(left), closest: closest(entries, "machineconfigpools/status"), writes: byResource(entries)}
}

func longest(times map[string]time.Duration) time.Duration {
	var all []time.Duration
	for _, each := range times {
		all = append(all, each)
	}
	return slices.Max(all)
}
