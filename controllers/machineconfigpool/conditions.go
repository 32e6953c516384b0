package machineconfigpool

import (
	"fmt"
	"strings"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/imagemode/imagemode/api/machineconfiguration"
	"github.com/imagemode/imagemode/api/v1alpha1"
	"github.com/imagemode/imagemode/controllers/osimagestream/streams"
)

// Bounds of what a condition says.
const (
	// maxMessage bounds a message in bytes: an Ignition config can have
	// thousands of findings, and the status is one object.
	maxMessage = 4096
	// maxNamed is how many nodes a message names.
	maxNamed = 10
	// maxQuoted bounds, in bytes, what a message repeats of another object.
	maxQuoted = 1024
)

// verdict is a condition without its type and time.
type verdict struct {
	status          corev1.ConditionStatus
	reason, message string
}

// condition is the verdict as the API has it, without a time.
func (v verdict) condition(kind mcfgv1.MachineConfigPoolConditionType) mcfgv1.MachineConfigPoolCondition {
	return mcfgv1.MachineConfigPoolCondition{
		Type: kind, Status: v.status, Reason: v.reason, Message: streams.Truncate(v.message, maxMessage),
	}
}

func isTrueBecause(reason, message string) verdict {
	return verdict{corev1.ConditionTrue, reason, message}
}

func isFalseBecause(reason, message string) verdict {
	return verdict{corev1.ConditionFalse, reason, message}
}

// conditions returns the pool's conditions in the order in which they are shown.
func (o observation) conditions(count counts) []mcfgv1.MachineConfigPoolCondition {
	render, build, node := o.renderDegraded(), o.imageBuildDegraded(), o.nodeDegraded(count)
	var list []mcfgv1.MachineConfigPoolCondition
	for _, entry := range []struct {
		kind    mcfgv1.MachineConfigPoolConditionType
		verdict verdict
	}{
		{mcfgv1.MachineConfigPoolUpdated, o.updated(count)},
		{mcfgv1.MachineConfigPoolUpdating, o.updating(count)},
		{mcfgv1.MachineConfigPoolRenderDegraded, render},
		{mcfgv1.MachineConfigPoolImageBuildDegraded, build},
		{mcfgv1.MachineConfigPoolNodeDegraded, node},
		{mcfgv1.MachineConfigPoolDegraded, degraded(render, build, node)},
		{conditionStreamProblems, o.streamProblems()},
	} {
		if entry.kind == mcfgv1.MachineConfigPoolRenderDegraded && o.isRenderedElsewhere {
			continue // it stays as whoever renders wrote it
		}
		list = append(list, entry.verdict.condition(entry.kind))
	}
	return list
}

// updated says whether every node runs what the pool wants, and if not, what is
// missing first.
func (o observation) updated(count counts) verdict {
	switch {
	case o.isUpdated(count):
		return isTrueBecause("AllNodesUpdated", fmt.Sprintf("All nodes are updated with MachineConfig %s / Image %s",
			o.pool.Spec.Configuration.Name, o.target.image()))
	case !o.isRendered():
		return isFalseBecause("RenderDegraded", "The wanted configuration could not be rendered; the nodes keep the one they have")
	case o.isUnsettled && o.awaits != "":
		return isFalseBecause("ConfigChanges", "The MachineConfigs or the OS image of the pool have changed; a new configuration is not rendered yet: "+o.awaits)
	case o.isUnsettled:
		return isFalseBecause("ConfigChanges", "The MachineConfigs or the OS image of the pool have changed; a new configuration is rendered as soon as no more changes come")
	case o.target.phase == noOSConfig:
		return isFalseBecause("NoMachineOSConfig", fmt.Sprintf(
			"No image carries MachineConfig %s; create MachineOSConfig %s to have one built", o.pool.Spec.Configuration.Name, o.pool.Name)+o.leftovers())
	case o.target.phase != ready:
		return isFalseBecause("ImageNotReady", fmt.Sprintf("The OS image of MachineConfig %s is not ready", o.pool.Spec.Configuration.Name))
	default:
		return isFalseBecause("NodesNotUpdated", fmt.Sprintf("%d of %d nodes are updated with Image %s, %d of them are ready",
			count.updated, count.total, o.target.image(), count.ready))
	}
}

// leftovers names the nodes that still run an image of another pool, or of one
// that was given up: without a repository there is nothing to take them to.
func (o observation) leftovers() string {
	var nodes []string
	for _, node := range o.nodes {
		if node.leftover != "" {
			nodes = append(nodes, fmt.Sprintf("node %s still runs the image of MachineConfig %s", node.name, node.leftover))
		}
	}
	if more := len(nodes) - maxNamed; more > 0 {
		nodes = append(nodes[:maxNamed], fmt.Sprintf("and %d more", more))
	}
	if len(nodes) == 0 {
		return ""
	}
	return "; " + strings.Join(nodes, "; ")
}

// updating says what the pool waits for. It is False when nothing is on its
// way: done, paused, stopped, or never begun.
func (o observation) updating(count counts) verdict {
	switch {
	case o.isUpdated(count):
		return isFalseBecause("AllNodesUpdated", "")
	case o.target.phase == noOSConfig:
		return isFalseBecause("NoMachineOSConfig", "No MachineOSConfig asks for an OS image of this pool")
	case o.isUnsettled && o.pool.Spec.Paused:
		return isFalseBecause("Paused", "Pool is paused; waiting for a new configuration to be rendered"+o.awaited())
	case o.isUnsettled:
		return isTrueBecause("ConfigChanges", "Pool is waiting for a new configuration to be rendered"+o.awaited()+o.onTheirWay())
	case o.pool.Spec.Paused:
		return isFalseBecause("Paused", o.pausedMessage()+o.forgotten())
	default:
		verdict := o.progress(count)
		verdict.message += o.forgotten()
		return verdict
	}
}

// forgotten adds that a rollout which somebody deleted cannot be put back yet.
func (o observation) forgotten() string {
	if !o.isForgotten || o.target.phase == ready {
		return ""
	}
	return fmt.Sprintf("; ImageRollout %s is gone, and no MachineOSBuild of its image is left to put it back from: it comes back with the next image, and the nodes stay as they are until then", o.pool.Name)
}

// awaited adds what a new configuration waits for.
func (o observation) awaited() string {
	if o.awaits == "" {
		return ""
	}
	return ": " + o.awaits
}

// pausedMessage says, under pause, how far the image is, and which nodes still
// finish what had begun before.
func (o observation) pausedMessage() string {
	const paused = "Pool is paused; "
	switch o.target.phase {
	case awaitingBuild:
		return paused + fmt.Sprintf("waiting for a new OS image build to start (mosc: %s)", o.target.osConfig.Name) + o.obstacle()
	case created:
		return paused + "OS image build created but not yet started"
	case prepared:
		return paused + "OS image build has been prepared but will not rollout"
	case building:
		return paused + "OS image build in progress"
	case failed:
		return paused + "OS image build failed"
	case interrupted:
		return paused + "OS image build was interrupted"
	default:
		if rejection := o.rejection(); rejection != "" {
			return paused + rejection
		}
		return paused + "OS image build completed successfully" + o.onTheirWay()
	}
}

// rejection says why the rollout gives the pool's image to no further node, and
// what can be done; empty: it does, or nodes are still on their way.
func (o observation) rejection() string {
	if o.target.phase != ready || o.rollout == nil || o.rollout.Spec.Image != o.target.image() {
		return ""
	}
	progressing := meta.FindStatusCondition(o.rollout.Status.Conditions, v1alpha1.ConditionProgressing)
	if progressing == nil || progressing.Status != "False" || progressing.Reason == "Updated" {
		return ""
	}
	// The entry and not the condition decides: that may give another reason, such as
	// a pause, and may be from before the retryToken was changed.
	digest := digestOf(o.rollout.Spec.Image)
	for _, entry := range o.rollout.Status.Rejected {
		if entry.Digest == digest && entry.RetryToken == o.rollout.Spec.RetryToken {
			return fmt.Sprintf("OS image is rejected (mosb: %s): %s; no further node gets it: change the configuration so that another image is built, "+
				"or set another spec.retryToken of ImageRollout %s to try this one again",
				o.target.build.Name, streams.Truncate(entry.Reason, maxQuoted), o.pool.Name)
		}
	}
	return ""
}

// onTheirWay names the nodes that are out of service for their update, with what
// they wait for. A pause does not take them back: they finish.
func (o observation) onTheirWay() string {
	if o.rollout == nil {
		return ""
	}
	var nodes []string
	for _, slot := range o.rollout.Status.Slots {
		text := fmt.Sprintf("node %s is on its way (%s)", slot.Node, strings.ToLower(string(slot.Phase)))
		if slot.Message != "" {
			text += ": " + slot.Message
		}
		nodes = append(nodes, text)
	}
	if more := len(nodes) - maxNamed; more > 0 {
		nodes = append(nodes[:maxNamed], fmt.Sprintf("and %d more", more))
	}
	if len(nodes) == 0 {
		return ""
	}
	return "; " + strings.Join(nodes, "; ")
}

// progress says what an unpaused pool waits for.
func (o observation) progress(count counts) verdict {
	switch o.target.phase {
	case awaitingBuild:
		return isTrueBecause("BuildPending",
			fmt.Sprintf("Pool is waiting for a new OS image build to start (mosc: %s)", o.target.osConfig.Name)+o.obstacle())
	case created, prepared:
		return isTrueBecause("BuildPending", fmt.Sprintf("Pool is waiting for OS image build to start (mosb: %s)", o.target.build.Name))
	case building:
		return isTrueBecause("Building", fmt.Sprintf("Pool is waiting for OS image build to complete (mosb: %s)", o.target.build.Name)+o.onTheirWay())
	case failed:
		return isFalseBecause("BuildFailed", fmt.Sprintf("Pool update stopped due to OS image build failure (mosb: %s)", o.target.build.Name))
	case interrupted:
		return isFalseBecause("BuildInterrupted", fmt.Sprintf("Pool update stopped due to OS image build being interrupted (mosb: %s)", o.target.build.Name))
	case built:
		return isTrueBecause("ImageNotReady",
			fmt.Sprintf("Pool is waiting for the OS image to be ready for the nodes (mosb: %s)", o.target.build.Name)+o.obstacle())
	}
	if rejection := o.rejection(); rejection != "" {
		return isFalseBecause("ImageRejected", "Pool update stopped: "+rejection)
	}
	isMoving := o.rollout != nil && len(o.rollout.Status.Slots) > 0
	if count.isStuck() && !isMoving || (!o.isRendered() && count.isDone()) {
		return isFalseBecause("Degraded", "Pool update paused due to degraded condition")
	}
	return isTrueBecause("NodesUpdating", fmt.Sprintf("Pool is waiting for nodes to apply OS image (mosb: %s)", o.target.build.Name)+o.onTheirWay())
}

// obstacle adds what the MachineOSConfig itself says is in the way.
func (o observation) obstacle() string {
	for _, kind := range []string{machineconfiguration.ConditionValid, machineconfiguration.ConditionReady} {
		condition := meta.FindStatusCondition(o.target.osConfig.Status.Conditions, kind)
		if condition != nil && condition.Status != "True" && condition.ObservedGeneration == o.target.osConfig.Generation && condition.Message != "" {
			return ": " + condition.Message
		}
	}
	return ""
}

// renderDegraded says why the wanted config could not be rendered.
func (o observation) renderDegraded() verdict {
	if o.isRenderedElsewhere {
		if found := findCondition(o.pool.Status.Conditions, mcfgv1.MachineConfigPoolRenderDegraded); found != nil {
			return verdict{found.Status, found.Reason, found.Message}
		}
		return isFalseBecause("", "")
	}
	if o.renderErr == nil && o.awaits != "" {
		return isFalseBecause("Waiting", o.awaits)
	}
	if o.renderErr == nil {
		return isFalseBecause("Rendered", "")
	}
	reason, message := renderReason(o.renderErr)
	return isTrueBecause(reason, fmt.Sprintf("Failed to render configuration for pool %s: %s", o.pool.Name, message))
}

// imageBuildDegraded repeats what the MachineOSConfig says under the same name.
func (o observation) imageBuildDegraded() verdict {
	if o.target.osConfig == nil {
		return isFalseBecause("NoLayeredObjects", "No layered pool objects found")
	}
	condition := meta.FindStatusCondition(o.target.osConfig.Status.Conditions, machineconfiguration.ConditionImageBuildDegraded)
	if condition == nil {
		return isFalseBecause(string(mcfgv1.MachineConfigPoolBuildPending), "MachineOSConfig updated/created, waiting for MachineOSBuild")
	}
	return verdict{corev1.ConditionStatus(condition.Status), condition.Reason, condition.Message}
}

// nodeDegraded names the nodes that do not get their image, and those that
// two pools claim.
func (o observation) nodeDegraded(count counts) verdict {
	var lines []string
	reason := ""
	for _, contest := range o.contests {
		reason = "NodeInTwoPools"
		lines = append(lines, fmt.Sprintf("Node %s is selected by the custom pools %s and stays where it is; a node can be in one: change its labels or a pool's nodeSelector",
			contest.node, strings.Join(contest.pools, " and ")))
	}
	for _, node := range o.nodes {
		if node.failure != "" {
			lines = append(lines, fmt.Sprintf("Node %s is reporting: %q", node.name, node.failure))
		}
	}
	if problem := o.liveProblem(); problem != "" {
		reason = reasonLiveContent
		lines = append(lines, problem)
	}
	if len(lines) == 0 {
		return isFalseBecause("AllNodesHealthy", "")
	}
	if count.degraded > 0 {
		reason = fmt.Sprintf("%d nodes are reporting degraded status on sync", count.degraded)
	}
	if more := len(lines) - maxNamed; more > 0 {
		lines = append(lines[:maxNamed], fmt.Sprintf("and %d more", more))
	}
	return isTrueBecause(reason, strings.Join(lines, ", "))
}

// degraded sums up the three.
func degraded(render, build, node verdict) verdict {
	switch {
	case render.status == corev1.ConditionTrue:
		return isTrueBecause("RenderDegraded", render.message)
	case build.status == corev1.ConditionTrue:
		return isTrueBecause("ImageBuildDegraded", "Custom OS image build failed")
	case node.status == corev1.ConditionTrue:
		return isTrueBecause("NodeDegraded", node.message)
	default:
		return isFalseBecause("AsExpected", "")
	}
}
