package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// SecretReference names a Secret.
type SecretReference struct {
	// name of the Secret.
	//
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$')",message="name must be the name of a Secret: lower-case letters, digits, - and ."
	Name string `json:"name"`
	// namespace of the Secret. It has to be the controller's own, the one that
	// imagemode is installed in: the controller may read Secrets in no other.
	//
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')",message="namespace must be the name of a namespace: lower-case letters, digits and -"
	Namespace string `json:"namespace"`
}

// DrainSpec says how pods are moved off a node.
type DrainSpec struct {
	// timeout is how long a drain may take before the node is reported as
	// DrainBlocked with the pods that stay and why, or the volumes that are still
	// attached when they are gone, and onTimeout is done. Default 1h.
	//
	// +optional
	// +kubebuilder:validation:XValidation:rule="duration(self) > duration('0s')",message="timeout must be longer than 0s"
	Timeout *metav1.Duration `json:"timeout,omitempty"`

	// onTimeout is what happens to a node whose drain takes too long. Halt
	// (default): the drain goes on and the node keeps its slot, until somebody
	// does something about the pods. Skip: the node is put back into service as
	// it is, and tried again after the others, timeout later at the earliest.
	// Force: pods that may not be evicted are deleted all the same; this needs
	// the ClusterRole imagemode-force-drain to be bound to the controller. Volumes
	// that are still attached are not waited for any longer.
	//
	// +optional
	// +kubebuilder:default=Halt
	OnTimeout DrainTimeoutPolicy `json:"onTimeout,omitempty"`

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

	// skipPodSelector selects pods, in any namespace, that stay on the node.
	//
	// +optional
	SkipPodSelector *metav1.LabelSelector `json:"skipPodSelector,omitempty"`
}

// DrainTimeoutPolicy is what happens to a node whose drain takes too long.
//
// +kubebuilder:validation:Enum=Halt;Skip;Force
type DrainTimeoutPolicy string

const (
	// DrainHalt goes on draining and says what blocks.
	DrainHalt DrainTimeoutPolicy = "Halt"
	// DrainSkip puts the node back into service and turns to others.
	DrainSkip DrainTimeoutPolicy = "Skip"
	// DrainForce deletes what may not be evicted.
	DrainForce DrainTimeoutPolicy = "Force"
)

// RebootSpec says how a node reboots.
type RebootSpec struct {
	// policy is Full (default), or SoftIfCapable: only the userspace is
	// restarted where the image and the node allow it (same kernel, arguments
	// and SELinux policy), and the machine where they do not.
	//
	// +optional
	// +kubebuilder:default=Full
	Policy RebootPolicy `json:"policy,omitempty"`

	// timeout is how long a node may be away, from the request to boot the
	// staged image until it is Ready on it, before it counts as failed.
	// Default 15m.
	//
	// +optional
	// +kubebuilder:validation:XValidation:rule="duration(self) > duration('0s')",message="timeout must be longer than 0s"
	Timeout *metav1.Duration `json:"timeout,omitempty"`
}

// RebootPolicy is how a node reboots.
//
// +kubebuilder:validation:Enum=Full;SoftIfCapable
type RebootPolicy string

const (
	// RebootFull restarts the machine.
	RebootFull RebootPolicy = "Full"
	// RebootSoftIfCapable restarts the userspace only, where that is possible.
	RebootSoftIfCapable RebootPolicy = "SoftIfCapable"
)

// RollbackSpec says when a node goes back to the image it had.
type RollbackSpec struct {
	// enabled lets a node go back. Default true. Turn it off for an image whose
	// services change their data in a way that the image before cannot read:
	// /var does not go back.
	//
	// +optional
	// +kubebuilder:default=true
	Enabled *bool `json:"enabled,omitempty"`

	// deadline is how long after its boot a node may take to be Ready and to
	// meet the gates. A node that nobody confirms until then and whose agent
	// does not reach the API server goes back by itself; one whose gates are not
	// met is told to. It goes back once. Default 20m.
	//
	// +optional
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1m') && duration(self) <= duration('24h')",message="deadline must be between 1m and 24h"
	Deadline *metav1.Duration `json:"deadline,omitempty"`
}

// DriftPolicy is what happens to changed files.
//
// +kubebuilder:validation:Enum=Report;Correct
type DriftPolicy string

const (
	// DriftReport names them.
	DriftReport DriftPolicy = "Report"
	// DriftCorrect puts them right.
	DriftCorrect DriftPolicy = "Correct"
)

// CanarySpec says which nodes take the image first.
//
// +kubebuilder:validation:XValidation:rule="has(self.nodes) != has(self.nodeSelector)",message="set either nodes or nodeSelector"
type CanarySpec struct {
	// nodes is how many nodes go first: the oldest ones.
	//
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000
	Nodes *int32 `json:"nodes,omitempty"`

	// nodeSelector selects, among the nodes of the rollout, those that go first.
	//
	// +optional
	NodeSelector *metav1.LabelSelector `json:"nodeSelector,omitempty"`

	// soak is how long the others wait after the last of them. Default 0s.
	//
	// +optional
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('0s')",message="soak must not be negative"
	Soak *metav1.Duration `json:"soak,omitempty"`
}

// MaintenanceWindow is a time that comes again and again.
type MaintenanceWindow struct {
	// cron is when the window opens: minute, hour, day of month, month and day
	// of week (0 to 7, Sunday is 0 and 7), such as "0 22 * * 6". An opening that falls into the hour that a
	// change to summer time leaves out does not happen.
	//
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=128
	Cron string `json:"cron"`

	// duration is how long it stays open.
	//
	// +required
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1m') && duration(self) <= duration('168h')",message="duration must be between 1m and 168h"
	Duration metav1.Duration `json:"duration"`

	// timeZone is the IANA name of the time zone that cron is in, such as
	// Europe/Berlin. Default UTC.
	//
	// +optional
	// +kubebuilder:default=UTC
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="self != 'Local'",message="name an IANA time zone"
	TimeZone string `json:"timeZone,omitempty"`
}

// Gate is one thing that must hold on a rebooted node.
//
// +kubebuilder:validation:XValidation:rule="(has(self.nodeCondition) ? 1 : 0) + (has(self.pods) ? 1 : 0) + (has(self.job) ? 1 : 0) == 1",message="set exactly one of nodeCondition, pods and job"
type Gate struct {
	// name of the gate, for messages.
	//
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name"`

	// nodeCondition is a condition of the Node that must have a status.
	//
	// +optional
	NodeCondition *NodeConditionGate `json:"nodeCondition,omitempty"`

	// pods are pods on the node that must be Ready.
	//
	// +optional
	Pods *PodsGate `json:"pods,omitempty"`

	// job is run on the node and must succeed.
	//
	// +optional
	Job *JobGate `json:"job,omitempty"`
}

// NodeConditionGate asks for a condition of the Node.
type NodeConditionGate struct {
	// type of the condition.
	//
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=316
	Type string `json:"type"`
	// status it must have. Default True.
	//
	// +optional
	// +kubebuilder:default="True"
	// +kubebuilder:validation:Enum="True";"False";Unknown
	Status string `json:"status,omitempty"`
}

// JobGate asks for a Job that succeeds.
type JobGate struct {
	// cronJob is the name of a CronJob, in the controller's namespace, whose
	// jobTemplate the Job is made from; it is usually suspended. The Job's pods
	// run on the node, cordoned or not, and find its name in NODE_NAME. It runs
	// once for each boot of a node, image and retryToken.
	//
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=52
	CronJob string `json:"cronJob"`
}

// PodsGate asks for pods that are Ready.
type PodsGate struct {
	// namespace of the pods.
	//
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace"`
	// selector of the pods. At least one must be on the node, and all that are
	// there must be Ready.
	//
	// +required
	Selector metav1.LabelSelector `json:"selector"`
}
