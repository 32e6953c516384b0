// Package machineconfiguration names the labels, annotations and conditions by
// which the controllers of this repository and the tools of its users talk
// about objects of machineconfiguration.openshift.io. The kinds themselves are
// those of github.com/openshift/api.
package machineconfiguration

// Labels of a MachineOSBuild and of everything that is made for one build.
const (
	// LabelMachineOSConfig holds the name of the MachineOSConfig.
	LabelMachineOSConfig = "machineconfiguration.openshift.io/machine-os-config"
	// LabelMachineOSBuild holds the name of the MachineOSBuild (on Jobs and inputs).
	LabelMachineOSBuild = "machineconfiguration.openshift.io/machine-os-build"
	// LabelPool holds the name of the MachineConfigPool.
	LabelPool = "machineconfiguration.openshift.io/target-machine-config-pool"
	// LabelRenderedMachineConfig holds the name of the rendered MachineConfig.
	LabelRenderedMachineConfig = "machineconfiguration.openshift.io/rendered-machine-config"
	// LabelPreBuiltImage is "true" on a MachineOSBuild that built nothing.
	LabelPreBuiltImage = "machineconfiguration.openshift.io/pre-built-image"
	// LabelEphemeralBuildObject marks Jobs, ConfigMaps and Secrets of a build.
	LabelEphemeralBuildObject = "machineconfiguration.openshift.io/ephemeral-build-object"
)

// Annotations of a MachineOSConfig.
const (
	// AnnotationCurrentMachineOSBuild names the MachineOSBuild of the current spec.
	AnnotationCurrentMachineOSBuild = "machineconfiguration.openshift.io/current-machine-os-build"
	// AnnotationRebuild, with any value, asks for a new image.
	AnnotationRebuild = "machineconfiguration.openshift.io/rebuild"
	// AnnotationBuildCounters is the one record that no input can restore:
	// JSON {rebuild, handledValue, attempt, forInputs, notBefore}.
	AnnotationBuildCounters = "imagemode.dev/build-counters"
	// AnnotationPreBuiltImage names an image, by digest, that was built elsewhere
	// for the first inputs of a MachineOSConfig. On a MachineOSBuild it is where
	// its image comes from.
	AnnotationPreBuiltImage = "machineconfiguration.openshift.io/pre-built-image"
	// AnnotationAbandon, with any value, lets a MachineOSConfig that is being
	// deleted go at once: its nodes stay as they are, without a rollout.
	AnnotationAbandon = "imagemode.dev/abandon"
	// AnnotationNodePullSecret names the Secret the nodes pull with, in place
	// of the controller's --node-pull-secret.
	AnnotationNodePullSecret = "imagemode.dev/node-pull-secret"
)

// Annotations of a MachineOSBuild.
const (
	// AnnotationBuildReason says why the build was made: JSON, a list of
	// {input, old, new}.
	AnnotationBuildReason = "imagemode.dev/build-reason"
	// AnnotationInputsHash holds the image inputs hash, 64 hex.
	AnnotationInputsHash = "imagemode.dev/image-inputs-hash"
	// AnnotationBuildInputs holds what the build was made of: JSON, from which
	// the next build tells what changed.
	AnnotationBuildInputs = "imagemode.dev/build-inputs"
	// AnnotationSupersededBy names the MachineOSBuild that was chosen instead of
	// this one: if it runs, it is to be interrupted.
	AnnotationSupersededBy = "imagemode.dev/superseded-by"
	// AnnotationDependencies holds the versions of the Secrets and certificates
	// that a build was made with, which its image does not depend on: a failed
	// build is tried again when they change.
	AnnotationDependencies = "imagemode.dev/build-dependencies"
	// AnnotationImageGone says since when (RFC 3339) the image of a MachineOSBuild
	// is known to be gone from its registry.
	AnnotationImageGone = "imagemode.dev/image-gone"
	// AnnotationImageHeld holds the tag by which this cluster keeps the image of
	// a MachineOSBuild in its registry.
	AnnotationImageHeld = "imagemode.dev/image-held"
	// AnnotationPushSecret names the Secret that the image was pushed with, for
	// deleting it when the MachineOSConfig is gone.
	AnnotationPushSecret = "machineconfiguration.openshift.io/rendered-image-push-secret"
	// AnnotationDisruptedPods lists, on a Job, the pods (by UID, separated by
	// commas) that were evicted or preempted.
	AnnotationDisruptedPods = "imagemode.dev/disrupted-pods"
	// AnnotationFullName holds a name that did not fit into a label or an object name.
	AnnotationFullName = "imagemode.dev/full-name"
)

// Annotations of a rendered MachineConfig.
const (
	// AnnotationGeneratedByControllerVersion holds the version of the controller
	// that made a MachineConfig; MachineConfigs of users do not have it.
	AnnotationGeneratedByControllerVersion = "machineconfiguration.openshift.io/generated-by-controller-version"
	// AnnotationReleaseImageVersion holds the version of the platform that a
	// rendered MachineConfig was made under.
	AnnotationReleaseImageVersion = "machineconfiguration.openshift.io/release-image-version"
	// AnnotationOSImageURLOverridden is "true" when a MachineConfig, and not the
	// pool's stream, gave the OS image.
	AnnotationOSImageURLOverridden = "machineconfiguration.openshift.io/os-image-url-overridden"
)

// Annotations of a Node, for the tools that read them. Nothing is decided by them.
const (
	AnnotationCurrentConfig = "machineconfiguration.openshift.io/currentConfig"
	AnnotationDesiredConfig = "machineconfiguration.openshift.io/desiredConfig"
	AnnotationCurrentImage  = "machineconfiguration.openshift.io/currentImage"
	AnnotationDesiredImage  = "machineconfiguration.openshift.io/desiredImage"
	// AnnotationState is Done, Working or Degraded; AnnotationReason says why it is
	// the last.
	AnnotationState  = "machineconfiguration.openshift.io/state"
	AnnotationReason = "machineconfiguration.openshift.io/reason"
)

// AnnotationRolloutConfig names, on an ImageRollout, the rendered MachineConfig
// that its image was built from.
const AnnotationRolloutConfig = "imagemode.dev/rendered-machine-config"

// AnnotationHandedOff tells, on a MachineConfigPool, which image its nodes were given
// last, so that its ImageRollout can be put back while there is no newer one: JSON
// {machineOSConfig, image, pullSecret}.
const AnnotationHandedOff = "imagemode.dev/handed-off"

// Annotations of the OSImageStream.
const (
	// AnnotationProblems lists what of the sources was left out, and why: JSON, a
	// list of {source, stream, reason}.
	AnnotationProblems = "imagemode.dev/problems"
	// AnnotationStreamTraits tells of the streams what the status has no field
	// for: JSON, a map from a stream's name to {runtimes, deprecated, image, unread}.
	AnnotationStreamTraits = "imagemode.dev/stream-traits"
	// AnnotationOverrides tells what is known of the images that MachineConfigs
	// name: JSON, a map from an image's digest to {stream, runtimes, read, unread}.
	AnnotationOverrides = "imagemode.dev/overrides"
	// AnnotationReleasePayloadImage is the release image that the status was made
	// from, completely; it is written after the status.
	AnnotationReleasePayloadImage = "machineconfiguration.openshift.io/release-payload-image"
)

// Conditions of a MachineOSConfig, which the API leaves open.
const (
	// ConditionValid is False when something the user has to mend keeps the
	// build from being planned: the message names object and field.
	ConditionValid = "Valid"
	// ConditionBuilding is True while a build of the current spec runs.
	ConditionBuilding = "Building"
	// ConditionReady is True when the image of the current spec and rendered
	// config is built and the nodes can pull it. It does not mean rolled out.
	ConditionReady = "Ready"
	// ConditionSeeded is True when the first image was one built elsewhere.
	ConditionSeeded = "Seeded"
	// ConditionImageBuildDegraded is True when the build of the current spec
	// failed. The pool shows it under the same name.
	ConditionImageBuildDegraded = "ImageBuildDegraded"
)

// ConditionUpdaterConflict is True while a machine-config-operator does the same
// work: the message names it, and how to switch it off.
const ConditionUpdaterConflict = "UpdaterConflict"

// FinalizerBaseImage keeps a MachineOSConfig that is being deleted until its
// nodes have an image without its Containerfile to go to.
const FinalizerBaseImage = "imagemode.dev/base-image"

// LabelNodePool is the label by which a Node's pool is known: its ImageRollout
// selects exactly this.
const LabelNodePool = "imagemode.dev/pool"

// Well-known names.
const (
	// Namespace is where Secrets, ConfigMaps and Jobs live, unless --namespace
	// says otherwise.
	Namespace = "openshift-machine-config-operator"
	// ConfigMapStreams maps a stream name to YAML {osImage, osExtensionsImage}.
	ConfigMapStreams = "imagemode-streams"
	// ConfigMapOSImageURL holds the pair of images of a release that has one
	// stream: baseOSContainerImage, baseOSExtensionsContainerImage, releaseVersion.
	ConfigMapOSImageURL = "machine-config-osimageurl"
	// ConfigMapPayload holds the ImageStream of the release payload, under
	// KeyPayload, and under KeyNextPayload that of the next one, where they are
	// at hand and need not be read from a release image.
	ConfigMapPayload = "imagemode-payload"
	// KeyPayload and KeyNextPayload are keys in ConfigMapPayload.
	KeyPayload     = "image-references"
	KeyNextPayload = "next-image-references"
	// ConfigMapImageLabels keeps what was read of images by digest, so that a
	// restart asks no registry.
	ConfigMapImageLabels = "imagemode-image-labels"
	// ConfigMapTrustBundle holds, under KeyTrustBundle, certificates in PEM that
	// registries and repositories of the site are signed with.
	ConfigMapTrustBundle = "user-ca-bundle"
	// KeyTrustBundle is the key in ConfigMapTrustBundle.
	KeyTrustBundle = "ca-bundle.crt"
	// ConfigMapYumRepos and SecretGPGKeys hold package repositories and their
	// keys, for the builds of all pools; every key is a file.
	ConfigMapYumRepos = "etc-yum-repos-d"
	SecretGPGKeys     = "etc-pki-rpm-gpg"
	// SecretEntitlement holds the certificates of a subscription. A Secret of this
	// name with -<pool> at the end comes first, for that pool.
	SecretEntitlement = "etc-pki-entitlement"
	// ConfigMapStepTags lists the tags by which builders keep the results of steps.
	ConfigMapStepTags = "imagemode-step-tags"
	// ConfigMapUnusedImages says since when images of this cluster are not used
	// any more.
	ConfigMapUnusedImages = "imagemode-unused-images"
	// DaemonSetMachineConfigDaemon and DeploymentMachineOSBuilder are parts of a
	// machine-config-operator, in Namespace: the one takes nodes to their images,
	// the other builds them.
	DaemonSetMachineConfigDaemon = "machine-config-daemon"
	DeploymentMachineOSBuilder   = "machine-os-builder"
	// OSImageStreamName is the name of the one OSImageStream object.
	OSImageStreamName = "cluster"
	// SecretNodePull carries the pull secrets of all rollouts to the agents,
	// one key per ImageRollout.
	SecretNodePull = "imagemode-node-pull"
)
