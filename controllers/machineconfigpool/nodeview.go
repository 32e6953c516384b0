package machineconfigpool

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/imagemode/imagemode/api/machineconfiguration"
	"github.com/imagemode/imagemode/api/v1alpha1"
	"github.com/imagemode/imagemode/controllers/osimagestream/streams"
)

// version is what a node runs or is to run: a rendered config and the image that
// carries it. They are only ever shown together.
type version struct {
	// config is the name of a rendered MachineConfig; empty: not known.
	config string
	// image by digest; empty: not known.
	image string
}

// nodeView is what is shown of one node on its MachineConfigNode and in the
// annotations of the Node.
type nodeView struct {
	node             *corev1.Node
	pool             string
	desired, current version
	// isAsked: the agent has been asked for the desired image; isStaged: it is on
	// the node, or booted.
	isAsked, isStaged, isBooted bool
	// slot is the phase of the node's slot; empty: it has none.
	slot    v1alpha1.SlotPhase
	failure string
	// shown is the MachineConfigNode as it is; nil: there is none.
	shown *mcfgv1.MachineConfigNode
	// withImages is false where the served API has no image fields.
	withImages bool
}

// viewOf puts a node's view together. image and rollout may be nil.
func viewOf(node *corev1.Node, pool *mcfgv1.MachineConfigPool, image *v1alpha1.NodeImage, rollout *v1alpha1.ImageRollout, builds []mcfgv1.MachineOSBuild) nodeView {
	view := nodeView{node: node, pool: pool.Name, desired: version{config: pool.Spec.Configuration.Name}}
	if rollout != nil && rollout.Spec.Image != "" {
		// Both come from one object: a pool or a build that was read at another
		// moment could put the old config beside the new image. Of an image that
		// nobody here built, the pool's config is all that is known.
		view.desired.image = rollout.Spec.Image
		view.desired.config = cmp.Or(rollout.Annotations[machineconfiguration.AnnotationRolloutConfig],
			configOf(digestOf(rollout.Spec.Image), builds, pool.Spec.Configuration.Name), pool.Spec.Configuration.Name)
		view.slot = slotOf(rollout, node.Name)
	}
	if image == nil {
		return view
	}
	view.failure = failureOf(image, rollout)
	if booted := image.Status.Booted; booted != nil && booted.Digest != "" {
		view.isBooted = booted.Digest == digestOf(view.desired.image)
		view.current = version{config: configOf(booted.Digest, builds, view.desired.config), image: byItsDigest(booted)}
		if view.isBooted {
			view.current.config = view.desired.config
		}
	}
	view.isAsked = image.Spec.DesiredImage != "" && image.Spec.DesiredImage == view.desired.image
	staged := image.Status.Staged
	view.isStaged = view.isBooted || staged != nil && staged.Digest == digestOf(view.desired.image)
	return view
}

// recall takes what the node ran when it was last heard of from its
// MachineConfigNode, while its agent says nothing: a node that has left its pool
// still runs that pool's image.
func (v *nodeView) recall() {
	if v.current != (version{}) || v.shown == nil || v.shown.Status.ConfigVersion == nil {
		return
	}
	v.current = version{
		config: v.shown.Status.ConfigVersion.Current,
		image:  string(v.shown.Status.ConfigImage.CurrentImage),
	}
}

// isStranded: the node runs the image of a pool that it has left, or that gave
// up its own, and its pool has none for it to go to.
func (v nodeView) isStranded() bool {
	return v.desired.image == "" && v.current.config != ""
}

// configOf is the rendered config that an image was built from: preferred, if it
// is one of several, else that of the newest build; empty: no build is known.
func configOf(digest string, builds []mcfgv1.MachineOSBuild, preferred string) string {
	var newest *mcfgv1.MachineOSBuild
	for i := range builds {
		build := &builds[i]
		if digest == "" || digestOf(string(build.Status.DigestedImagePushSpec)) != digest {
			continue
		}
		if build.Spec.MachineConfig.Name == preferred {
			return preferred
		}
		if newest == nil || isNewer(build, newest) {
			newest = build
		}
	}
	if newest == nil {
		return ""
	}
	return newest.Spec.MachineConfig.Name
}

// byItsDigest names a deployment's image by the digest that it has.
func byItsDigest(image *v1alpha1.HostImage) string {
	repository, _, _ := strings.Cut(image.Image, "@")
	if colon := strings.LastIndexByte(repository, ':'); colon > strings.LastIndexByte(repository, '/') {
		repository = repository[:colon]
	}
	if repository == "" {
		return ""
	}
	return repository + "@" + image.Digest
}

func slotOf(rollout *v1alpha1.ImageRollout, node string) v1alpha1.SlotPhase {
	for _, slot := range rollout.Status.Slots {
		if slot.Node == node {
			return slot.Phase
		}
	}
	return ""
}

// isDone: the node runs what it is to run, and the rollout is through with it.
func (v nodeView) isDone() bool {
	return v.desired.image != "" && v.isBooted && (v.slot == "" || v.slot == v1alpha1.SlotSoaking) && v.failure == ""
}

// isUpdating: an update of the node is under way.
func (v nodeView) isUpdating() bool {
	return v.desired.image != "" && !v.isDone() && (v.isAsked || v.slot != "")
}

// progress is a condition of a MachineConfigNode and what makes it True.
type progress struct {
	kind   mcfgv1.StateProgress
	isTrue func(nodeView) bool
	// yes and no are its messages.
	yes, no string
}

// progressOrder are the conditions, in the order in which users know them.
// Between updates all but Updated are False.
var progressOrder = []progress{
	{mcfgv1.MachineConfigNodeUpdatePrepared, nodeView.isUpdating, "The update to the desired image has begun", "No update is under way"},
	{mcfgv1.MachineConfigNodeUpdateExecuted, func(v nodeView) bool { return v.isUpdating() && v.isDrained() }, "The image is on the node, which is out of service", "The update was not executed"},
	{mcfgv1.MachineConfigNodeUpdateCordoned, func(v nodeView) bool { return v.isUpdating() && v.slot != "" && v.node.Spec.Unschedulable }, "The node is cordoned for the update", "The node is not cordoned for an update"},
	{mcfgv1.MachineConfigNodeUpdateDrained, func(v nodeView) bool { return v.isUpdating() && v.isDrained() }, "The node is drained", "The node is not drained"},
	{mcfgv1.MachineConfigNodeUpdateFiles, nodeView.isApplied, "The files are staged, as part of the image", "No files are staged"},
	{mcfgv1.MachineConfigNodeUpdateOS, nodeView.isApplied, "The image is staged", "No image is staged"},
	{mcfgv1.MachineConfigNodeUpdateFilesAndOS, nodeView.isApplied, "Image and files are staged", "Nothing is staged"},
	{mcfgv1.MachineConfigNodeImagePulledFromRegistry, nodeView.isApplied, "The image was pulled", "No image was pulled"},
	{mcfgv1.MachineConfigNodeUpdatePostActionComplete, func(v nodeView) bool { return v.isUpdating() && v.isBooted }, "The node has rebooted", "The node has not rebooted"},
	{mcfgv1.MachineConfigNodeUpdateRebooted, func(v nodeView) bool { return v.isUpdating() && v.isBooted }, "The node has rebooted", "The node has not rebooted"},
	{mcfgv1.MachineConfigNodeUpdateComplete, nodeView.isBack, "The node runs the desired image", "No update was completed just now"},
	{mcfgv1.MachineConfigNodeUpdateUncordoned, func(v nodeView) bool { return v.isBack() && !v.node.Spec.Unschedulable }, "The node is back in service", "The node was not uncordoned just now"},
	{mcfgv1.MachineConfigNodeResumed, nodeView.isBack, "The node works normally", "The node did not resume just now"},
	{mcfgv1.MachineConfigNodeUpdated, nodeView.isDone, "The node runs the desired image", "The node does not run the desired image"},
}

// withImagesOnly are the conditions that go with the image fields.
var withImagesOnly = []mcfgv1.StateProgress{
	mcfgv1.MachineConfigNodeUpdateFiles, mcfgv1.MachineConfigNodeUpdateOS, mcfgv1.MachineConfigNodeImagePulledFromRegistry,
}

// isApplied: an update is under way, and its image is on the node.
func (v nodeView) isApplied() bool { return v.isUpdating() && v.isStaged }

// isBack: the node has just been updated, and is watched for a while.
func (v nodeView) isBack() bool { return v.isDone() && v.slot == v1alpha1.SlotSoaking }

// isDrained: the node was ordered to boot, which comes after the drain.
func (v nodeView) isDrained() bool {
	return v.slot == v1alpha1.SlotBooting || v.slot == v1alpha1.SlotRollingBack
}

// conditions of the MachineConfigNode, in their order.
func (v nodeView) conditions() []metav1.Condition {
	var list []metav1.Condition
	for _, entry := range progressOrder {
		if !v.withImages && slices.Contains(withImagesOnly, entry.kind) {
			continue
		}
		condition := metav1.Condition{Type: string(entry.kind), Status: metav1.ConditionFalse, Reason: "AsExpected", Message: entry.no}
		if entry.isTrue(v) {
			condition.Status, condition.Reason, condition.Message = metav1.ConditionTrue, string(entry.kind), entry.yes
		}
		if entry.kind == mcfgv1.MachineConfigNodeUpdated && v.isStranded() {
			condition.Reason, condition.Message = "NoMachineOSConfig", fmt.Sprintf(
				"The node still runs the image of MachineConfig %s, and MachineConfigPool %s has none for it to go to; create MachineOSConfig %s", v.current.config, v.pool, v.pool)
		}
		list = append(list, condition)
	}
	degraded := metav1.Condition{
		Type: string(mcfgv1.MachineConfigNodeNodeDegraded), Status: metav1.ConditionFalse, Reason: "AsExpected", Message: "Nothing is wrong with the node",
	}
	if v.failure != "" {
		degraded.Status, degraded.Reason, degraded.Message = metav1.ConditionTrue, "UpdateFailed", streams.Truncate(v.failure, maxMessage)
	}
	return append(list, degraded)
}

// nameableByDigest is what the API takes as an image by digest: it allows one
// level of namespace.
var nameableByDigest = regexp.MustCompile(`^([a-zA-Z0-9-]+\.)+[a-zA-Z0-9-]+(:[0-9]{2,5})?/([a-zA-Z0-9-_]{0,61}/)?[a-zA-Z0-9-_.]+@sha256:[a-f0-9]{64}$`)

// nameable is an image, or nothing if the API could not name it.
func nameable(image string) mcfgv1.ImageDigestFormat {
	if !nameableByDigest.MatchString(image) {
		return ""
	}
	return mcfgv1.ImageDigestFormat(image)
}

// spec of the MachineConfigNode.
func (v nodeView) spec() mcfgv1.MachineConfigNodeSpec {
	spec := mcfgv1.MachineConfigNodeSpec{
		Node:          mcfgv1.MCOObjectReference{Name: v.node.Name},
		Pool:          mcfgv1.MCOObjectReference{Name: v.pool},
		ConfigVersion: mcfgv1.MachineConfigNodeSpecMachineConfigVersion{Desired: v.desired.config},
	}
	if v.withImages {
		spec.ConfigImage.DesiredImage = nameable(v.desired.image)
	}
	return spec
}

// status of the MachineConfigNode, over what stood there before.
func (v nodeView) status(before mcfgv1.MachineConfigNodeStatus, generation int64, now metav1.Time) mcfgv1.MachineConfigNodeStatus {
	status := *before.DeepCopy()
	status.ObservedGeneration = generation
	// The API takes no empty name: what a node runs is shown once it is known.
	status.ConfigVersion = nil
	if v.current.config != "" {
		status.ConfigVersion = &mcfgv1.MachineConfigNodeStatusMachineConfigVersion{Current: v.current.config, Desired: v.desired.config}
	}
	status.ConfigImage = mcfgv1.MachineConfigNodeStatusConfigImage{}
	if v.withImages {
		status.ConfigImage = mcfgv1.MachineConfigNodeStatusConfigImage{CurrentImage: nameable(v.current.image), DesiredImage: nameable(v.desired.image)}
	}
	for _, condition := range v.conditions() {
		condition.LastTransitionTime = now
		meta.SetStatusCondition(&status.Conditions, condition)
	}
	if !v.withImages {
		for _, kind := range withImagesOnly {
			meta.RemoveStatusCondition(&status.Conditions, string(kind))
		}
	}
	return status
}

// States of a node, as tools read them from its annotation.
const (
	stateDone     = "Done"
	stateWorking  = "Working"
	stateDegraded = "Degraded"
)

// annotations of the Node, for the tools that read them; empty ones are removed.
// As those tools expect, the desired ones move when the node is asked to go, and
// the current ones when it is done: two writes for an update.
func (v nodeView) annotations() map[string]string {
	state := stateWorking
	switch {
	case v.failure != "":
		state = stateDegraded
	case v.isDone() || !v.isUpdating():
		state = stateDone
	}
	desired, current := v.desired, v.current
	stands := v.node.Annotations
	if isWaiting := v.desired.image != "" && !v.isDone() && !v.isUpdating(); isWaiting && stands[machineconfiguration.AnnotationDesiredConfig] != "" {
		desired = version{stands[machineconfiguration.AnnotationDesiredConfig], stands[machineconfiguration.AnnotationDesiredImage]}
	}
	if v.isUpdating() && stands[machineconfiguration.AnnotationCurrentConfig] != "" {
		current = version{stands[machineconfiguration.AnnotationCurrentConfig], stands[machineconfiguration.AnnotationCurrentImage]}
	}
	return map[string]string{
		machineconfiguration.AnnotationCurrentConfig: current.config,
		machineconfiguration.AnnotationDesiredConfig: desired.config,
		machineconfiguration.AnnotationCurrentImage:  current.image,
		machineconfiguration.AnnotationDesiredImage:  desired.image,
		machineconfiguration.AnnotationState:         state,
		machineconfiguration.AnnotationReason:        streams.Truncate(v.failure, maxMessage),
	}
}
