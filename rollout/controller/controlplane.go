package controller

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/imagemode/imagemode/api/machineconfiguration"
	"github.com/imagemode/imagemode/api/v1alpha1"
)

// isControlPlane: arbiters, which have a vote in etcd and little else, count.
func isControlPlane(node *corev1.Node) bool {
	return machineconfiguration.IsControlPlaneNode(node.Labels)
}

// holdForControlPlane: etcd must keep its quorum, so that no control-plane node
// goes down while another is down already, whichever rollout it belongs to. A
// node in a slot of this rollout is counted elsewhere.
func holdForControlPlane(s *Scope) Hold {
	held := troubleOfControlPlane(s)
	if held.Reason == "" || !slices.ContainsFunc(s.selected(), func(n *Node) bool { return isControlPlane(n.Node) }) {
		return Hold{}
	}
	return held
}

func troubleOfControlPlane(s *Scope) Hold {
	var down []string
	for _, node := range s.Cluster.ControlPlane {
		if s.slot(node) == nil && !(&Node{Node: node}).isReady() {
			down = append(down, whyOut(node))
		}
	}
	switch {
	case len(down) > 0:
		return Hold{"ControlPlaneNotReady", advise("no control-plane node is taken out of service while others are not Ready: "+list(down), "bring it back, or delete the Node if it is gone for good")}
	case s.Cluster.Etcd != "":
		return Hold{"EtcdNotReady", "no control-plane node is taken out of service while etcd is not whole: " + s.Cluster.Etcd}
	}
	return Hold{}
}

// isWithoutOthers says whether a control-plane node would be the only one out of
// service: one at a time, whatever maxUnavailable says. A node that another
// rollout has a slot for may not be cordoned yet.
func (t *turn) isWithoutOthers(n *Node) bool {
	if !isControlPlane(n.Node) {
		return true
	}
	return !t.hasControlPlaneSlot && !slices.ContainsFunc(t.Cluster.ControlPlane, func(other *corev1.Node) bool {
		return other.UID != n.UID && (t.Cluster.InSlots[other.UID] || (&Node{Node: other}).isUnavailable())
	})
}

// waitsForControlPlane names what keeps nodes of the control plane from their turn for
// a while, though nothing holds the rollout: another one in a slot.
func waitsForControlPlane(s *Scope) string {
	var out []string
	isWaiting := false
	for _, node := range s.Cluster.ControlPlane {
		if s.slot(node) == nil && s.Cluster.InSlots[node.UID] {
			out = append(out, node.Name)
		}
	}
	for _, node := range s.selected() {
		isIt := len(out) == 1 && out[0] == node.Name // it may go itself
		isWaiting = isWaiting || isControlPlane(node.Node) && !node.runs(s.target()) && s.slot(node.Node) == nil && !isIt
	}
	if len(out) == 0 || !isWaiting {
		return ""
	}
	return fmt.Sprintf("; nodes of the control plane go one at a time and wait for %s, in a slot of another ImageRollout", list(out))
}

// readControlPlane reads the control-plane nodes, the slots of other rollouts, and
// what is wrong with etcd, from the API server.
func (r *Reconciler) readControlPlane(ctx context.Context, scope *Scope) (err error) {
	nodes := map[types.UID]*corev1.Node{}
	for _, role := range machineconfiguration.ControlPlaneLabels {
		found := &corev1.NodeList{}
		if err := r.Live.List(ctx, found, client.HasLabels{role}); err != nil {
			return fmt.Errorf("control-plane nodes could not be listed: %w", err)
		}
		for i := range found.Items {
			nodes[found.Items[i].UID] = &found.Items[i]
		}
	}
	byName := func(a, b *corev1.Node) int { return strings.Compare(a.Name, b.Name) }
	scope.Cluster.ControlPlane = slices.SortedFunc(maps.Values(nodes), byName)
	rollouts := &v1alpha1.ImageRolloutList{}
	if err := r.Live.List(ctx, rollouts); err != nil {
		return fmt.Errorf("ImageRollouts could not be listed: %w", err)
	}
	scope.Cluster.InSlots = slotsOfOthers(scope.Rollout, rollouts.Items)
	scope.Cluster.Etcd, err = r.readEtcd(ctx)
	return err
}

// etcdPods are where the pods of etcd are found: kubeadm and most others run
// them as static pods in kube-system, OpenShift in a namespace of its own.
var etcdPods = []struct{ namespace, key, value string }{
	{metav1.NamespaceSystem, "component", "etcd"},
	{"openshift-etcd", "app", "etcd"},
}

// readEtcd says which pods of etcd are not Ready; empty when all are, or when
// etcd does not run as pods.
func (r *Reconciler) readEtcd(ctx context.Context) (string, error) {
	var unready []string
	for _, where := range etcdPods {
		pods := &corev1.PodList{}
		err := r.Live.List(ctx, pods, client.InNamespace(where.namespace), client.MatchingLabels{where.key: where.value})
		if err != nil {
			return "", fmt.Errorf("pods of etcd in namespace %s could not be listed: %w", where.namespace, err)
		}
		for i := range pods.Items {
			if pod := &pods.Items[i]; !isPodReady(pod) {
				unready = append(unready, pod.Namespace+"/"+pod.Name+" is not Ready")
			}
		}
	}
	return list(unready), nil
}

func isPodReady(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(condition corev1.PodCondition) bool {
		return condition.Type == corev1.PodReady && condition.Status == corev1.ConditionTrue
	})
}

// grantsControlPlane says whether a control-plane node is among the slots.
func grantsControlPlane(scope *Scope, grants []v1alpha1.Slot) bool {
	return slices.ContainsFunc(grants, func(slot v1alpha1.Slot) bool {
		node := scope.node(slot)
		return node != nil && isControlPlane(node.Node)
	})
}
