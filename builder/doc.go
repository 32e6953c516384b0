// Package builder makes one OS image from a request: it installs the extensions
// and the kernel, appends the layer of the rendered MachineConfig in the
// registry, runs the user's Containerfile, verifies the result and publishes it.
// It knows no cluster: everything comes from files (see builder/request), so the
// same code runs in a builder pod and on a workstation.
//
// # Steps
//
//	base → extensions → configs → user → agent → verify → publish
//
// A step is data (see step): its inputs, and a function from an image in a
// registry to the next. Its key is the SHA-256 of its name and recipe, its inputs
// and the digest of the image it starts from; its result is kept in the
// repository that is pushed to, under step-<key>, and a step whose key is there is
// not run. A whole image is found under inputs-<image inputs hash>, before
// anything else is looked at.
//
// A text whose final stage comes from base is built on base, and the config layer
// is appended last: another config runs nothing. Of a text, each instruction's
// layer is kept too, as layer-<32 hex>, so that a line more at the end runs that
// line only. The number of a forced rebuild is part of the keys of steps and of
// the tags of layers: nothing that ran a program before is taken then.
//
// Where the agent comes with the image (Request.AgentImage), its layers are put on
// top of everything, as they are: its image is looked into once, and a copy of it
// kept in the push repository; another config or text sends nothing of it again,
// and another agent runs nothing again.
//
// The same inputs give the same bytes, in any repository and on any day, as far
// as no program runs: times are those of the base, and no name of a repository is
// written into the image. An OCI image layout in the place of the repository
// (Options.Output) works in the same way, but there buildah compresses the base's
// layers anew, so that the image of a text has another digest.
//
// # What a RUN sees
//
// The package repositories, their keys and the entitlements of the build, and the
// image's own list of certificates with the cluster's behind them, are mounted for
// the time of a RUN; the proxy is in its environment. A text that makes the list
// of certificates anew (it names update-ca-trust or the package ca-certificates) does
// not get it, because a file that is mounted on cannot be replaced. Registries are reached as the nodes reach them:
// registries.conf, signature policy with its keys, registries.d and certs.d are
// taken from the Ignition config of the request.
//
// # Processes
//
// A build that runs programs does so in a process of its own with a PID and a
// mount namespace (Isolate), so that nothing of it is left when it is killed.
// Where /proc may not be mounted anew, as in a user namespace below another that
// hides parts of it, it goes on without: the container is that namespace then.
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
//
// # What is not there yet
//
// Extensions are tried with apt, and with dnf 4.14 on packages made for that, the
// change of a kernel included; dnf5, rpm-ostree and a real kernel are not. The rhsm directory of a subscribed host does not
// reach a RUN. A text that takes another image by tag is built again only when
// something else changes, or by a rebuild if it has a RUN.
package builder

// PodCapabilities are the capabilities that a builder container adds to those
// of the container runtime: mounting and chroot for the build's root file
// systems, device nodes and file capabilities for the packages installed in it.
var PodCapabilities = []string{"SYS_ADMIN", "SYS_CHROOT", "SETFCAP", "MKNOD"}
