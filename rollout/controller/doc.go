// Package controller is the cluster side of a rollout: it takes the image of
// an ImageRollout to the nodes that the rollout selects, never more of them at
// a time than it allows.
//
// Every pass is the same: gather a scope → schedule (a pure function: what each
// node is to stage or boot, who gets a slot) → write the NodeImages → carry out
// the phase of each slot → give slots → one status write. A phase is carried out
// only after it was written, so that whoever reads the slots after a crash knows
// what may have been done, and does it again: every act can be repeated.
//
// What holds a rollout back is a list of rules (holdRules), what a node must be
// to get a slot another (candidateRules); whose turn it is (canary, zone, control
// plane, the controller's own node) stands in turn.go, when an image is rejected
// in budget.go, what a slot does next in slots.go.
package controller

// +kubebuilder:rbac:groups=imagemode.dev,resources=imagerollouts,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=imagemode.dev,resources=imagerollouts/status,verbs=get;update
// +kubebuilder:rbac:groups=imagemode.dev,resources=imagerollouts/finalizers,verbs=update
// +kubebuilder:rbac:groups=imagemode.dev,resources=nodeimages,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups="",resources=nodes,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups="",resources=pods,verbs=get;list
// +kubebuilder:rbac:groups="",resources=pods/eviction,verbs=create
// +kubebuilder:rbac:groups=batch,resources=cronjobs,verbs=get,namespace=openshift-machine-config-operator
// +kubebuilder:rbac:groups=batch,resources=jobs,verbs=get;create;delete,namespace=openshift-machine-config-operator
// +kubebuilder:rbac:groups="",resources=secrets,verbs=get;create;patch;delete,namespace=openshift-machine-config-operator
// +kubebuilder:rbac:groups="";events.k8s.io,resources=events,verbs=create;patch
