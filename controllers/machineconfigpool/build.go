package machineconfigpool

import (
	"slices"
	"strings"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/imagemode/imagemode/api/machineconfiguration"
	"github.com/imagemode/imagemode/api/v1alpha1"
)

// phase is how far the image of a pool's current rendered config is.
type phase int

const (
	// noOSConfig: no MachineOSConfig asks for an image.
	noOSConfig phase = iota
	// awaitingBuild: the MachineOSBuild of the current spec does not exist yet.
	awaitingBuild
	// created: the MachineOSBuild exists and has not begun.
	created
	// prepared: its Job exists.
	prepared
	// building: its pod runs.
	building
	// built: the image exists, and the MachineOSConfig is not Ready (yet).
	built
	// ready: the nodes may have the image.
	ready
	// failed and interrupted: there is no image, and none is being made.
	failed
	interrupted
)

// target is the image that a pool's nodes are to run.
type target struct {
	// osConfig is the pool's MachineOSConfig; nil: none.
	osConfig *mcfgv1.MachineOSConfig
	// build is the MachineOSBuild of the current spec and rendered config; nil: none.
	build *mcfgv1.MachineOSBuild
	phase phase
	// left is the image, by digest, that a deleted MachineOSConfig left to the
	// rollout, if it carries the pool's current rendered config.
	left string
	// digests of the images that carry the current rendered config, by builds of
	// this MachineOSConfig that succeeded.
	digests []string
	// last is the image that was handed off last; nil: none was, or it is not known.
	last *lastImage
}

// targetOf works out the image for rendered, the name of the pool's current
// rendered config. builds may hold those of other MachineOSConfigs.
func targetOf(osConfig *mcfgv1.MachineOSConfig, builds []mcfgv1.MachineOSBuild, rendered string) target {
	if osConfig == nil {
		return target{}
	}
	t := target{osConfig: osConfig}
	var candidates []*mcfgv1.MachineOSBuild
	for i := range builds {
		build := &builds[i]
		if !isBuildOf(build, osConfig) || build.Spec.MachineConfig.Name != rendered {
			continue
		}
		candidates = append(candidates, build)
		if isTrue(build.Status.Conditions, mcfgv1.MachineOSBuildSucceeded) {
			t.digests = append(t.digests, digestOf(string(build.Status.DigestedImagePushSpec)))
		}
	}
	t.build = currentBuild(osConfig, candidates)
	t.phase = phaseOf(osConfig, t.build)
	return t
}

// targetLeft is the target of a pool without a MachineOSConfig: the image that a
// deleted one left to the rollout, as long as the pool's config is the one in it.
func targetLeft(rollout *v1alpha1.ImageRollout, builds []mcfgv1.MachineOSBuild, rendered string) target {
	if rollout == nil || rollout.Spec.Image == "" {
		return target{}
	}
	for i := range builds {
		build := &builds[i]
		owner := metav1.GetControllerOf(build)
		if owner != nil && owner.UID == rollout.UID && build.Spec.MachineConfig.Name == rendered &&
			string(build.Status.DigestedImagePushSpec) == rollout.Spec.Image {
			return target{build: build, phase: ready, left: rollout.Spec.Image}
		}
	}
	return target{}
}

// image returns the image by digest that nodes may have, or nothing unless the
// MachineOSConfig is Ready for its current spec and the current rendered config.
func (t target) image() string {
	if t.phase != ready || t.osConfig == nil {
		return t.left
	}
	return string(t.osConfig.Status.CurrentImagePullSpec)
}

// withoutImage is the target without a new image: what was handed off stays.
func (t target) withoutImage() target {
	return target{osConfig: t.osConfig, last: t.last, phase: min(t.phase, built)}
}

// carries reports whether an image, by its digest, is the MachineOSConfig's
// current one and was built from the current rendered config.
func (t target) carries(digest string) bool {
	if t.left != "" {
		return digest == digestOf(t.left)
	}
	return t.osConfig != nil && digest != "" &&
		digest == digestOf(string(t.osConfig.Status.CurrentImagePullSpec)) && slices.Contains(t.digests, digest)
}

// isBuildOf reports whether build was made for this MachineOSConfig and not
// for an older one of the same name.
func isBuildOf(build *mcfgv1.MachineOSBuild, osConfig *mcfgv1.MachineOSConfig) bool {
	owner := metav1.GetControllerOf(build)
	return build.Spec.MachineOSConfig.Name == osConfig.Name && (owner == nil || owner.UID == osConfig.UID)
}

// currentBuild picks the build that the MachineOSConfig names as current, else
// the newest: several builds of one rendered config differ in the Containerfile
// or are repetitions.
func currentBuild(osConfig *mcfgv1.MachineOSConfig, candidates []*mcfgv1.MachineOSBuild) *mcfgv1.MachineOSBuild {
	named := osConfig.Annotations[machineconfiguration.AnnotationCurrentMachineOSBuild]
	var newest *mcfgv1.MachineOSBuild
	for _, build := range candidates {
		if build.Name == named {
			return build
		}
		if newest == nil || isNewer(build, newest) {
			newest = build
		}
	}
	return newest
}

// isNewer orders builds by age, and by name where they were made in the same second.
func isNewer(a, b metav1.Object) bool {
	at, bt := a.GetCreationTimestamp(), b.GetCreationTimestamp()
	if at.Equal(&bt) {
		return strings.Compare(a.GetName(), b.GetName()) > 0
	}
	return bt.Before(&at)
}

// phaseOf reads the phase from the build's conditions. The result of a build
// counts only if the MachineOSConfig was judged at its present generation:
// after an edit an older build has nothing to say, unless it still runs.
func phaseOf(osConfig *mcfgv1.MachineOSConfig, build *mcfgv1.MachineOSBuild) phase {
	if build == nil {
		return awaitingBuild
	}
	conditions := build.Status.Conditions
	readiness := meta.FindStatusCondition(osConfig.Status.Conditions, machineconfiguration.ConditionReady)
	isJudged := readiness != nil && readiness.ObservedGeneration == osConfig.Generation
	isTerminal := isTrue(conditions, mcfgv1.MachineOSBuildSucceeded) ||
		isTrue(conditions, mcfgv1.MachineOSBuildFailed) || isTrue(conditions, mcfgv1.MachineOSBuildInterrupted)
	switch {
	case isTerminal && !isJudged:
		return awaitingBuild
	case isTrue(conditions, mcfgv1.MachineOSBuildFailed):
		return failed
	case isTrue(conditions, mcfgv1.MachineOSBuildInterrupted):
		return interrupted
	case isTrue(conditions, mcfgv1.MachineOSBuildSucceeded):
		return phaseOfBuilt(osConfig, build, readiness)
	case isTrue(conditions, mcfgv1.MachineOSBuilding):
		return building
	case isTrue(conditions, mcfgv1.MachineOSBuildPrepared):
		return prepared
	default:
		return created
	}
}

// phaseOfBuilt tells ready from built: Ready must be said about this build's
// image, since the condition and the image are read at different moments.
func phaseOfBuilt(osConfig *mcfgv1.MachineOSConfig, build *mcfgv1.MachineOSBuild, readiness *metav1.Condition) phase {
	isItsImage := osConfig.Status.CurrentImagePullSpec != "" &&
		digestOf(string(osConfig.Status.CurrentImagePullSpec)) == digestOf(string(build.Status.DigestedImagePushSpec))
	if readiness.Status == metav1.ConditionTrue && isItsImage {
		return ready
	}
	return built
}

func isTrue(conditions []metav1.Condition, progress mcfgv1.BuildProgress) bool {
	return meta.IsStatusConditionTrue(conditions, string(progress))
}

// digestOf returns what stands behind the @ of an image reference; empty: none.
func digestOf(image string) string {
	_, digest, _ := strings.Cut(image, "@")
	return digest
}
