package story

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// workerLabel marks the nodes that the story is about.
const workerLabel = "node-role.kubernetes.io/worker"

// Workers records every change of the worker nodes that the API server tells
// of: who was out of service when, who rebooted, and how many were out of
// service at the same time. It is safe for concurrent use.
type Workers struct {
	mu             sync.Mutex
	line           func(format string, arguments ...any)
	nodes          map[string]*worker
	maxUnavailable int
}

// worker is one node. bootIDs has one entry per boot that was seen, the first
// being that of the beginning; cordoned is the time since when it is, or zero.
type worker struct {
	ready, schedulable bool
	bootIDs            []string
	cordoned           time.Time
	outages            []time.Duration
}

func newWorkers(line func(string, ...any)) *Workers {
	return &Workers{line: line, nodes: map[string]*worker{}}
}

// watchNodes records until the context ends. It returns when every worker has
// been seen once.
func (s *Story) watchNodes(ctx context.Context) error {
	s.Workers = newWorkers(s.Log.Line)
	nodes, version, err := s.listWorkers(ctx)
	if err != nil {
		return err
	}
	if len(nodes) == 0 {
		return fmt.Errorf("no node has the label %s", workerLabel)
	}
	s.Workers.observeAll(nodes)
	go s.keepWatching(ctx, version)
	return nil
}

// keepWatching watches from a resource version on. When the watch breaks it
// lists again; a change and its reversal in that moment would be missed, but a
// reboot leaves a new boot id behind.
func (s *Story) keepWatching(ctx context.Context, version string) {
	for ctx.Err() == nil {
		if stream, err := s.watchWorkers(ctx, version); err == nil {
			for event := range stream.ResultChan() {
				if node, ok := event.Object.(*corev1.Node); ok && event.Type != watch.Deleted {
					s.Workers.observe(node, time.Now())
				}
			}
			stream.Stop()
		}
		if nodes, newest, err := s.listWorkers(ctx); err == nil {
			s.Workers.observeAll(nodes)
			version = newest
		}
		_ = sleep(ctx, pollInterval)
	}
}

func (s *Story) watchWorkers(ctx context.Context, version string) (watch.Interface, error) {
	options := &client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: version}}
	client.HasLabels{workerLabel}.ApplyToList(options)
	return s.Cluster.Client.Watch(ctx, &corev1.NodeList{}, options)
}

func (s *Story) listWorkers(ctx context.Context) ([]corev1.Node, string, error) {
	var list corev1.NodeList
	if err := s.Cluster.Client.List(ctx, &list, client.HasLabels{workerLabel}); err != nil {
		return nil, "", err
	}
	return list.Items, list.ResourceVersion, nil
}

func (w *Workers) observeAll(nodes []corev1.Node) {
	for i := range nodes {
		w.observe(&nodes[i], time.Now())
	}
}

// observe takes in one state of one node and prints what changed.
func (w *Workers) observe(node *corev1.Node, now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	ready, schedulable, bootID := isReady(node), !node.Spec.Unschedulable, node.Status.NodeInfo.BootID
	known, ok := w.nodes[node.Name]
	if !ok {
		w.nodes[node.Name] = &worker{ready: ready, schedulable: schedulable, bootIDs: []string{bootID}}
		w.maxUnavailable = max(w.maxUnavailable, w.unavailable())
		return
	}
	if bootID != known.bootIDs[len(known.bootIDs)-1] {
		known.bootIDs = append(known.bootIDs, bootID)
		w.line("%s: has rebooted", node.Name)
	}
	if ready != known.ready {
		w.line("%s: %s", node.Name, map[bool]string{true: "Ready", false: "NotReady"}[ready])
	}
	if schedulable != known.schedulable {
		known.noteCordon(schedulable, now)
		w.line("%s: %s", node.Name, known.describeCordon(schedulable))
	}
	known.ready, known.schedulable = ready, schedulable
	w.maxUnavailable = max(w.maxUnavailable, w.unavailable())
}

func (n *worker) noteCordon(schedulable bool, now time.Time) {
	if !schedulable {
		n.cordoned = now
		return
	}
	if !n.cordoned.IsZero() {
		n.outages = append(n.outages, now.Sub(n.cordoned))
	}
	n.cordoned = time.Time{}
}

func (n *worker) describeCordon(schedulable bool) string {
	switch {
	case !schedulable:
		return "cordoned"
	case len(n.outages) == 0:
		return "uncordoned"
	default:
		return fmt.Sprintf("uncordoned, was out of service for %.1fs", n.outages[len(n.outages)-1].Seconds())
	}
}

func (w *Workers) unavailable() int {
	count := 0
	for _, node := range w.nodes {
		if !node.ready || !node.schedulable {
			count++
		}
	}
	return count
}

// Names returns the workers' names in order.
func (w *Workers) Names() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Sorted(maps.Keys(w.nodes))
}

// MaxUnavailable is the largest number of workers that were NotReady or
// unschedulable at the same time.
func (w *Workers) MaxUnavailable() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.maxUnavailable
}

// Reboots returns how often each worker rebooted.
func (w *Workers) Reboots() map[string]int {
	w.mu.Lock()
	defer w.mu.Unlock()
	reboots := make(map[string]int, len(w.nodes))
	for name, node := range w.nodes {
		reboots[name] = len(node.bootIDs) - 1
	}
	return reboots
}

// Outages returns, per worker, how long it was out of service, from cordon to
// uncordon, each time.
func (w *Workers) Outages() map[string][]time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	outages := make(map[string][]time.Duration, len(w.nodes))
	for name, node := range w.nodes {
		outages[name] = slices.Clone(node.outages)
	}
	return outages
}

// Disturbances names what happened to workers that should have been left alone:
// reboots and times out of service.
func (w *Workers) Disturbances() []error {
	w.mu.Lock()
	defer w.mu.Unlock()
	var found []error
	for _, name := range slices.Sorted(maps.Keys(w.nodes)) {
		node := w.nodes[name]
		if reboots := len(node.bootIDs) - 1; reboots > 0 {
			found = append(found, fmt.Errorf("node %s rebooted %d times", name, reboots))
		}
		if len(node.outages) > 0 || !node.cordoned.IsZero() {
			found = append(found, fmt.Errorf("node %s was cordoned", name))
		}
	}
	return found
}

func isReady(node *corev1.Node) bool {
	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeReady {
			return condition.Status == corev1.ConditionTrue
		}
	}
	return false
}
