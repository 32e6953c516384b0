// Package machineconfigpool does for MachineConfigPools what a cluster without
// a machine-config-operator has nobody for:
//
//   - render.go merges the MachineConfigs that a pool selects into a rendered one,
//   - membership.go decides which pool a node belongs to,
//   - status.go says how far the nodes are,
//   - handoff.go gives the finished image to the rollout,
//   - nodeview.go shows each node's progress, on its MachineConfigNode and in the
//     annotations that tools read.
//
// They decide without a client, but for the writing of the hand-off; controller.go,
// nodes.go and machineconfignode.go hold the reconcilers that gather what they need and write what they answer.
package machineconfigpool
