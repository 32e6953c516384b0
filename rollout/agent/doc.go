// Package agent is the node side of a rollout: it brings its own node to the
// image that its NodeImage names and reports what the node has. It runs bootc
// on the host as transient systemd units over D-Bus, so that it works the same
// as a privileged pod and as a service of the host, and so that a restart of
// the agent interrupts nothing.
//
// Beside that it brings the rollout's live content to the node, compares the files
// that the image delivers, and arms a timer of the host (see Deadman) before it
// reboots.
//
// Every pass is: observe the host → settle what a finished command means →
// decide (a pure function) → act on the one answer → report in one patch.
package agent

// The agent's rights: its NodeImage, and events about it. An admission policy
// narrows them to the agent's own node.
//
// Of ImageRollouts it reads the live content of its own.
//
// +kubebuilder:rbac:groups=imagemode.dev,resources=nodeimages,verbs=get;list;watch
// +kubebuilder:rbac:groups=imagemode.dev,resources=imagerollouts,verbs=get
// +kubebuilder:rbac:groups=imagemode.dev,resources=nodeimages/status,verbs=patch
// +kubebuilder:rbac:groups="";events.k8s.io,resources=events,verbs=create;patch
