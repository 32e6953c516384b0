package agent

import (
	"slices"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/imagemode/imagemode/api/v1alpha1"
)

// waits takes the times that nodes wait for the controller. It is safe for
// concurrent use.
type waits struct {
	mutex   sync.Mutex
	allowed int
	nodes   map[string]*waitingNode
	// places are since when one more node could be taken out of service; free are
	// those of the nodes that came back.
	free []time.Time
	took map[string][]time.Duration
}

// waitingNode is what was seen of a node; a time that is zero is over.
type waitingNode struct {
	isCordoned, isOrdered, isReady, runsImage bool
	boot, reported                            string
	// toBoot: since it was cordoned, without a pod, it waits for the order to boot.
	// toServe: since it is back on the image, it waits for being uncordoned.
	toBoot, toServe time.Time
}

// What nodes wait for.
const (
	waitForPlace  = "from a free place to the next node's cordon"
	waitForOrder  = "from the cordon to the order to boot"
	waitForReturn = "from being back to being uncordoned"
)

var waitKinds = []string{waitForPlace, waitForOrder, waitForReturn}

func newWaits(allowed int) *waits {
	return &waits{allowed: allowed, nodes: map[string]*waitingNode{}, took: map[string][]time.Duration{}}
}

func (w *waits) node(name string) *waitingNode {
	if w.nodes[name] == nil {
		w.nodes[name] = &waitingNode{}
	}
	return w.nodes[name]
}

// end notes how long a wait took, and ends it.
func (w *waits) end(kind string, since *time.Time, now time.Time) {
	if !since.IsZero() {
		w.took[kind] = append(w.took[kind], now.Sub(*since))
	}
	*since = time.Time{}
}

func (w *waits) seeNode(node *corev1.Node, now time.Time) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	n := w.node(node.Name)
	n.boot, n.isReady = node.Status.NodeInfo.BootID, isReady(node)
	switch {
	case node.Spec.Unschedulable && !n.isCordoned:
		if len(w.free) > 0 { // the one that waits longest
			w.end(waitForPlace, &w.free[0], now)
			w.free = w.free[1:]
		}
		n.toBoot = now
	case !node.Spec.Unschedulable && n.isCordoned:
		w.end(waitForReturn, &n.toServe, now)
		w.free = append(w.free, now)
	}
	n.isCordoned = node.Spec.Unschedulable
	w.lookForReturn(n, now)
}

func (w *waits) seeImage(image *v1alpha1.NodeImage, now time.Time) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	n := w.node(image.Name)
	isOrdered := image.Spec.Phase == v1alpha1.PhaseBooted
	if isOrdered && !n.isOrdered {
		w.end(waitForOrder, &n.toBoot, now)
	}
	n.isOrdered, n.reported = isOrdered, image.Status.BootID
	booted := image.Status.Booted
	n.runsImage = booted != nil && image.Spec.DesiredImage != "" && booted.Image == image.Spec.DesiredImage
	w.lookForReturn(n, now)
}

// lookForReturn: kubelet and agent both report the new boot, on the image.
func (w *waits) lookForReturn(n *waitingNode, now time.Time) {
	isBack := n.isCordoned && n.isReady && n.runsImage && n.boot == n.reported
	if isBack && n.toServe.IsZero() {
		n.toServe = now
	}
}

// progress is how many nodes are updated and in service, and how many are out.
func (w *waits) progress() (done, out int) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	for _, n := range w.nodes {
		switch {
		case n.isCordoned:
			out++
		case n.runsImage && n.isReady && n.boot == n.reported:
			done++
		}
	}
	return done, out
}

// quantiles are, of what nodes waited for, the middle, the 99th percentile and
// the longest.
func (w *waits) quantiles(kind string) (middle, most, longest time.Duration) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	took := slices.Sorted(slices.Values(w.took[kind]))
	if len(took) == 0 {
		return 0, 0, 0
	}
	return took[len(took)/2], took[len(took)*99/100], took[len(took)-1]
}

// longest is the longest of all waits so far, and what for.
func (w *waits) longest() (worst time.Duration, of string) {
	for _, kind := range waitKinds {
		if _, _, longest := w.quantiles(kind); longest > worst {
			worst, of = longest, kind
		}
	}
	return worst, of
}

func isReady(node *corev1.Node) bool {
	return slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}

func TestWaits(t *testing.T) {
	begin := time.Now()
	at := func(seconds int) time.Time { return begin.Add(time.Duration(seconds) * time.Second) }
	w := newWaits(1)
	see := func(seconds int, isCordoned bool, boot string) {
		node := &corev1.Node{}
		node.Name, node.Spec.Unschedulable, node.Status.NodeInfo.BootID = "a", isCordoned, boot
		node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
		w.seeNode(node, at(seconds))
	}
	report := func(seconds int, phase v1alpha1.NodeImagePhase, booted, boot string) {
		image := &v1alpha1.NodeImage{Spec: v1alpha1.NodeImageSpec{Phase: phase, DesiredImage: "new"}}
		image.Name, image.Status.BootID, image.Status.Booted = "a", boot, &v1alpha1.HostImage{Image: booted}
		w.seeImage(image, at(seconds))
	}
	see(0, false, "1")
	report(0, v1alpha1.PhaseStaged, "old", "1")
	see(10, true, "1")
	report(12, v1alpha1.PhaseBooted, "old", "1")
	see(20, true, "2")
	report(30, v1alpha1.PhaseBooted, "new", "2")
	see(33, false, "2")
	if done, out := w.progress(); done != 1 || out != 0 {
		t.Errorf("%d done, %d out", done, out)
	}
	for kind, want := range map[string]time.Duration{waitForOrder: 2 * time.Second, waitForReturn: 3 * time.Second} {
		if _, _, longest := w.quantiles(kind); longest != want {
			t.Errorf("%s: %s, want %s", kind, longest, want)
		}
	}
	see(40, true, "2")
	if _, _, longest := w.quantiles(waitForPlace); longest != 7*time.Second {
		t.Errorf("%s: %s, want 7s", waitForPlace, longest)
	}
}
