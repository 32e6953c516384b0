package controller

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/imagemode/imagemode/api/v1alpha1"
)

// Scope is everything that decides about one rollout, at one moment.
type Scope struct {
	Now     time.Time
	Rollout *v1alpha1.ImageRollout
	// Nodes are those that the rollout selects, holds a slot for, or still has
	// a NodeImage for; oldest first, then by name.
	Nodes []Node
	// HasNewNodes: the nodes are known to be as the API server had them a moment ago.
	HasNewNodes bool
	// PullSecretHash is what agents wait for before they use the secret.
	PullSecretHash string
	// SelectorProblem says what is wrong with spec.nodeSelector; empty: nothing. The
	// rollout then keeps the nodes that it has, as they are.
	SelectorProblem string
	// MissingTemplate names the CronJob of a gate that does not exist, or may not be read;
	// empty: all are there.
	MissingTemplate string
	// Problem is what keeps new nodes from staging (the pull secret is missing,
	// say), or empty.
	Problem string
	// Refused are the nodes for which the API server refuses what this pass wrote.
	Refused map[string]error
	// Cluster is what matters of the nodes outside the rollout.
	Cluster Cluster

	// bySlot and byNode find slots and nodes by the node's UID.
	bySlot, byNode map[string]int
	// isIndexed: counted, failed, and what is known of each node are worked out.
	isIndexed bool
	counted   []*Node       // the selected nodes
	failed    []nodeFailure // see failedNodes
	// checked is what live has found.
	checked *checkedLive
}

// Cluster is what a rollout has to know about the cluster as a whole.
type Cluster struct {
	// Nodes is how many there are.
	Nodes int
	// ControlPlane are the control-plane nodes, of whatever rollout.
	ControlPlane []*corev1.Node
	// InSlots are the nodes, by UID, that other rollouts have slots for.
	InSlots map[types.UID]bool
	// ControllerNode is the node that this controller runs on; empty when it
	// does not know.
	ControllerNode string
	// Etcd says what is wrong with etcd, or is empty. It is looked at before a
	// control-plane node gets a slot.
	Etcd string
}

// after is the scope as it will be when the slots are written.
func (s *Scope) after(slots []v1alpha1.Slot, skipped []v1alpha1.SkippedNode) *Scope {
	next := *s
	next.Rollout, next.bySlot = s.Rollout.DeepCopy(), nil
	next.Rollout.Status.Slots, next.Rollout.Status.Skipped = slots, skipped
	next.index()
	return &next
}

// index works out, once for all, what is asked of thousands of nodes again and again,
// and by several at the same time.
func (s *Scope) index() {
	s.isIndexed = false
	s.slot(&corev1.Node{})
	s.node(v1alpha1.Slot{})
	for i := range s.Nodes {
		s.Nodes[i].learn(s)
	}
	s.counted, s.failed = s.selected(), failedNodes(s)
	s.isIndexed = true
}

// isSingleNode: there is nowhere to move pods to, and a controller that cordons
// its only node may never be scheduled again.
func (s *Scope) isSingleNode() bool { return s.Cluster.Nodes == 1 }

// Node is a node with what its agent reports.
type Node struct {
	*corev1.Node
	// Image is nil when the node has none yet.
	Image *v1alpha1.NodeImage
	// IsSelected says whether the rollout's selector selects the node now.
	IsSelected bool
	// Claimant names another rollout that selects the node too, or that has it
	// in a slot; the node is then left to that one.
	Claimant string
	// isEnding: the claimant does not select the node any more, and gives it up at the
	// end of what it has begun on it.
	isEnding bool
	known    known
}

// target is the image to bring to the nodes; empty when there is none, or no more.
func (s *Scope) target() string {
	if s.Rollout.DeletionTimestamp != nil {
		return ""
	}
	return s.Rollout.Spec.Image
}

// slot returns the slot that a node holds: by UID, or a node that was deleted
// and made anew would inherit it.
func (s *Scope) slot(node *corev1.Node) *v1alpha1.Slot {
	slots := s.Rollout.Status.Slots
	if len(s.bySlot) != len(slots) {
		s.bySlot = make(map[string]int, len(slots))
		for i := range slots {
			s.bySlot[slots[i].NodeUID] = i
		}
	}
	if i, isThere := s.bySlot[string(node.UID)]; isThere && slots[i].Node == node.Name {
		return &slots[i]
	}
	return nil
}

// node returns the node of a slot, nil when it is gone.
func (s *Scope) node(slot v1alpha1.Slot) *Node {
	if len(s.byNode) != len(s.Nodes) {
		s.byNode = make(map[string]int, len(s.Nodes))
		for i := range s.Nodes {
			s.byNode[string(s.Nodes[i].UID)] = i
		}
	}
	if i, isThere := s.byNode[slot.NodeUID]; isThere && s.Nodes[i].Name == slot.Node {
		return &s.Nodes[i]
	}
	return nil
}

// counts says whether the node is the rollout's to update.
func (n *Node) counts() bool { return n.IsSelected && n.Claimant == "" }

// selected are the nodes that count; nobody may change the list.
func (s *Scope) selected() []*Node {
	if s.isIndexed {
		return s.counted
	}
	nodes := make([]*Node, 0, len(s.Nodes))
	for i := range s.Nodes {
		if s.Nodes[i].counts() {
			nodes = append(nodes, &s.Nodes[i])
		}
	}
	return nodes
}

func (n *Node) readyCondition() corev1.NodeCondition {
	for _, condition := range n.Status.Conditions {
		if condition.Type == corev1.NodeReady {
			return condition
		}
	}
	return corev1.NodeCondition{Status: corev1.ConditionUnknown}
}

func (n *Node) isReady() bool {
	if n.isKnown() {
		return n.known.isReady
	}
	return n.readyCondition().Status == corev1.ConditionTrue
}

// isUnavailable: for the workload it does not matter who made the node so.
func (n *Node) isUnavailable() bool { return !n.isReady() || n.Spec.Unschedulable }

// isCurrent says whether the agent's report is from the boot that the kubelet
// reports: after a reboot, the old report stands until the agent is back.
func (n *Node) isCurrent() bool {
	if n.isKnown() {
		return n.known.isCurrent
	}
	return n.Image != nil && n.Image.Status.BootID != "" && n.Image.Status.BootID == n.Status.NodeInfo.BootID
}

// runs says whether the node is booted into the image now.
func (n *Node) runs(image string) bool {
	if n.isKnown() && n.known.target == image {
		return n.known.runs
	}
	return n.isCurrent() && holds(n.Image.Status.Booted, image)
}

// isUpdated says whether nothing is left to do for the node.
func (n *Node) isUpdated(image string) bool { return n.runs(image) && n.isReady() }

// hasStaged says whether the node holds the image ready, locked against an
// unplanned reboot; where its bootc cannot lock, the agent says so.
func (n *Node) hasStaged(image string) bool {
	if !n.isCurrent() || !holds(n.Image.Status.Staged, image) {
		return false
	}
	return n.Image.Status.Staged.DownloadOnly || n.reason(v1alpha1.ConditionStaged) == reasonStagedUnlocked
}

// reasonStagedUnlocked is the agent's word for an image that its bootc cannot lock.
const reasonStagedUnlocked = "StagedUnlocked"

// reason is the reason of a condition that the agent reports.
func (n *Node) reason(kind string) string {
	for _, condition := range n.Image.Status.Conditions {
		if condition.Type == kind {
			return condition.Reason
		}
	}
	return ""
}

// failure is the attempt that failed for good with the image, or nil. Under a
// new retry token an old failure does not count.
func (n *Node) failure(image, retryToken string) *v1alpha1.Attempt {
	if image == "" || n.Image == nil {
		return nil
	}
	status := &n.Image.Status
	if (status.LastAttempt == nil && len(status.FailedImages) == 0) || n.runs(image) {
		return nil // the first is quick to see, and of thousands of nodes nearly all are so
	}
	isIt := func(a v1alpha1.Attempt) bool { return a.Permanent && a.Image == image && a.RetryToken == retryToken }
	if last := status.LastAttempt; last != nil && isIt(*last) {
		return last
	}
	if i := slices.IndexFunc(status.FailedImages, isIt); i >= 0 {
		return &status.FailedImages[i]
	}
	return nil
}

// isStuckStaging says whether the download of the image fails again and again.
func (n *Node) isStuckStaging(image string) bool {
	if n.Image == nil || n.Image.Status.LastAttempt == nil {
		return false
	}
	last := n.Image.Status.LastAttempt
	return last.Failures >= stubbornFailures && last.Class != "" && last.Image == image && !n.runs(image)
}

// holds says whether a deployment is the image. The reference may be pinned to
// an index, whose digest is not that of the manifest: either matches.
func holds(deployment *v1alpha1.HostImage, image string) bool {
	_, digest, ok := strings.Cut(image, "@")
	if deployment == nil || !ok {
		return false
	}
	if deployment.Digest == digest {
		return true
	}
	_, pinned, _ := strings.Cut(deployment.Image, "@")
	return pinned == digest
}

// gather reads nodes and their images through the reader: the cache for a look,
// the API server before a slot is granted.
func gather(ctx context.Context, reader client.Reader, rollout *v1alpha1.ImageRollout, now time.Time) (*Scope, error) {
	nodes := &corev1.NodeList{}
	images := &v1alpha1.NodeImageList{}
	rollouts := &v1alpha1.ImageRolloutList{}
	for _, list := range []client.ObjectList{nodes, images, rollouts} {
		// Nothing in here is changed: copies of thousands of objects take their time.
		if err := reader.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
			return nil, err
		}
	}
	byName := make(map[string]*v1alpha1.NodeImage, len(images.Items))
	for i := range images.Items {
		byName[images.Items[i].Name] = &images.Items[i]
	}
	scope := &Scope{Now: now, Rollout: rollout, Cluster: Cluster{Nodes: len(nodes.Items)}}
	selector, err := selectorOf(rollout)
	if err != nil {
		scope.SelectorProblem = err.Error()
	}
	scope.Cluster.InSlots = slotsOfOthers(rollout, rollouts.Items)
	rivals := rivalsOf(rollout, rollouts.Items)
	for i := range nodes.Items {
		object := &nodes.Items[i]
		if isControlPlane(object) {
			scope.Cluster.ControlPlane = append(scope.Cluster.ControlPlane, object)
		}
		node := Node{Node: object, Image: imageOf(object, byName[object.Name])}
		isOurs := node.belongsTo(rollout.Name)
		isKept := scope.SelectorProblem != "" && isOurs
		node.IsSelected = isKept || selector.Matches(labels.Set(object.Labels))
		if !node.IsSelected && !isOurs && scope.slot(object) == nil {
			continue
		}
		if !isKept {
			node.Claimant, node.isEnding = rivals.claimant(&node, rollout)
		}
		scope.Nodes = append(scope.Nodes, node)
	}
	slices.SortFunc(scope.Nodes, inOrder)
	scope.index()
	return scope, nil
}

func slotsOfOthers(rollout *v1alpha1.ImageRollout, all []v1alpha1.ImageRollout) map[types.UID]bool {
	nodes := map[types.UID]bool{}
	for i := range all {
		if all[i].Name == rollout.Name {
			continue
		}
		for _, slot := range all[i].Status.Slots {
			nodes[types.UID(slot.NodeUID)] = true
		}
	}
	return nodes
}

// imageOf leaves out the NodeImage of an earlier node of the same name: the
// garbage collector is about to remove it.
func imageOf(node *corev1.Node, image *v1alpha1.NodeImage) *v1alpha1.NodeImage {
	if image == nil {
		return nil
	}
	for _, owner := range image.OwnerReferences {
		if owner.Kind == "Node" && owner.UID != node.UID {
			return nil
		}
	}
	return image
}

func inOrder(a, b Node) int {
	if order := a.CreationTimestamp.Compare(b.CreationTimestamp.Time); order != 0 {
		return order
	}
	return strings.Compare(a.Name, b.Name)
}

// belongsTo says whether the node's NodeImage is a rollout's.
func (n *Node) belongsTo(rollout string) bool {
	return n.Image != nil && n.Image.Spec.Rollout == rollout
}

// selectorOf: a rollout without a selector has no nodes, and with one that is not
// valid it selects none.
func selectorOf(rollout *v1alpha1.ImageRollout) (labels.Selector, error) {
	if rollout.Spec.NodeSelector == nil {
		return labels.Nothing(), nil
	}
	selector, err := metav1.LabelSelectorAsSelector(rollout.Spec.NodeSelector)
	if err != nil {
		return labels.Nothing(), fmt.Errorf("spec.nodeSelector is not valid, so the rollout keeps the nodes that it has, as they are: %w", err)
	}
	return selector, nil
}

// rivals are the other rollouts that may lay claim to a node.
type rivals []rival

type rival struct {
	rollout *v1alpha1.ImageRollout
	// selector is nil for a rollout whose selection does not count: it is being
	// deleted, or it comes later.
	selector labels.Selector
	// wanted is nil for a rollout that is being deleted only.
	wanted labels.Selector
	// isKeeping: its selector is not valid, and it keeps the nodes that it has.
	isKeeping bool
}

func rivalsOf(rollout *v1alpha1.ImageRollout, all []v1alpha1.ImageRollout) rivals {
	var found rivals
	for i := range all {
		other := &all[i]
		if other.UID == rollout.UID || other.Name == rollout.Name {
			continue
		}
		entry := rival{rollout: other}
		selector, err := selectorOf(other)
		if other.DeletionTimestamp == nil {
			entry.wanted = selector
			if comesFirst(other, rollout) {
				entry.selector = selector
			}
		}
		entry.isKeeping = err != nil && other.DeletionTimestamp == nil
		found = append(found, entry)
	}
	return found
}

// claimant finds another rollout with an older right to the node: it has the
// node in a slot, it keeps what it has, or it selects the node too and comes first by
// age and name. With a slot alone its right ends by itself.
func (r rivals) claimant(node *Node, rollout *v1alpha1.ImageRollout) (name string, isEnding bool) {
	for _, rival := range r {
		if rival.isKeeping && (hasSlot(rival.rollout, node.UID) || node.belongsTo(rival.rollout.Name)) {
			return rival.rollout.Name, false
		}
		if hasSlot(rival.rollout, node.UID) {
			return rival.rollout.Name, rival.wanted == nil || !rival.wanted.Matches(labels.Set(node.Labels))
		}
		if rival.selector != nil && rival.selector.Matches(labels.Set(node.Labels)) && !hasSlot(rollout, node.UID) {
			return rival.rollout.Name, false
		}
	}
	return "", false
}

func hasSlot(rollout *v1alpha1.ImageRollout, node types.UID) bool {
	return slices.ContainsFunc(rollout.Status.Slots, func(slot v1alpha1.Slot) bool { return slot.NodeUID == string(node) })
}

func comesFirst(a, b *v1alpha1.ImageRollout) bool {
	if order := a.CreationTimestamp.Compare(b.CreationTimestamp.Time); order != 0 {
		return order < 0
	}
	return a.Name < b.Name
}
