package machineosbuild

import (
	"fmt"
	"strings"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"

	keys "github.com/imagemode/imagemode/api/machineconfiguration"
	"github.com/imagemode/imagemode/builder/request"
)

// Reasons of a MachineOSConfig's conditions, besides those of a problem.
const (
	reasonWaitingForRender    = "WaitingForRenderedConfig"
	reasonValid               = "Valid"
	reasonReady               = "Ready"
	reasonBuilding            = "Building"
	reasonBuildPending        = "BuildPending"
	reasonBuildSuccess        = "BuildSuccess"
	reasonBuildFailed         = "BuildFailed"
	reasonBuildInterrupted    = "BuildInterrupted"
	reasonNodesCannotPull     = "NodesCannotPull"
	reasonRegistryUnreachable = "RegistryUnreachable"
)

// configStatus is the status of a MachineOSConfig: all of it, from what was
// read and planned. Of what stood there before, it keeps the image of the last
// success and, while a registry is out of reach, the answer given before.
func configStatus(s *scope, chosen plan, check pullCheck, now time.Time) mcfgv1.MachineOSConfigStatus {
	status := *s.config.Status.DeepCopy()
	status.ObservedGeneration = s.config.Generation
	ready := readyCondition(s, chosen, check)
	if build := chosen.build; build != nil && hasSucceeded(build) {
		status.CurrentImagePullSpec = build.Status.DigestedImagePushSpec
		status.MachineOSBuild = &mcfgv1.ObjectReference{
			Group: mcfgv1.GroupName, Resource: "machineosbuilds", Name: build.Name,
		}
	}
	conditions := []metav1.Condition{validCondition(s, chosen), buildingCondition(chosen), ready, degradedCondition(s, chosen)}
	if build := chosen.build; build != nil && build.Labels[keys.LabelPreBuiltImage] != "" && hasSucceeded(build) {
		conditions = append(conditions, condition(keys.ConditionSeeded, metav1.ConditionTrue, reasonSeeded,
			fmt.Sprintf("The first image was built before: %s", build.Status.DigestedImagePushSpec)))
	}
	if conflict := conflictCondition(s); conflict != nil {
		conditions = append(conditions, *conflict)
	} else {
		apimeta.RemoveStatusCondition(&status.Conditions, keys.ConditionUpdaterConflict)
	}
	for _, condition := range conditions {
		condition.ObservedGeneration = s.config.Generation
		condition.LastTransitionTime = metav1.NewTime(now)
		apimeta.SetStatusCondition(&status.Conditions, condition)
	}
	return status
}

// validCondition names what keeps the next build from being planned. What this
// program itself has yet to deliver is no fault of the user's.
func validCondition(s *scope, chosen plan) metav1.Condition {
	found := chosen.problem
	switch {
	case found == nil:
		message := "Everything that a build needs is there"
		if names := s.ignoredHelpers(); names != "" {
			message += "; credential helpers named in these secrets are not used: " + names
		}
		if unknown := s.unknownKeys(); unknown != "" {
			message += unknownKeysMark + unknown
		}
		return condition(keys.ConditionValid, metav1.ConditionTrue, reasonValid, message)
	case found.reason == reasonWaitingForRender:
		return condition(keys.ConditionValid, metav1.ConditionUnknown, found.reason, found.message)
	default:
		return condition(keys.ConditionValid, metav1.ConditionFalse, found.reason, found.message)
	}
}

// unknownKeysMark goes before the places of keys that nobody knows.
const unknownKeysMark = "; Ignition does not know these keys and passes them over (misspelt?): "

// buildingCondition is True from the moment a build is chosen until it ends.
func buildingCondition(chosen plan) metav1.Condition {
	build := chosen.build
	if chosen.blueprint == nil {
		return condition(keys.ConditionBuilding, metav1.ConditionFalse, chosen.problem.reason, "No build: "+chosen.problem.message)
	}
	if build == nil {
		return condition(keys.ConditionBuilding, metav1.ConditionTrue, reasonBuildPending,
			fmt.Sprintf("MachineOSBuild %s is about to be created", chosen.blueprint.name))
	}
	status, reason, message := metav1.ConditionTrue, reasonBuildPending, "Waiting to be prepared"
	if found := conditionOf(build); found != nil {
		reason = found.Reason
		// The lines of a log are for ImageBuildDegraded and the build itself.
		message, _, _ = strings.Cut(found.Message, lastLinesMark)
	}
	if isTerminal(build) {
		status = metav1.ConditionFalse
	}
	return condition(keys.ConditionBuilding, status, reason, fmt.Sprintf("MachineOSBuild %s: %s", build.Name, message))
}

// readyCondition is True when the image of the current spec and rendered config
// is built and the nodes can pull it.
func readyCondition(s *scope, chosen plan, check pullCheck) metav1.Condition {
	not := func(reason, message string) metav1.Condition {
		if s.config.DeletionTimestamp != nil {
			message = fmt.Sprintf("MachineOSConfig %s is being deleted and waits for an image without its Containerfile for its nodes "+
				"(annotation %s lets it go at once, with the nodes as they are): %s", s.config.Name, keys.AnnotationAbandon, message)
		}
		return condition(keys.ConditionReady, metav1.ConditionFalse, reason, message)
	}
	if chosen.blueprint == nil {
		return not(chosen.problem.reason, chosen.problem.message)
	}
	name := chosen.blueprint.name
	switch phase := phaseOfChosen(chosen); phase {
	case mcfgv1.MachineOSBuildSucceeded:
		return readableCondition(s, chosen, check)
	case mcfgv1.MachineOSBuildFailed:
		return not(reasonBuildFailed, fmt.Sprintf("MachineOSBuild %s failed; see ImageBuildDegraded", name)+whenAgain(chosen))
	case mcfgv1.MachineOSBuildInterrupted:
		return not(reasonBuildInterrupted, fmt.Sprintf("MachineOSBuild %s was interrupted; see ImageBuildDegraded", name))
	default:
		return not(reasonBuilding, fmt.Sprintf("MachineOSBuild %s has not ended yet", name))
	}
}

// whenAgain says when a failed build is tried again by itself.
func whenAgain(chosen plan) string {
	again := "; it is built again when its inputs change, or with the annotation " + keys.AnnotationRebuild
	if !chosen.wakeAt.IsZero() {
		again = "; it is tried again at " + chosen.wakeAt.UTC().Format(time.RFC3339)
	}
	if conditionOf(chosen.build).Reason == string(request.Authentication) {
		again += ", and at once when a Secret that it uses is corrected"
	}
	return again
}

// readableCondition is about an image that is built.
func readableCondition(s *scope, chosen plan, check pullCheck) metav1.Condition {
	image := chosen.build.Status.DigestedImagePushSpec
	built := fmt.Sprintf("Image %s is built for %s", image, chosen.build.Spec.MachineConfig.Name)
	ready := func(message string) metav1.Condition {
		return condition(keys.ConditionReady, metav1.ConditionTrue, reasonReady, message)
	}
	switch check.readability {
	case readable:
		return ready(built + "; the nodes can pull it")
	case unchecked:
		return ready(built + "; whether the nodes can pull it was not checked: no node pull secret is named")
	case unreadable:
		return condition(keys.ConditionReady, metav1.ConditionFalse, reasonNodesCannotPull,
			fmt.Sprintf("Image %s is built, but the nodes cannot pull it: %s", image, check.message))
	}
	before := apimeta.FindStatusCondition(s.config.Status.Conditions, keys.ConditionReady)
	if before != nil && before.Status == metav1.ConditionTrue && s.config.Status.CurrentImagePullSpec == image {
		return ready(built + "; the nodes can pull it")
	}
	return condition(keys.ConditionReady, metav1.ConditionUnknown, reasonRegistryUnreachable,
		fmt.Sprintf("Image %s is built; whether the nodes can pull it is not known: %s", image, check.message))
}

// degradedCondition says that the wanted build failed, in the words that users
// of on-cluster builds know.
func degradedCondition(s *scope, chosen plan) metav1.Condition {
	pool := s.config.Spec.MachineConfigPool.Name
	is := func(status metav1.ConditionStatus, reason, message string) metav1.Condition {
		return condition(keys.ConditionImageBuildDegraded, status, reason, message)
	}
	failed := func(reason string) metav1.Condition {
		found := conditionOf(chosen.build)
		return is(metav1.ConditionTrue, reason, fmt.Sprintf("Failed to build OS image for pool %s (MachineOSBuild: %s): %s: %s",
			pool, chosen.build.Name, found.Reason, found.Message))
	}
	if valid := validCondition(s, chosen); chosen.blueprint == nil && valid.Status == metav1.ConditionFalse {
		return is(metav1.ConditionFalse, valid.Reason, fmt.Sprintf("No OS image is built for pool %s: %s", pool, valid.Message))
	}
	switch phaseOfChosen(chosen) {
	case mcfgv1.MachineOSBuildFailed:
		return failed(reasonBuildFailed)
	case mcfgv1.MachineOSBuildInterrupted:
		return failed(reasonBuildInterrupted)
	case mcfgv1.MachineOSBuildSucceeded:
		return is(metav1.ConditionFalse, reasonBuildSuccess, "Build succeeded for pool "+pool)
	case mcfgv1.MachineOSBuildPrepared, mcfgv1.MachineOSBuilding:
		return is(metav1.ConditionFalse, reasonBuilding, "Build started for pool "+pool)
	default:
		return is(metav1.ConditionFalse, reasonBuildPending, "MachineOSConfig updated/created, waiting for MachineOSBuild")
	}
}

// phaseOfChosen is the phase of the wanted build, "" while there is none.
func phaseOfChosen(chosen plan) phase {
	if chosen.build == nil {
		return ""
	}
	return phaseOf(chosen.build)
}

func condition(kind string, status metav1.ConditionStatus, reason, message string) metav1.Condition {
	return metav1.Condition{Type: kind, Status: status, Reason: reason, Message: truncate(message, maxMessage)}
}
