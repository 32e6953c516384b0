package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Conditions of an ImageRollout.
const (
	// ConditionAvailable is True while no more nodes than maxUnavailable are
	// out of service.
	ConditionAvailable = "Available"
	// ConditionProgressing is True while nodes still have to stage or boot the
	// image and do: something changes without anybody's doing.
	ConditionProgressing = "Progressing"
	// ConditionDegraded is True when somebody has to look at something: a node that
	// failed on the image, a drain that is blocked, a field that makes no sense. The
	// message says where, since when and what can be done.
	ConditionDegraded = "Degraded"
	// ConditionPaused is True while spec.paused holds the rollout back.
	ConditionPaused = "Paused"
)

// ImageRolloutStatus is where the nodes are.
type ImageRolloutStatus struct {
	// observedGeneration is the generation of spec that this status describes.
	//
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// nodes counts the nodes of the rollout by state.
	//
	// +optional
	Nodes NodeCounts `json:"nodes,omitempty"`

	// slots are the nodes that are allowed to be out of service now. A slot is
	// written before its node is cordoned and removed after it is uncordoned.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=1000
	Slots []Slot `json:"slots,omitempty"`

	// canary is set when all canary nodes run the image.
	//
	// +optional
	Canary *CanaryStatus `json:"canary,omitempty"`

	// rejected are images that failed on as many nodes as failureBudget allows:
	// no further node gets one of them, under the same retryToken. The newest 16.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	Rejected []RejectedImage `json:"rejected,omitempty"`

	// skipped are nodes whose drain took too long, under drain.onTimeout Skip.
	//
	// +optional
	// +listType=map
	// +listMapKey=node
	// +kubebuilder:validation:MaxItems=1000
	Skipped []SkippedNode `json:"skipped,omitempty"`

	// nextWindow is when the next maintenance window opens, while none is open.
	//
	// +optional
	NextWindow *metav1.Time `json:"nextWindow,omitempty"`

	// conditions are Available (no more nodes than maxUnavailable are out of
	// service), Progressing (something changes by itself; else the reason says why
	// not), Degraded (somebody has to look at something: the message says where,
	// since when and what can be done) and Paused.
	//
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// CanaryStatus says since when the canary nodes run an image.
type CanaryStatus struct {
	// image that they run.
	//
	// +required
	// +kubebuilder:validation:MaxLength=447
	Image string `json:"image"`
	// completionTime is when the last of them was back in service.
	//
	// +required
	CompletionTime metav1.Time `json:"completionTime"`
}

// RejectedImage is an image that no further node gets.
type RejectedImage struct {
	// digest of the image, sha256:<64 hex>.
	//
	// +required
	// +kubebuilder:validation:MaxLength=71
	Digest string `json:"digest"`
	// retryToken under which it was rejected: another one tries again.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=253
	RetryToken string `json:"retryToken,omitempty"`
	// reason names the nodes on which it failed, and how.
	//
	// +required
	// +kubebuilder:validation:MaxLength=1024
	Reason string `json:"reason"`
	// nodes is on how many nodes it failed.
	//
	// +required
	Nodes int32 `json:"nodes"`
	// time is when it was rejected.
	//
	// +required
	Time metav1.Time `json:"time"`
}

// SkippedNode is a node that was put back into service because its drain took
// too long.
type SkippedNode struct {
	// node is the Node's name.
	//
	// +required
	Node string `json:"node"`
	// nodeUID is the UID of the Node object: one that is made anew under the same
	// name was not skipped.
	//
	// +required
	NodeUID string `json:"nodeUID"`
	// image that it was to boot.
	//
	// +required
	// +kubebuilder:validation:MaxLength=447
	Image string `json:"image"`
	// message is what blocked its drain.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Message string `json:"message,omitempty"`
	// time is when it was given up.
	//
	// +required
	Time metav1.Time `json:"time"`
}

// NodeCounts counts nodes by state. A node can be in several of them.
type NodeCounts struct {
	// total is the number of nodes selected.
	//
	// +optional
	Total int32 `json:"total"`
	// staged is the number of nodes that have the image staged and not booted.
	//
	// +optional
	Staged int32 `json:"staged"`
	// updated is the number of nodes booted into the image and Ready.
	//
	// +optional
	Updated int32 `json:"updated"`
	// unavailable is the number of nodes that are not Ready or not schedulable.
	//
	// +optional
	Unavailable int32 `json:"unavailable"`
	// failed is the number of nodes on which the image failed.
	//
	// +optional
	Failed int32 `json:"failed"`
}

// SlotPhase is what happens to the node in a slot.
//
// +kubebuilder:validation:Enum=Draining;Booting;RollingBack;Soaking
type SlotPhase string

const (
	// SlotDraining is the phase in which the node is cordoned and its pods are
	// evicted.
	SlotDraining SlotPhase = "Draining"
	// SlotBooting is the phase from the order to boot until the node is Ready
	// on the image and meets the gates.
	SlotBooting SlotPhase = "Booting"
	// SlotRollingBack is the phase from the order to go back until the node is
	// Ready on the image before.
	SlotRollingBack SlotPhase = "RollingBack"
	// SlotSoaking is the phase in which the node, back in service, must stay
	// Ready.
	SlotSoaking SlotPhase = "Soaking"
)

// Slot is the permission of one node to be out of service.
type Slot struct {
	// node is the Node's name.
	//
	// +required
	Node string `json:"node"`
	// nodeUID is the UID of the Node object, so that a node that was deleted
	// and created again does not inherit the slot.
	//
	// +required
	NodeUID string `json:"nodeUID"`
	// image is the image that the slot was given for.
	//
	// +required
	Image string `json:"image"`
	// bootID is the node's boot id when the slot was given: a different one
	// later means that the node has rebooted.
	//
	// +optional
	BootID string `json:"bootID,omitempty"`
	// softReboots is the node's number of soft reboots when the slot was given.
	//
	// +optional
	SoftReboots int32 `json:"softReboots,omitempty"`
	// wasUnschedulable records that somebody else had cordoned the node before:
	// it is then left cordoned.
	//
	// +optional
	WasUnschedulable bool `json:"wasUnschedulable,omitempty"`
	// phase is what happens to the node now. Draining: it is cordoned and its pods
	// are evicted. Booting: it has been told to boot the image, and is not Ready on
	// it yet, or a gate is not met. RollingBack: it has been told to go back to the
	// image before. Soaking: it is back in service and must stay Ready.
	//
	// +required
	Phase SlotPhase `json:"phase"`
	// since is when the phase began.
	//
	// +required
	Since metav1.Time `json:"since"`
	// message says what the node waits for: the pods that block its drain, say.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Message string `json:"message,omitempty"`
}
