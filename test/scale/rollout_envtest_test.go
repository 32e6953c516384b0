//go:build envtest

package scale

import (
	"testing"
	"time"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	keys "github.com/imagemode/imagemode/api/machineconfiguration"
	"github.com/imagemode/imagemode/api/v1alpha1"
	"github.com/imagemode/imagemode/test/builders"
)

// Limits of what one update of one node may write.
const (
	maxRolloutWrites = 12 // on NodeImage, ImageRollout and Node together
	maxViewWrites    = 8  // on MachineConfigNode
	// shared are those of a rollout as a whole (its image, its finalizer, its last
	// numbers), a tenth of which is counted with each of ten nodes.
	shared = 10
)

// aPool makes a pool with nodes and a finished build, and waits until they run it.
func (w *world) aPool(name string, first, nodes int, options ...func(*mcfgv1.MachineConfigPool)) {
	w.Helper()
	w.createAll(builders.MachineConfigPool(name, options...), builders.MachineOSConfig(name),
		builders.MachineConfig("60-"+name, name, builders.File("/etc/pool", name)))
	for i := range nodes {
		w.createAll(builders.Node(nodeName(first+i), name))
	}
	w.build(name)
	w.updated(name)
}

// build finishes the build of a pool's current rendered config, which may not be
// the last one yet, until its rollout has the image.
func (w *world) build(name string) {
	w.Helper()
	w.eventually(name+" has an image", 3*time.Minute, func() (bool, error) {
		pool, rollout := &mcfgv1.MachineConfigPool{}, &v1alpha1.ImageRollout{}
		if err := w.Get(w.ctx, client.ObjectKey{Name: name}, pool); err != nil || pool.Spec.Configuration.Name == "" {
			return false, err
		}
		if err := w.Get(w.ctx, client.ObjectKey{Name: name}, rollout); err == nil && rollout.Spec.Image == imageOf(pool.Spec.Configuration.Name) {
			return true, nil
		}
		return false, w.finishBuild(name)
	})
}

func (w *world) updated(name string) {
	w.Helper()
	w.eventually(name+" is Updated", 3*time.Minute, func() (bool, error) {
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
	w.eventually("rendered", 3*time.Minute, func() (bool, error) {
		err := w.Get(w.ctx, client.ObjectKey{Name: name}, pool)
		return pool.Spec.Configuration.Name != before, err
	})
}

// watchForTears reads nodes again and again, until the answer is called for: never
// does an image stand beside the config of another.
func (w *world) watchForTears(nodes int) func() int {
	ended, looks := make(chan bool), make(chan int)
	go func() {
		count := 0
		for {
			select {
			case <-ended:
				looks <- count
				return
			default:
			}
			w.lookForTears(nodeName(count % nodes))
			count++
		}
	}()
	return func() int {
		close(ended)
		return <-looks
	}
}

func (w *world) lookForTears(name string) {
	check := func(where, config, image string) {
		if image != "" && image != imageOf(config) {
			w.Errorf("%s of %s is torn: %s beside %s", where, name, config, image)
		}
	}
	shown, node := &mcfgv1.MachineConfigNode{}, &corev1.Node{}
	if w.Get(w.ctx, client.ObjectKey{Name: name}, shown) == nil {
		check("spec", shown.Spec.ConfigVersion.Desired, string(shown.Spec.ConfigImage.DesiredImage))
		if version := shown.Status.ConfigVersion; version != nil {
			check("status, desired,", version.Desired, string(shown.Status.ConfigImage.DesiredImage))
			check("status, current,", version.Current, string(shown.Status.ConfigImage.CurrentImage))
		}
	}
	if w.Get(w.ctx, client.ObjectKey{Name: name}, node) == nil {
		check("annotations, desired,", node.Annotations[keys.AnnotationDesiredConfig], node.Annotations[keys.AnnotationDesiredImage])
		check("annotations, current,", node.Annotations[keys.AnnotationCurrentConfig], node.Annotations[keys.AnnotationCurrentImage])
	}
}

// TestWritesOfAnUpdate takes a pool to a new image, two nodes of ten at a time,
// and counts what is written.
func TestWritesOfAnUpdate(t *testing.T) {
	const nodes = 10
	w := start(t)
	w.playMachines()
	w.createAll(builders.MachineConfigPool("worker"))
	w.aPool("infra", 0, nodes, func(pool *mcfgv1.MachineConfigPool) { pool.Spec.MaxUnavailable = new(intstr.FromString("20%")) })
	w.settle(3*time.Second, 3*time.Minute)

	looks := w.watchForTears(nodes)
	begin := time.Now()
	w.change("infra", "second\n")
	w.build("infra")
	w.updated("infra")
	w.settle(3*time.Second, 3*time.Minute)
	t.Logf("%d looks at config and image of the nodes", looks())

	entries, agents := w.writes.since(begin), w.agentWrites.since(begin)
	onRollout := float64(count(append(entries, agents...), "nodeimages", "imagerollouts", "nodes")) / nodes
	onView := float64(count(entries, "machineconfignodes")) / nodes
	t.Logf("one update of %d nodes, per node: %.1f writes on NodeImage, ImageRollout and Node together (limit %d), %.1f on MachineConfigNode (limit %d)",
		nodes, onRollout, maxRolloutWrites, onView, maxViewWrites)
	gap := closest(entries, "machineconfigpools/status")
	t.Logf("the closest two writes of the pool's status: %v apart (limit %v)", gap.Round(time.Millisecond), minStatusInterval)
	t.Logf("writes of the controllers: %v; of the agents: %v", byResource(entries), byResource(agents))
	if onRollout > maxRolloutWrites+shared/nodes || onView > maxViewWrites {
		t.Error("too many writes")
	}
	if gap < minStatusInterval {
		t.Errorf("two writes of the pool's status are %v apart", gap)
	}
}

// TestANodeMovesDuringItsUpdate relabels a node that one rollout has out of
// service: that one finishes, then the other takes over.
func TestANodeMovesDuringItsUpdate(t *testing.T) {
	w := start(t)
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
	w.eventually("the node is to boot", 3*time.Minute, func() (bool, error) {
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
	w.eventually("gpu counts it", 3*time.Minute, func() (bool, error) {
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
	w.eventually("the node runs the image of gpu", 3*time.Minute, func() (bool, error) {
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
