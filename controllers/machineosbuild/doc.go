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
// # Trying again
//
// What has ended stays as the API has it; trying again is another object, with
// the next number of attempt (retry.go). A failure that may pass (Registry,
// Network, Resources, Authentication) is tried again after ten minutes, doubling to six hours; any
// failed build when a secret or a certificate that it was made with changes; one
// whose Job vanished at once, three times; and one whose image is gone from its
// registry. Credentials that were refused, and configs that no image can hold, take
// one pod and not four; what is changed while attempts fail ends the build, which
// starts afresh with it. Everything else waits for other inputs, or for a rebuild.
//
// # Images
//
// An image of the same inputs is reused, whoever had it built (reuse.go): it is
// found by its tag inputs-<hash> in the push repository, and a build of the same
// image that runs is waited for, also where it is of an older rendered config. The current image is looked up every ten minutes
// (watch.go); it is gone when the registry says so twice, a minute apart, to
// whoever may push. This cluster keeps its images by tags used-<cluster>-<digest>
// (hold.go), and the pruner deletes, after a day, what nothing refers to (prune.go).
// Tags of steps go two weeks after the last build that named them (steptags.go).
//
// # The end
//
// A MachineOSConfig that is deleted first has an image built without its
// Containerfile, and goes when its rollout has that (leave.go).
//
// # Not there yet
//
// Images are built for one architecture, the controller's.
package machineosbuild
