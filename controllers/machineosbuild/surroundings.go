package machineosbuild

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	keys "github.com/imagemode/imagemode/api/machineconfiguration"
)

const (
	reasonSingleNode      = "SingleNode"
	reasonUpdaterConflict = "UpdaterConflict"
	// fewNodes is as many as it takes to tell one node from several, before and
	// after a node came or went.
	fewNodes = 3
)

// checkOtherBuilder: two builders would build everything twice, and take turns
// with the same conditions.
func checkOtherBuilder(s *scope) *problem {
	if !s.rivals.Builder {
		return nil
	}
	return s.wait(reasonUpdaterConflict, "%s", s.conflicts()[0])
}

// conflicts says who else does what this program does.
func (s *scope) conflicts() []string {
	var found []string
	if s.rivals.Builder {
		found = append(found, fmt.Sprintf("Deployment %s in namespace %s builds images, too, so nothing is built here; "+
			"scale it to 0 and keep it there (docs/openshift.md), or run this program with --controllers=-machineosbuild",
			keys.DeploymentMachineOSBuilder, s.namespace))
	}
	if s.rivals.Daemon && s.isRollingOut {
		found = append(found, fmt.Sprintf("DaemonSet %s in namespace %s takes nodes to their images, so nothing is handed to them here; "+
			"remove it from the nodes (docs/openshift.md), or run this program with --controllers=-hand-off,-rollout",
			keys.DaemonSetMachineConfigDaemon, s.namespace))
	}
	return found
}

// conflictCondition is UpdaterConflict; nil: there is no conflict.
func conflictCondition(s *scope) *metav1.Condition {
	found := s.conflicts()
	if len(found) == 0 {
		return nil
	}
	conflict := condition(keys.ConditionUpdaterConflict, metav1.ConditionTrue, reasonUpdaterConflict, strings.Join(found, "; "))
	return &conflict
}

// checkSingleNode: the one node of a cluster that is its control plane belongs
// to no other pool, so an image of one would never run.
func checkSingleNode(s *scope) *problem {
	isLeaving := s.config.DeletionTimestamp != nil
	if s.onlyNode == "" || isLeaving || keys.IsControlPlanePool(s.pool.Name, s.pool.Spec.NodeSelector) {
		return nil
	}
	return s.invalid(reasonSingleNode, "spec.machineConfigPool.name: this cluster has a single node, %s, and only its control-plane pool can have an image; "+
		"MachineConfigPool %s is another: delete this MachineOSConfig, and create one for the pool of the node (label %s)", s.onlyNode, s.pool.Name, keys.LabelNodePool)
}

// gatherSurroundings reads what of the cluster as a whole matters to builds.
func (g *gatherer) gatherSurroundings(ctx context.Context, s *scope) error {
	nodes, err := g.fewNodes(ctx)
	if err != nil {
		return err
	}
	if len(nodes) == 1 && keys.IsControlPlaneNode(nodes[0].Labels) {
		s.onlyNode = nodes[0].Name
	}
	s.isRollingOut = !g.options.BuildsOnly
	s.rivals, err = g.rivals.Look(ctx)
	return err
}

// +kubebuilder:rbac:groups="",resources=nodes,verbs=get;list;watch

// fewNodes returns nodes of the cluster, at most fewNodes: it may have thousands.
func (g *gatherer) fewNodes(ctx context.Context) ([]corev1.Node, error) {
	var nodes corev1.NodeList
	if err := g.reader.List(ctx, &nodes, client.Limit(fewNodes), client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list Nodes: %w", err)
	}
	return nodes.Items, nil
}

// requestsForNode enqueues all MachineOSConfigs while the cluster is so small that
// a node more or less changes what they may ask for.
func (r *configReconciler) requestsForNode(ctx context.Context, _ client.Object) []reconcile.Request {
	if nodes, err := r.gatherer.fewNodes(ctx); err != nil || len(nodes) >= fewNodes {
		return nil
	}
	return r.allConfigs(ctx)
}
