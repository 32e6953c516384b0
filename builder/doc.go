// Package builder makes one OS image from a request: it appends the layer of
// the rendered MachineConfig to a base image in a registry, runs the user's
// Containerfile on it, verifies the result and publishes it. It knows no
// cluster: everything comes from files (see builder/request), so the same code
// runs in a builder pod and on a workstation.
//
// The base image is not fetched for that, but where a Containerfile runs
// something, and where the config asks for what only the image knows (see
// package ignition): then its layers are streamed through once, and what is in
// them is kept in the push repository for the next build.
//
// # The pod
//
// Containerfiles are run by buildah as a library, with chroot isolation and
// native overlay storage. The pod needs
//
//   - hostUsers: false, so that root in it is nobody on the node;
//   - the capabilities of PodCapabilities in securityContext.capabilities.add,
//     which count in the pod's own user namespace only, and runAsUser 0;
//   - an emptyDir on disk for --storage: overlay on overlay is refused, and a
//     base image takes a few gigabytes;
//   - the seccomp profile RuntimeDefault: with SYS_ADMIN among the capabilities
//     it allows mount (tried with containerd 2.4);
//   - allowPrivilegeEscalation left unset: the API server refuses false beside
//     SYS_ADMIN, and programs with file capabilities in a RUN need it;
//   - no ServiceAccount token, and a writable root file system or emptyDirs at
//     /tmp and /var/tmp.
package builder

// PodCapabilities are the capabilities that a builder container adds to those
// of the container runtime: mounting and chroot for the build's root file
// systems, device nodes and file capabilities for the packages installed in it.
var PodCapabilities = []string{"SYS_ADMIN", "SYS_CHROOT", "SETFCAP", "MKNOD"}
