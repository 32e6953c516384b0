package machineosbuild

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	keys "github.com/imagemode/imagemode/api/machineconfiguration"
)

const (
	reasonSingleNode      = "SingleNode"
	reasonUpdaterConflict = "UpdaterConflict"
	// rivalInterval is how long an answer about other updaters is believed.
	rivalInterval = time.Minute
	// fewNodes is as many as it takes to tell one node from several, before and
	// after a node came or went.
	fewNodes = 3
)

// rivals are parts of a machine-config-operator that do the same work.
type rivals struct {
	// builder is a machine-os-builder, daemon a machine-config-daemon.
	builder, daemon bool
}

// rivalWatch looks for them. Deployments and DaemonSets are not watched.
type rivalWatch struct {
	live      client.Reader
	namespace string
	now       func() time.Time

	mutex sync.Mutex
	found rivals
	at    time.Time
}

// +kubebuilder:rbac:groups=apps,namespace=openshift-machine-config-operator,resources=deployments;daemonsets,verbs=get

// look asks the API server, once a minute at most. A nil watch finds nothing.
func (w *rivalWatch) look(ctx context.Context) (rivals, error) {
	if w == nil {
		return rivals{}, nil
	}
	w.mutex.Lock()
	defer w.mutex.Unlock()
	if !w.at.IsZero() && w.now().Sub(w.at) < rivalInterval {
		return w.found, nil
	}
	builder, err := find[appsv1.Deployment](ctx, w.live, w.namespace, keys.DeploymentMachineOSBuilder)
	if err != nil {
		return rivals{}, err
	}
	daemon, err := find[appsv1.DaemonSet](ctx, w.live, w.namespace, keys.DaemonSetMachineConfigDaemon)
	if err != nil {
		return rivals{}, err
	}
	isAtWork := builder != nil && (builder.Spec.Replicas == nil || *builder.Spec.Replicas > 0)
	w.found, w.at = rivals{builder: isAtWork, daemon: daemon != nil}, w.now()
	return w.found, nil
}

// checkOtherBuilder: two builders would build everything twice, and take turns
// with the same conditions.
func checkOtherBuilder(s *scope) *problem {
	if !s.rivals.builder {
		return nil
	}
	return s.wait(reasonUpdaterConflict, "%s", s.conflicts()[0])
}

// conflicts says who else does what this program does.
func (s *scope) conflicts() []string {
	var found []string
	if s.rivals.builder {
		found = append(found, fmt.Sprintf("Deployment %s in namespace %s builds images, too, so nothing is built here; "+
			"scale it to 0 and keep it there (docs/openshift.md), or run this program with --controllers=-machineosbuild",
			keys.DeploymentMachineOSBuilder, s.namespace))
	}
	if s.rivals.daemon && s.isRollingOut {
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
	s.rivals, err = g.rivals.look(ctx)
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
