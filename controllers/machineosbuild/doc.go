// Package machineosbuild builds the OS images of pools. It has two reconcilers:
//
//	MachineOSConfig   what is to be built, and what came of it
//	                  get → gather (scope.go) → decide (plan.go) → act (config.go) → status (status.go)
//	MachineOSBuild    one build, from its Job to its end
//	                  get → gather (build.go) → nextStep (step.go) → act (build.go) → status (state.go)
//
// Both decisions are pure functions of what was gathered. They are written as
// ordered lists of rules that read as the specification: preconditions and
// decide for "what to build", life for "what next". No decision reads a
// condition or pointer that this package has set, with one exception that the
// API makes: what is final in a MachineOSBuild stays.
//
// The reconcilers talk through objects only. The first creates MachineOSBuilds
// and marks those it does not want any more (annotation
// imagemode.dev/superseded-by); the second alone writes their status.
//
// # Names
//
// Two identities are never mixed. The image inputs hash (imageInputs) covers
// what the content of an image depends on, and nothing else: no names, no
// credentials. The name of a MachineOSBuild, <MachineOSConfig>-<32 hex>, covers
// in addition the rendered MachineConfig, the push repository, and the numbers
// of rebuild and attempt (buildInputs). Going back to earlier inputs therefore
// finds the earlier build.
//
// # A build's pod
//
// The Job is created suspended. When its UID is known, its inputs are created
// as its dependents: ConfigMap request-<build>, Secrets base-<build> (pull) and
// final-<build> (push), and ConfigMap additionaltrustbundle-<build>. Then it is
// resumed. When the build has ended, the Secrets are deleted at once, and the
// rest goes with the Job: ten minutes after a success, a day after a failure,
// or when another build takes the failed one's place.
//
// # Not there yet
//
// Deleting a MachineOSConfig lets its builds, Jobs and inputs go by ownership;
// the image with the configuration alone, which its nodes are to go back to, is
// not built. A failed build stands until its inputs change or a rebuild is
// asked for; it does not try again by itself. An image is looked up when it
// becomes ready, not again later. Images are not pruned, the number of builds at
// a time is not limited, the annotation pre-built-image is ignored, and so are
// etc-pki-entitlement, etc-yum-repos-d and etc-pki-rpm-gpg. Images are built for
// one architecture, the controller's.
package machineosbuild
