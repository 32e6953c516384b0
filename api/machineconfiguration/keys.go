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

// AnnotationProblems lists on the OSImageStream what of its sources was left
// out, and why: JSON, a list of {source, stream, reason}.
const AnnotationProblems = "imagemode.dev/problems"

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
	// ConditionImageBuildDegraded is True when the build of the current spec
	// failed. The pool shows it under the same name.
	ConditionImageBuildDegraded = "ImageBuildDegraded"
)

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
	// ConfigMapTrustBundle holds, under KeyTrustBundle, certificates in PEM that
	// registries and repositories of the site are signed with.
	ConfigMapTrustBundle = "user-ca-bundle"
	// KeyTrustBundle is the key in ConfigMapTrustBundle.
	KeyTrustBundle = "ca-bundle.crt"
	// OSImageStreamName is the name of the one OSImageStream object.
	OSImageStreamName = "cluster"
	// SecretNodePull carries the pull secrets of all rollouts to the agents,
	// one key per ImageRollout.
	SecretNodePull = "imagemode-node-pull"
)
