package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// NodeImage is the OS image of one node: what it is to stage or boot (spec,
// written by the rollout controller) and what it has (status, written by the
// agent of that node and by nobody else). Its name is the node's name, and the
// Node owns it.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,shortName=nimg
// +kubebuilder:printcolumn:name="Rollout",type=string,JSONPath=`.spec.rollout`
// +kubebuilder:printcolumn:name="Desired",type=string,JSONPath=`.spec.desiredImage`,priority=1
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.spec.phase`
// +kubebuilder:printcolumn:name="Staged",type=string,JSONPath=`.status.conditions[?(@.type=="Staged")].status`
// +kubebuilder:printcolumn:name="Booted",type=string,JSONPath=`.status.conditions[?(@.type=="Booted")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Booted")].reason`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type NodeImage struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is what the node is to do.
	//
	// +required
	Spec NodeImageSpec `json:"spec"`
	// status is what the node has, by its agent.
	//
	// +optional
	Status NodeImageStatus `json:"status,omitempty"`
}

// NodeImageList is a list of NodeImages.
//
// +kubebuilder:object:root=true
type NodeImageList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []NodeImage `json:"items"`
}

// NodeImagePhase says how far the agent may go with the desired image.
//
// +kubebuilder:validation:Enum=Idle;Staged;Booted;RolledBack
type NodeImagePhase string

const (
	// PhaseIdle asks for nothing: the agent reports and leaves the host alone.
	PhaseIdle NodeImagePhase = "Idle"
	// PhaseStaged asks the agent to download the image and keep it locked, so
	// that an unplanned reboot does not apply it.
	PhaseStaged NodeImagePhase = "Staged"
	// PhaseBooted allows the agent to reboot the node into the staged image. It
	// stays until the node has done well on it for long enough: leaving this
	// phase confirms the image, and the node does not go back by itself any more.
	PhaseBooted NodeImagePhase = "Booted"
	// PhaseRolledBack asks the agent to reboot the node into the image that it
	// had before the desired one, once.
	PhaseRolledBack NodeImagePhase = "RolledBack"
)

// NodeImageSpec is what the node is to do.
type NodeImageSpec struct {
	// rollout is the name of the ImageRollout that this node belongs to.
	//
	// +required
	// +kubebuilder:validation:MaxLength=253
	Rollout string `json:"rollout"`

	// desiredImage is the image to stage or boot, by digest. Empty while phase
	// is Idle.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=447
	DesiredImage string `json:"desiredImage,omitempty"`

	// phase is how far the agent may go. Idle: it reports and leaves the host alone.
	// Staged: it downloads the desired image and keeps it locked. Booted: it may
	// reboot the node into it. RolledBack: it reboots the node, once, into the image
	// that it had before.
	//
	// +required
	Phase NodeImagePhase `json:"phase"`

	// pullSecretHash is the SHA-256, in hex, of the pull secret's content. The
	// agent waits until the secret it sees has this hash. Empty: no secret.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=64
	PullSecretHash string `json:"pullSecretHash,omitempty"`

	// retryToken is the rollout's: a failed image is tried again when it changes.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=253
	RetryToken string `json:"retryToken,omitempty"`

	// rollbackAfterSeconds is how long after its boot into the desired image the
	// node goes back by itself if nobody has confirmed the image and its agent
	// does not reach the API server. 0: never. Only in phase Booted.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	RollbackAfterSeconds int64 `json:"rollbackAfterSeconds,omitempty"`

	// allowSoftReboot lets the agent restart the userspace only, where the
	// staged image is capable of it. Only in phase Booted.
	//
	// +optional
	AllowSoftReboot bool `json:"allowSoftReboot,omitempty"`

	// liveHash is the SHA-256, in hex, of the rollout's live content that the node
	// is to have. Empty: none.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=64
	LiveHash string `json:"liveHash,omitempty"`

	// correctDrift has the agent put files back that were changed on the node.
	//
	// +optional
	CorrectDrift bool `json:"correctDrift,omitempty"`

	// reportRequests counts how often the agent was asked for a report: it answers
	// with one. That is done before the node is taken out of service, if nothing was
	// heard of its agent for ten minutes.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	ReportRequests int64 `json:"reportRequests,omitempty"`
}

// Conditions of a NodeImage.
const (
	// ConditionStaged is True while the desired image is staged, or booted.
	ConditionStaged = "Staged"
	// ConditionBooted is True while the node runs the desired image.
	ConditionBooted = "Booted"
	// ConditionManageable is False when the host cannot be updated by bootc:
	// it was not booted from a container image, or bootc does not answer.
	ConditionManageable = "Manageable"
	// ConditionRollbackReady is False while the node runs an image that nobody
	// has confirmed and could not go back (bootc's rollback entry is not the
	// image that it had), or while going back fails. It is absent while nothing is
	// wrong.
	ConditionRollbackReady = "RollbackReady"
	// ConditionDrifted is True while files that the booted image delivers are
	// different on the node; the message names them. It is absent otherwise.
	ConditionDrifted = "Drifted"
	// ConditionLiveFailed is True while the rollout's live content could not be
	// brought to the node. It is absent otherwise.
	ConditionLiveFailed = "LiveFailed"
	// ConditionRivalUpdater is True while something else on the node may update
	// or reboot it; the message names it. It is absent otherwise.
	ConditionRivalUpdater = "RivalUpdater"
	// ConditionLowDiskSpace is True while an image may not fit on the node. It is
	// absent otherwise.
	ConditionLowDiskSpace = "LowDiskSpace"
)

// FailureClass tells apart what can go wrong on a node.
//
// +kubebuilder:validation:Enum=Registry;Authentication;ImageGone;ImageInvalid;Signature;WrongArchitecture;DiskFull;HostDrift;Environment;FinalizeFailed;RolledBack;Internal
type FailureClass string

// Failure classes of an attempt, from the texts of bootc.
const (
	FailureRegistry          FailureClass = "Registry"
	FailureAuthentication    FailureClass = "Authentication"
	FailureImageGone         FailureClass = "ImageGone"
	FailureImageInvalid      FailureClass = "ImageInvalid"
	FailureSignature         FailureClass = "Signature"
	FailureWrongArchitecture FailureClass = "WrongArchitecture"
	FailureDiskFull          FailureClass = "DiskFull"
	FailureHostDrift         FailureClass = "HostDrift"
	FailureEnvironment       FailureClass = "Environment"
	FailureFinalizeFailed    FailureClass = "FinalizeFailed"
	// FailureRolledBack: the node booted the image and went back from it.
	FailureRolledBack FailureClass = "RolledBack"
	FailureInternal   FailureClass = "Internal"
)

// NodeImageStatus is what the node has.
type NodeImageStatus struct {
	// observedGeneration is the generation of spec that this status describes.
	//
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// bootID is the host's boot id (/proc/sys/kernel/random/boot_id of the node).
	//
	// +optional
	// +kubebuilder:validation:MaxLength=64
	BootID string `json:"bootID,omitempty"`

	// softReboots is how often the userspace was restarted in this boot.
	//
	// +optional
	SoftReboots int32 `json:"softReboots,omitempty"`

	// booted is the deployment that the node runs.
	//
	// +optional
	Booted *HostImage `json:"booted,omitempty"`
	// staged is the deployment that is downloaded and has not been booted.
	//
	// +optional
	Staged *HostImage `json:"staged,omitempty"`
	// rollback is the deployment that bootc would go back to.
	//
	// +optional
	Rollback *HostImage `json:"rollback,omitempty"`

	// liveHash is that of the live content that the node has.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=64
	LiveHash string `json:"liveHash,omitempty"`

	// freeSpace of the node, as of the last report.
	//
	// +optional
	FreeSpace *FreeSpace `json:"freeSpace,omitempty"`

	// lastAttempt is the last try to stage or boot an image.
	//
	// +optional
	LastAttempt *Attempt `json:"lastAttempt,omitempty"`

	// failedImages are the last 8 images that failed on this node for good: none
	// of them is tried again under the same retryToken.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=8
	FailedImages []Attempt `json:"failedImages,omitempty"`

	// conditions are Staged (the desired image is downloaded, or booted), Booted (the
	// node runs it) and Manageable (bootc can update the host); and, while there is
	// something to say, RollbackReady, Drifted, LiveFailed, RivalUpdater and
	// LowDiskSpace.
	//
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=16
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// FreeSpace is how much an image may still take up.
type FreeSpace struct {
	// sysrootMiB is free where images are kept.
	//
	// +optional
	SysrootMiB int64 `json:"sysrootMiB,omitempty"`
	// bootMiB is free in /boot, where kernels are.
	//
	// +optional
	BootMiB int64 `json:"bootMiB,omitempty"`
}

// HostImage is one of bootc's deployments.
type HostImage struct {
	// image is the reference the deployment follows.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=447
	Image string `json:"image,omitempty"`
	// digest is the manifest digest, sha256:<64 hex>.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=71
	Digest string `json:"digest,omitempty"`
	// version is the image's label org.opencontainers.image.version, as bootc
	// reports it.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Version string `json:"version,omitempty"`
	// softRebootCapable is true for a staged image that the userspace alone could
	// be restarted into.
	//
	// +optional
	SoftRebootCapable bool `json:"softRebootCapable,omitempty"`
	// downloadOnly is true for a staged image that a reboot would not apply.
	//
	// +optional
	DownloadOnly bool `json:"downloadOnly,omitempty"`
}

// Attempt is one try to stage or boot an image.
type Attempt struct {
	// image that was tried.
	//
	// +required
	// +kubebuilder:validation:MaxLength=447
	Image string `json:"image"`
	// retryToken is the token the attempt was made under.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=253
	RetryToken string `json:"retryToken,omitempty"`
	// failures counts the failed tries of this image in a row.
	//
	// +optional
	Failures int32 `json:"failures,omitempty"`
	// class of the failure; empty when the last try succeeded.
	//
	// +optional
	Class FailureClass `json:"class,omitempty"`
	// permanent is true when trying the same image again cannot help.
	//
	// +optional
	Permanent bool `json:"permanent,omitempty"`
	// message is what bootc said, one line.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Message string `json:"message,omitempty"`
	// time is when the try ended, by the node's clock.
	//
	// +optional
	Time metav1.Time `json:"time,omitempty"`
}
