package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// ImageRollout takes one image, by digest, to the nodes that its selector
// names: each node downloads it in the background first, and at most
// maxUnavailable nodes at a time are then drained and rebooted into it.
//
// The imagemode controller writes image, nodeSelector, paused, maxUnavailable,
// pullSecretRef and live of the rollouts that belong to a MachineConfigPool; every
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
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Progressing")].reason`
// +kubebuilder:printcolumn:name="Degraded",type=string,JSONPath=`.status.conditions[?(@.type=="Degraded")].status`
// +kubebuilder:printcolumn:name="Trouble",type=string,JSONPath=`.status.conditions[?(@.type=="Degraded")].reason`
// +kubebuilder:printcolumn:name="Paused",type=boolean,JSONPath=`.spec.paused`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Message",type=string,JSONPath=`.status.conditions[?(@.type=="Degraded")].message`,priority=1
type ImageRollout struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is what is wanted on which nodes, and how to get there.
	//
	// +required
	Spec ImageRolloutSpec `json:"spec"`
	// status is where the nodes are.
	//
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
	// +kubebuilder:validation:XValidation:rule="self.matches('^([a-zA-Z0-9-]+\\\\.)*[a-zA-Z0-9-]+(:([1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5]))?(/[a-z0-9]+([._-]+[a-z0-9]+)*)+@sha256:[a-f0-9]{64}$')",message="image must name a repository and a digest: host[:port]/repository@sha256:<64 hex digits>, all of it behind the host in lower case; a tag can move and is not accepted"
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

	// mode is how far the rollout goes. Full (default): the nodes download the
	// image, and are then drained and rebooted into it, maxUnavailable at a time.
	// StageOnly: they download it, also under pause, and keep it locked; cordon,
	// drain and reboot are left to somebody else.
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

	// topologyKey is the node label by which the rollout goes from zone to
	// zone: nodes of one zone only are out of service at a time, and a zone is
	// finished before the next begins, in the order of the label's values, nodes
	// without the label last. Empty: zones do not matter. Default
	// topology.kubernetes.io/zone.
	//
	// +optional
	// +kubebuilder:default="topology.kubernetes.io/zone"
	// +kubebuilder:validation:MaxLength=317
	// +kubebuilder:validation:XValidation:rule="self.matches('^(([a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?$')",message="topologyKey must be the key of a label, such as topology.kubernetes.io/zone, or empty"
	TopologyKey *string `json:"topologyKey,omitempty"`

	// canary are the nodes that take the image first; the others wait until all
	// of them run it well. Without it the first node serves as one: until a node
	// runs the image, a single failure rejects it.
	//
	// +optional
	Canary *CanarySpec `json:"canary,omitempty"`

	// soak is how long a rebooted node must stay Ready before the next node
	// is taken out of service, as a duration such as 30s or 5m. Default 0s.
	//
	// +optional
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('0s') && duration(self) <= duration('24h')",message="soak must be between 0s and 24h"
	Soak *metav1.Duration `json:"soak,omitempty"`

	// failureBudget is on how many nodes the image may fail before it is
	// rejected: no further node gets it then, until image or retryToken changes.
	// A number, or a percentage of the nodes (rounded down, at least 1). It
	// counts from when the canary is done, or without one a node runs the image;
	// before that the first failure rejects. An image that cannot work anywhere
	// (its signature is refused, it is not bootable) is rejected at once.
	// Default: 10 % of the nodes, at least 2.
	//
	// +optional
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:XValidation:rule="type(self) == int ? self >= 1 : self.matches('^(100|[1-9][0-9]?)%$')",message="failureBudget must be a number of nodes (1 or more) or a percentage from 1% to 100%"
	FailureBudget *intstr.IntOrString `json:"failureBudget,omitempty"`

	// drain says how pods are moved off a node before its reboot.
	//
	// +optional
	Drain DrainSpec `json:"drain,omitempty"`

	// reboot says how a node reboots, and how long it may take.
	//
	// +optional
	Reboot RebootSpec `json:"reboot,omitempty"`

	// rollback says when a node that does not do well on the image goes back to
	// the one it had.
	//
	// +optional
	Rollback RollbackSpec `json:"rollback,omitempty"`

	// live is what running nodes take over without a reboot. It follows at once,
	// on all nodes, unless the rollout is paused. If there is something in it that
	// no host could use (a trust bundle or a registry's *.crt without certificates
	// in PEM, an SSH key that is none), nodes keep what they have, and the condition
	// Degraded names the field.
	//
	// +optional
	Live *LiveContent `json:"live,omitempty"`

	// drift is what happens to files of the image that were changed on a node.
	// Report (default): the node is reported with the files' names. Correct: files
	// below /etc are put back as the image has them.
	//
	// +optional
	// +kubebuilder:default=Report
	Drift DriftPolicy `json:"drift,omitempty"`

	// windows are the times in which nodes may be taken out of service. A node
	// on its way when a window closes finishes. Without any it may always be.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	Windows []MaintenanceWindow `json:"windows,omitempty"`

	// gates are what must hold on a rebooted node, beside being Ready, before
	// it is put back into service.
	//
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=8
	Gates []Gate `json:"gates,omitempty"`

	// pullSecretRef names the Secret, type kubernetes.io/dockerconfigjson, that
	// the nodes pull the image with. It has to be in the controller's namespace.
	// Without it they pull without credentials.
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
