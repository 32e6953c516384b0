//go:build envtest

package scale

import (
	"cmp"
	"fmt"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	keys "github.com/imagemode/imagemode/api/machineconfiguration"
	"github.com/imagemode/imagemode/api/v1alpha1"
	"github.com/imagemode/imagemode/test/builders"
)

func nodeName(i int) string { return fmt.Sprintf("node-%04d", i) }

func deployment(image string) *v1alpha1.HostImage {
	_, digest, _ := strings.Cut(image, "@")
	return &v1alpha1.HostImage{Image: image, Digest: digest}
}

// bootedNode is a node of a pool with what its agent reports: it runs an image.
func bootedNode(i int, pool, image string) (*corev1.Node, *v1alpha1.NodeImage) {
	node := builders.Node(nodeName(i), pool, builders.Labelled(keys.LabelNodePool, pool))
	object := &v1alpha1.NodeImage{
		ObjectMeta: metav1.ObjectMeta{Name: node.Name},
		Spec:       v1alpha1.NodeImageSpec{Rollout: pool, Phase: v1alpha1.PhaseStaged, DesiredImage: image},
		Status:     v1alpha1.NodeImageStatus{BootID: node.Status.NodeInfo.BootID, Booted: deployment(image)},
	}
	return node, object
}

// Times that the steps of a node take: longer than anything is put together for.
const (
	pullTime = 1500 * time.Millisecond
	bootTime = 1500 * time.Millisecond
)

// machines plays the kubelets and agents of nodes: they stage what they are told
// to, and boot it. Agents write as often as the real one does about a download of
// seconds: when it has ended, and after the boot. One that takes longer is one
// write more.
type machines struct {
	*world
	mutex sync.Mutex
	// held are nodes that do not boot for the time being.
	held map[string]bool
	busy map[string]bool
	// running is what nodes have booted, whatever becomes of their NodeImages.
	running map[string]string
}

// playMachines plays them until the test ends.
func (w *world) playMachines() *machines {
	m := &machines{world: w, held: map[string]bool{}, busy: map[string]bool{}, running: map[string]string{}}
	stream, err := w.Watch(w.ctx, &v1alpha1.NodeImageList{})
	w.must(err)
	var ended sync.WaitGroup
	ended.Go(func() {
		for event := range stream.ResultChan() {
			if image, isOne := event.Object.(*v1alpha1.NodeImage); isOne && event.Type != watch.Deleted {
				m.look(image)
			}
		}
	})
	w.Cleanup(func() { stream.Stop(); ended.Wait() })
	return m
}

// look begins what a node is told to do, unless it is at it.
func (m *machines) look(image *v1alpha1.NodeImage) {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	if m.busy[image.Name] || image.Spec.DesiredImage == "" {
		return
	}
	wanted := deployment(image.Spec.DesiredImage).Digest
	isBooted := image.Status.Booted != nil && image.Status.Booted.Digest == wanted
	isStaged := image.Status.Staged != nil && image.Status.Staged.Digest == wanted
	var step func(name, image string)
	switch {
	case isBooted:
	case image.Status.Booted == nil:
		step = m.report
	case !isStaged:
		step = m.stage
	case image.Spec.Phase == v1alpha1.PhaseBooted && !m.held[image.Name]:
		step = m.boot
	}
	if step == nil {
		return
	}
	m.busy[image.Name] = true
	go m.work(image.Name, image.Spec.DesiredImage, step)
}

// work does one step, and looks for the next.
func (m *machines) work(name, image string, step func(name, image string)) {
	step(name, image)
	m.mutex.Lock()
	delete(m.busy, name)
	m.mutex.Unlock()
	m.again(name)
}

func (m *machines) again(name string) {
	image := &v1alpha1.NodeImage{}
	if err := m.Get(m.ctx, client.ObjectKey{Name: name}, image); err == nil {
		m.look(image)
	}
}

// hold keeps a node from booting, or lets it go on.
func (m *machines) hold(name string, isHeld bool) {
	m.mutex.Lock()
	m.held[name] = isHeld
	m.mutex.Unlock()
	m.again(name)
}

// report is the first word of an agent about a new NodeImage.
func (m *machines) report(name, _ string) {
	m.mutex.Lock()
	image := cmp.Or(m.running[name], "registry.example.com/os/installed@"+strings.Split(baseImage, "@")[1])
	m.mutex.Unlock()
	m.status(name, func(status *v1alpha1.NodeImageStatus, bootID string) {
		status.BootID, status.Booted = bootID, deployment(image)
	})
}

func (m *machines) stage(name, image string) {
	time.Sleep(pullTime)
	m.status(name, func(status *v1alpha1.NodeImageStatus, _ string) {
		status.Staged = deployment(image)
		status.Staged.DownloadOnly = true
		meta.SetStatusCondition(&status.Conditions, metav1.Condition{Type: v1alpha1.ConditionStaged, Status: metav1.ConditionTrue, Reason: "Staged"})
	})
}

func (m *machines) boot(name, image string) {
	m.kubelet(name, func(node *corev1.Node) { node.Status.Conditions[0].Status = corev1.ConditionFalse })
	time.Sleep(bootTime)
	m.kubelet(name, func(node *corev1.Node) {
		node.Status.Conditions[0].Status = corev1.ConditionTrue
		node.Status.NodeInfo.BootID += "+"
	})
	m.mutex.Lock()
	m.running[name] = image
	m.mutex.Unlock()
	m.status(name, func(status *v1alpha1.NodeImageStatus, bootID string) {
		status.BootID, status.Booted, status.Staged = bootID, deployment(image), nil
	})
}

// kubelet writes the status of a Node.
func (m *machines) kubelet(name string, change func(*corev1.Node)) {
	for m.ctx.Err() == nil {
		node := &corev1.Node{}
		if err := m.Get(m.ctx, client.ObjectKey{Name: name}, node); err != nil {
			return
		}
		change(node)
		if m.Status().Update(m.ctx, node) == nil {
			return
		}
	}
}

// status writes the status of a NodeImage, as the agent on the node.
func (m *machines) status(name string, change func(status *v1alpha1.NodeImageStatus, bootID string)) {
	for m.ctx.Err() == nil {
		image, node := &v1alpha1.NodeImage{}, &corev1.Node{}
		if m.Get(m.ctx, client.ObjectKey{Name: name}, image) != nil || m.Get(m.ctx, client.ObjectKey{Name: name}, node) != nil {
			return
		}
		change(&image.Status, node.Status.NodeInfo.BootID)
		image.Status.ObservedGeneration = image.Generation
		if m.agents.Status().Update(m.ctx, image) == nil {
			return
		}
	}
}
