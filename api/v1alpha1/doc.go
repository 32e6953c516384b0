// Package v1alpha1 holds imagemode's own API kinds, group imagemode.dev: the
// rollout half's ImageRollout (one per pool) and NodeImage (one per node).
// They know nothing of builds: any digest can be rolled out to any set of nodes.
//
// +kubebuilder:object:generate=true
// +groupName=imagemode.dev
package v1alpha1
