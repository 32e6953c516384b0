// Command builder measures imagemode's builder against buildah, the program, on
// one machine and in one run: the same base image in the same registry, the same
// files, the same Containerfile.
//
// The base is made here: layers of files, of which a quarter compresses well, and
// one static program instead of a shell. The registry is the local cluster's, on
// loopback, with files as its storage. Every run of buildah has an empty store,
// as it has in a pod; so has every run of the builder. What is measured is the
// time from start to end of the process: imagemode-builder build, and buildah bud
// followed by buildah push. Figures are medians.
//
// Not measured here: what needs a cluster, from the MachineConfig to the end of
// the MachineOSBuild.
package main
