// Command cluster measures on the local cluster, which has to be up, what a change
// of a file costs: from the MachineConfig to a MachineOSBuild that succeeded. It is
// compared with a pod of the same kind in which buildah, the program, builds and
// pushes the same files on the same base: from the pod to its end, so without what
// would make the pod. Both sides take turns; figures are medians.
//
// It installs imagemode anew, for a pool without nodes: no machine reboots.
package main
