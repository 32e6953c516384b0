// Command builder measures imagemode's builder against buildah, the program, on
// one machine and in one run: the same base image in the same registry, the same
// files, the same Containerfile.
//
// The bases are made here (test/bench/bases). The registry is the local cluster's, on
// loopback, with files as its storage. Every run of buildah has an empty store,
// as it has in a pod; so has every run of the builder. What is measured is the
// time from start to end of the process: imagemode-builder build, and buildah bud
// followed by buildah push. Figures are medians.
//
// What needs a cluster, from the MachineConfig to the end of the MachineOSBuild, is
// measured by test/bench/cluster.
package main
