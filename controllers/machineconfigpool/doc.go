// Package machineconfigpool does for MachineConfigPools what a cluster without
// a machine-config-operator has nobody for:
//
//   - render.go merges the MachineConfigs that a pool selects into a rendered one,
//   - membership.go decides which pool a node belongs to,
//   - status.go says how far the nodes are,
//   - handoff.go gives the finished image to the rollout.
//
// The first three decide without a client; controller.go and nodes.go hold the
// reconcilers that gather what they need and write what they answer.
package machineconfigpool
