package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// ImageRollout takes one image, by digest, to the nodes that its selector
// names: each node downloads it in the background first, and at most
// maxUnavailable nodes at a time are then drained and rebooted into it.
//
// The imagemode controller writes image, nodeSelector, paused, maxUnavailable
// and pullSecretRef of the rollouts that belong to a MachineConfigPool; every
// other field is the user's.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,shortName=imgro
// +kubebuilder:printcolumn:name="Image",type=string,JSONPath=`.spec.image`,priority=1
// +kubebuilder:printcolumn:name="Nodes",type=integer,JSONPath=`.status.nodes.total`
// +kubebuilder:printcolumn:name="Staged",type=integer,JSONPath=`.status.nodes.staged`
// +kubebuilder:printcolumn:name="Updated",type=integer,JSONPath=`.status.nodes.updated`
// +kubebuilder:printcolumn:name="Available",type=string,JSONPath=`.status.conditions[?(@.type=="Available")].status`
// +kubebuilder:printcolumn:name="Progressing",type=string,JSONPath=`.status.conditions[?(@.type=="Progressing")].status`
// +kubebuilder:printcolumn:name="Degraded",type=string,JSONPath=`.status.conditions[?(@.type=="Degraded")].status`
// +kubebuilder:printcolumn:name="Paused",type=boolean,JSONPath=`.spec.paused`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type ImageRollout struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +required
	Spec ImageRolloutSpec `json:"spec"`
	// +optional
	Status ImageRolloutStatus `json:"status,omitempty"`
}

// ImageRolloutList is a list of ImageRollouts.
//
// +kubebuilder:object:root=true
type ImageRolloutList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ImageRollout `json:"items"`
}

// RolloutMode says how far a rollout goes.
//
// +kubebuilder:validation:Enum=Full;StageOnly
type RolloutMode string

const (
	// RolloutModeFull stages the image on every node and reboots the nodes into it.
	RolloutModeFull RolloutMode = "Full"
	// RolloutModeStageOnly stages the image and leaves cordon, drain and reboot
	// to someone else; it stages under pause, too.
	RolloutModeStageOnly RolloutMode = "StageOnly"
)

// ImageRolloutSpec is what is wanted on which nodes, and how to get there.
type ImageRolloutSpec struct {
	// image is the OS image to bring to the nodes, by digest:
	// host[:port]/repository@sha256:<64 hex>. Without it nothing happens, so
	// that the other fields can be set before there is an image.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=447
	// +kubebuilder:validation:XValidation:rule="self.matches('^([a-zA-Z0-9-]+\\\\.)*[a-zA-Z0-9-]+(:[0-9]{2,5})?(/[a-zA-Z0-9._-]+)+@sha256:[a-f0-9]{64}$')",message="image must name a repository and a digest: host[:port]/repository@sha256:<64 lower-case hex digits>; a tag can move and is not accepted"
	Image string `json:"image,omitempty"`

	// nodeSelector selects the nodes of this rollout by their labels. Without
	// it the rollout has no nodes.
	//
	// +optional
	NodeSelector *metav1.LabelSelector `json:"nodeSelector,omitempty"`

	// paused holds the rollout back: nothing is staged (unless mode is
	// StageOnly) and no further node is taken out of service. A node that is
	// already on its way finishes.
	//
	// +optional
	Paused bool `json:"paused,omitempty"`

	// mode is Full (default) or StageOnly.
	//
	// +optional
	// +default="Full"
	// +kubebuilder:default=Full
	Mode RolloutMode `json:"mode,omitempty"`

	// maxUnavailable is how many of the nodes may be out of service at a time,
	// as a number or as a percentage of the nodes (rounded down, at least 1).
	// Nodes that are unavailable for another reason count. 0 means 1. Default 1.
	//
	// +optional
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:XValidation:rule="type(self) == int ? self >= 0 : self.matches('^(100|[1-9]?[0-9])%$')",message="maxUnavailable must be a number of nodes (0 or more) or a percentage from 0% to 100%"
	MaxUnavailable *intstr.IntOrString `json:"maxUnavailable,omitempty"`

	// maxConcurrentStaging is how many nodes download the image at the same
	// time. Default 10.
	//
	// +optional
	// +kubebuilder:default=10
	// +kubebuilder:validation:Minimum=1
	MaxConcurrentStaging int32 `json:"maxConcurrentStaging,omitempty"`

	// soak is how long a rebooted node must stay Ready before the next node
	// is taken out of service, as a duration such as 30s or 5m. Default 0s.
	//
	// +optional
	Soak *metav1.Duration `json:"soak,omitempty"`

	// drain says how pods are moved off a node before its reboot.
	//
	// +optional
	Drain DrainSpec `json:"drain,omitempty"`

	// reboot bounds the reboot of one node.
	//
	// +optional
	Reboot RebootSpec `json:"reboot,omitempty"`

	// pullSecretRef names the Secret, type kubernetes.io/dockerconfigjson, that
	// the nodes pull the image with. Without it they pull without credentials.
	//
	// +optional
	PullSecretRef *SecretReference `json:"pullSecretRef,omitempty"`

	// retryToken tries the image again on nodes where it failed: set it to a
	// value it did not have before.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=253
	RetryToken string `json:"retryToken,omitempty"`
}

// SecretReference names a Secret.
type SecretReference struct {
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
	// namespace of the Secret.
	//
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace"`
}

// DrainSpec says how pods are moved off a node.
type DrainSpec struct {
	// timeout is how long a drain may take before the node is reported as
	// DrainBlocked with the pods that stay. The drain goes on. Default 1h.
	//
	// +optional
	Timeout *metav1.Duration `json:"timeout,omitempty"`

	// deleteEmptyDir evicts pods with emptyDir volumes too; their data is lost.
	// Default true.
	//
	// +optional
	// +kubebuilder:default=true
	DeleteEmptyDir *bool `json:"deleteEmptyDir,omitempty"`

	// force evicts pods that no controller will replace. Default false: such a
	// pod blocks the drain and is named.
	//
	// +optional
	Force bool `json:"force,omitempty"`
}

// RebootSpec bounds the reboot of one node.
type RebootSpec struct {
	// timeout is how long a node may be away, from the request to boot the
	// staged image until it is Ready on it, before it counts as failed.
	// Default 15m.
	//
	// +optional
	Timeout *metav1.Duration `json:"timeout,omitempty"`
}

// Conditions of an ImageRollout.
const (
	// ConditionAvailable is True while no more nodes than maxUnavailable are
	// out of service.
	ConditionAvailable = "Available"
	// ConditionProgressing is True while nodes still have to stage or boot the
	// image and nothing holds them back.
	ConditionProgressing = "Progressing"
	// ConditionDegraded is True when a node failed on the image or a drain is
	// blocked; the message names the nodes.
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
	// +listType=map
	// +listMapKey=node
	// +kubebuilder:validation:MaxItems=1000
	Slots []Slot `json:"slots,omitempty"`

	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
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
// +kubebuilder:validation:Enum=Cordoning;Draining;Booting;Soaking
type SlotPhase string

const (
	// SlotCordoning is the phase in which the node is made unschedulable.
	SlotCordoning SlotPhase = "Cordoning"
	// SlotDraining is the phase in which pods are evicted.
	SlotDraining SlotPhase = "Draining"
	// SlotBooting is the phase from the order to boot until the node is Ready
	// on the image.
	SlotBooting SlotPhase = "Booting"
	// SlotSoaking is the phase in which the node must stay Ready.
	SlotSoaking SlotPhase = "Soaking"
)

// Slot is the permission of one node to be out of service.
type Slot struct {
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
	// wasUnschedulable records that somebody else had cordoned the node before:
	// it is then left cordoned.
	//
	// +optional
	WasUnschedulable bool `json:"wasUnschedulable,omitempty"`
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
