package story

import (
	"context"
	"fmt"
	"strings"
	"time"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/imagemode/imagemode/api/v1alpha1"
)

// rolloutFollower prints what the nodes do about the image, each thing once.
type rolloutFollower struct {
	story *Story
	seen  map[string]string
}

// rollOut releases the pool and follows it until every node runs the image, in
// service, and the pool says so.
func (s *Story) rollOut(ctx context.Context) error {
	if err := s.setPaused(ctx, Pool, false); err != nil {
		return err
	}
	s.Log.Line("MachineConfigPool %s is released", Pool)
	follower := &rolloutFollower{story: s, seen: map[string]string{}}
	if err := until(ctx, "all workers to run "+s.Image, follower.look); err != nil {
		return err
	}
	s.Log.Line("all workers run the image and are in service")
	if err := until(ctx, "MachineConfigPool "+Pool+" to be Updated", s.poolIsUpdated); err != nil {
		return err
	}
	s.Log.Line("MachineConfigPool %s is Updated", Pool)
	return nil
}

// look is a check: done when all workers run the image and are in service. On a
// terminal it shows all nodes in a table, and what changes as lines elsewhere.
func (f *rolloutFollower) look(ctx context.Context) (string, bool, error) {
	nodes, _, err := f.story.listWorkers(ctx)
	if err != nil {
		return err.Error(), false, nil
	}
	slots := f.slots(ctx)
	var states, news []string
	table := []string{fmt.Sprintf(tableRow, "NODE", "READY", "PHASE", "FOR", "STATE")}
	done := true
	for i := range nodes {
		node := &nodes[i]
		slot := slots[node.Name]
		image, err := f.story.NodeImage(ctx, node.Name)
		if err != nil {
			states = append(states, node.Name+": "+err.Error())
			done = false
			continue
		}
		state := nodeState(image, slot, f.story.Image)
		table = append(table, rowOf(node, slot, state))
		states, news = append(states, node.Name+": "+state), append(news, node.Name+": "+state)
		done = done && runs(image, f.story.Image) && isReady(node) && !node.Spec.Unschedulable
	}
	if !f.story.Log.Table(table) {
		f.print(news)
	}
	return strings.Join(states, "; "), done, nil
}

const tableRow = "  %-12s %-18s %-11s %5s  %s"

// rowOf is a node's line of the table.
func rowOf(node *corev1.Node, slot *v1alpha1.Slot, state string) string {
	service := map[bool]string{true: "Ready", false: "NotReady"}[isReady(node)]
	if node.Spec.Unschedulable {
		service += ",cordoned"
	}
	phase, since := "-", "-"
	if slot != nil {
		phase, since = string(slot.Phase), fmt.Sprintf("%.0fs", time.Since(slot.Since.Time).Seconds())
	}
	return fmt.Sprintf(tableRow, node.Name, service, phase, since, state)
}

// slots returns, per node that is allowed to be out of service, its slot.
func (f *rolloutFollower) slots(ctx context.Context) map[string]*v1alpha1.Slot {
	var rollouts v1alpha1.ImageRolloutList
	if err := f.story.Cluster.Client.List(ctx, &rollouts); err != nil {
		return nil
	}
	slots := map[string]*v1alpha1.Slot{}
	for i := range rollouts.Items {
		for j := range rollouts.Items[i].Status.Slots {
			slot := &rollouts.Items[i].Status.Slots[j]
			slots[slot.Node] = slot
		}
	}
	return slots
}

// print prints what is new.
func (f *rolloutFollower) print(states []string) {
	for _, state := range states {
		node, _, _ := strings.Cut(state, ": ")
		if f.seen[node] != state {
			f.seen[node] = state
			f.story.Log.Line("%s", state)
		}
	}
}

// nodeState says in words how far a node is with an image.
func nodeState(image *v1alpha1.NodeImage, slot *v1alpha1.Slot, reference string) string {
	if slot != nil && slot.Image == reference {
		return joinNonEmpty(slotState(image, slot, reference), slot.Message)
	}
	digest := shortDigest(reference)
	staged := image.Status.Staged
	switch attempt := image.Status.LastAttempt; {
	case runs(image, reference):
		return "runs " + digest
	case attempt != nil && attempt.Class != "" && attempt.Image == reference:
		return fmt.Sprintf("failed, class %s: %s", attempt.Class, attempt.Message)
	case image.Spec.DesiredImage != reference:
		return "not asked to move yet"
	case staged != nil && strings.HasSuffix(reference, "@"+staged.Digest):
		return "has staged " + digest
	default:
		return "downloads " + digest
	}
}

// slotState is what happens to a node that is allowed to be out of service.
func slotState(image *v1alpha1.NodeImage, slot *v1alpha1.Slot, reference string) string {
	digest, isThere := shortDigest(reference), runs(image, reference)
	switch slot.Phase {
	case v1alpha1.SlotDraining:
		return "is drained for " + digest
	case v1alpha1.SlotBooting:
		if isThere {
			return "has booted " + digest + ", is looked at before it serves again"
		}
		return "reboots into " + digest
	case v1alpha1.SlotRollingBack:
		return "goes back from " + digest
	}
	if isThere {
		return "runs " + digest + " and serves again, is watched"
	}
	return "serves again with the image it had"
}

// runs is true when the node has booted the image.
func runs(image *v1alpha1.NodeImage, reference string) bool {
	booted := image.Status.Booted
	return booted != nil && booted.Digest != "" && strings.HasSuffix(reference, "@"+booted.Digest)
}

// poolIsUpdated is done when the pool counts every node as updated to the
// rendered config.
func (s *Story) poolIsUpdated(ctx context.Context) (string, bool, error) {
	pool, err := s.pool(ctx)
	if err != nil {
		return err.Error(), false, nil
	}
	status := pool.Status
	updated := false
	for _, condition := range status.Conditions {
		if condition.Type == mcfgv1.MachineConfigPoolUpdated {
			updated = condition.Status == corev1.ConditionTrue
		}
	}
	state := fmt.Sprintf("%d of %d machines updated; %s", status.UpdatedMachineCount, status.MachineCount, conditionsOf(pool))
	all := int(status.MachineCount) == len(s.Workers.Names()) && status.UpdatedMachineCount == status.MachineCount
	return state, updated && all && status.Configuration.Name == s.Rendered, nil
}

// NodeImage returns what a worker's agent reports.
func (s *Story) NodeImage(ctx context.Context, node string) (*v1alpha1.NodeImage, error) {
	image := &v1alpha1.NodeImage{}
	err := s.Cluster.Client.Get(ctx, client.ObjectKey{Name: node}, image)
	return image, err
}

// shortDigest is the digest of a reference, short enough for a line.
func shortDigest(reference string) string {
	_, digest, _ := strings.Cut(reference, "@")
	return digest[:min(len(digest), len("sha256:")+12)]
}

func joinNonEmpty(parts ...string) string {
	var kept []string
	for _, part := range parts {
		if part != "" {
			kept = append(kept, part)
		}
	}
	return strings.Join(kept, ", ")
}
