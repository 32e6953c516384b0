//go:build envtest

package scale

import (
	"testing"
	"time"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	keys "github.com/imagemode/imagemode/api/machineconfiguration"
	"github.com/imagemode/imagemode/api/v1alpha1"
	"github.com/imagemode/imagemode/test/builders"
)

// Limits of what one update of one node may write.
const (
	maxRolloutWrites = 12 // on NodeImage, ImageRollout and Node together
	maxViewWrites    = 8  // on MachineConfigNode
)

// aPool makes a pool with nodes and a finished build, and waits until they run it.
func (w *world) aPool(name string, first, nodes int) {
	w.Helper()
	w.createAll(builders.MachineConfigPool(name), builders.MachineOSConfig(name),
		builders.MachineConfig("60-"+name, name, builders.File("/etc/pool", name)))
	for i := range nodes {
		w.createAll(builders.Node(nodeName(first+i), name))
	}
	w.build(name)
	w.updated(name)
}

// build finishes the build of a pool's current rendered config, once there is one.
func (w *world) build(name string) {
	w.Helper()
	w.eventually("build", time.Minute, func() (bool, error) {
		pool := &mcfgv1.MachineConfigPool{}
		if err := w.Get(w.ctx, client.ObjectKey{Name: name}, pool); err != nil || pool.Spec.Configuration.Name == "" {
			return false, err
		}
		return true, w.finishBuild(name)
	})
}

func (w *world) updated(name string) {
	w.Helper()
	w.eventually(name+" is Updated", 2*time.Minute, func() (bool, error) {
		pool := &mcfgv1.MachineConfigPool{}
		err := w.Get(w.ctx, client.ObjectKey{Name: name}, pool)
		return err == nil && isPool(pool, mcfgv1.MachineConfigPoolUpdated) && pool.Status.ObservedGeneration == pool.Generation, err
	})
}

// change gives a pool another config, and waits until it is rendered.
func (w *world) change(name, text string) {
	w.Helper()
	pool := &mcfgv1.MachineConfigPool{}
	w.must(w.Get(w.ctx, client.ObjectKey{Name: name}, pool))
	before := pool.Spec.Configuration.Name
	config := &mcfgv1.MachineConfig{}
	w.must(w.Get(w.ctx, client.ObjectKey{Name: "60-" + name}, config))
	config.Spec.Config.Raw = builders.MachineConfig("x", name, builders.File("/etc/pool", text)).Spec.Config.Raw
	w.must(w.Update(w.ctx, config))
	w.eventually("rendered", time.Minute, func() (bool, error) {
		err := w.Get(w.ctx, client.ObjectKey{Name: name}, pool)
		return pool.Spec.Configuration.Name != before, err
	})
}

// TestWritesOfAnUpdate takes two pools to a new image and counts what is written.
func TestWritesOfAnUpdate(t *testing.T) {
	const nodes = 6
	w := start(t, true)
	w.playMachines()
	w.createAll(builders.MachineConfigPool("worker"))
	w.aPool("infra", 0, nodes)
	w.settle(3*time.Second, time.Minute)

	begin := time.Now()
	w.change("infra", "second\n")
	w.build("infra")
	w.updated("infra")
	w.settle(3*time.Second, time.Minute)

	entries, agents := w.writes.since(begin), w.agentWrites.since(begin)
	onRollout := float64(count(append(entries, agents...), "nodeimages", "imagerollouts", "nodes")) / nodes
	onView := float64(count(entries, "machineconfignodes")) / nodes
	t.Logf("one update of %d nodes, per node: %.1f writes on NodeImage, ImageRollout and Node together (limit %d), %.1f on MachineConfigNode (limit %d)",
		nodes, onRollout, maxRolloutWrites, onView, maxViewWrites)
	gap := closest(entries, "machineconfigpools/status")
	t.Logf("the closest two writes of the pool's status: %v apart (limit %v)", gap.Round(time.Millisecond), minStatusInterval)
	t.Logf("writes of the controllers: %v; of the agents: %v", byResource(entries), byResource(agents))
	if onRollout > maxRolloutWrites || onView > maxViewWrites {
		t.Error("too many writes")
	}
	if gap < minStatusInterval {
		t.Errorf("two writes of the pool's status are %v apart", gap)
	}
}

// TestANodeMovesDuringItsUpdate relabels a node that one rollout has out of
// service: that one finishes, then the other takes over.
func TestANodeMovesDuringItsUpdate(t *testing.T) {
	w := start(t, true)
	played := w.playMachines()
	w.createAll(builders.MachineConfigPool("worker"))
	w.aPool("infra", 0, 1)
	w.aPool("gpu", 10, 1)
	moved := nodeName(0)
	played.hold(moved, true)
	w.change("infra", "second\n")
	w.build("infra")
	rollout := func(name string) *v1alpha1.ImageRollout {
		found := &v1alpha1.ImageRollout{}
		w.must(w.Get(w.ctx, client.ObjectKey{Name: name}, found))
		return found
	}
	w.eventually("the node is to boot", time.Minute, func() (bool, error) {
		slots := rollout("infra").Status.Slots
		return len(slots) == 1 && slots[0].Phase == v1alpha1.SlotBooting, nil
	})

	node := &corev1.Node{}
	w.must(w.Get(w.ctx, client.ObjectKey{Name: moved}, node))
	before := node.DeepCopy()
	delete(node.Labels, builders.NodeRolePrefix+"infra")
	node.Labels[builders.NodeRolePrefix+"gpu"] = ""
	w.must(w.Patch(w.ctx, node, client.MergeFrom(before)))
	pool := &mcfgv1.MachineConfigPool{}
	w.eventually("gpu counts it", time.Minute, func() (bool, error) {
		err := w.Get(w.ctx, client.ObjectKey{Name: "gpu"}, pool)
		return pool.Status.MachineCount == 2, err
	})
	if slots := rollout("infra").Status.Slots; len(slots) != 1 || slots[0].Node != moved {
		t.Errorf("slots of infra: %+v", slots)
	}
	if slots := rollout("gpu").Status.Slots; len(slots) != 0 {
		t.Errorf("gpu takes a node that infra has out of service: %+v", slots)
	}

	booted := func() string {
		image := &v1alpha1.NodeImage{}
		if err := w.Get(w.ctx, client.ObjectKey{Name: moved}, image); err != nil || image.Status.Booted == nil {
			return ""
		}
		return image.Status.Booted.Image
	}
	first := rollout("infra").Spec.Image
	var seen []string
	played.hold(moved, false)
	w.eventually("the node runs the image of gpu", 2*time.Minute, func() (bool, error) {
		if now := booted(); now != "" && (len(seen) == 0 || seen[len(seen)-1] != now) {
			seen = append(seen, now)
		}
		return booted() == rollout("gpu").Spec.Image, nil
	})
	w.updated("gpu")
	w.updated("infra")
	if len(seen) < 2 || seen[len(seen)-2] != first {
		t.Errorf("the node ran %v; it was to finish %s first", seen, first)
	}
	w.must(w.Get(w.ctx, client.ObjectKey{Name: moved}, node))
	if node.Spec.Unschedulable || node.Labels[keys.LabelNodePool] != "gpu" {
		t.Errorf("node: unschedulable %t, labels %v", node.Spec.Unschedulable, node.Labels)
	}
}
