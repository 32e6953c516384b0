package machineosbuild

import (
	"encoding/json"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/events"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"

	keys "github.com/imagemode/imagemode/api/machineconfiguration"
)

// maxNote is the API's limit of an event's text, in bytes.
const maxNote = 1024

// reporter tells users what happens. Its reasons are those that users of
// on-cluster builds know.
type reporter struct{ recorder events.EventRecorder }

func (r reporter) normal(build *mcfgv1.MachineOSBuild, reason, note string) {
	r.recorder.Eventf(build, nil, corev1.EventTypeNormal, reason, "Build", "%s", truncate(note, maxNote))
}

func (r reporter) warning(build *mcfgv1.MachineOSBuild, reason, note string) {
	r.recorder.Eventf(build, nil, corev1.EventTypeWarning, reason, "Build", "%s", truncate(note, maxNote))
}

// buildChosen is told once, when a MachineOSBuild is created.
func (r reporter) buildChosen(build *mcfgv1.MachineOSBuild, why []change) {
	r.normal(build, "BuildStarted", "MachineOSBuild "+build.Name+": "+inWords(why))
}

// jobCreated is told once for each build that needs a pod.
func (r reporter) jobCreated(build *mcfgv1.MachineOSBuild, job string) {
	r.normal(build, "JobCreated", fmt.Sprintf("MachineOSBuild %s is built by Job %s", build.Name, job))
}

// phaseChanged is told when a build goes from one phase to the next.
func (r reporter) phaseChanged(build *mcfgv1.MachineOSBuild, s state) {
	switch s.phase {
	case mcfgv1.MachineOSBuildPrepared:
		r.normal(build, "BuildPreparing", fmt.Sprintf("MachineOSBuild %s: %s", build.Name, s.orUsual()))
	case mcfgv1.MachineOSBuilding:
		r.normal(build, "BuildBuilding", fmt.Sprintf("MachineOSBuild %s: %s", build.Name, s.orUsual()))
	case mcfgv1.MachineOSBuildSucceeded:
		r.normal(build, "BuildCompleted", fmt.Sprintf("MachineOSBuild %s: image %s", build.Name, build.Status.DigestedImagePushSpec))
	case mcfgv1.MachineOSBuildFailed:
		r.warning(build, "BuildFailed", fmt.Sprintf("MachineOSBuild %s: %s: %s", build.Name, s.reason, s.orUsual()))
	case mcfgv1.MachineOSBuildInterrupted:
		r.warning(build, "BuildInterrupted", fmt.Sprintf("MachineOSBuild %s: %s: %s", build.Name, s.reason, s.orUsual()))
	}
}

// rebuildAccepted is told once for each value of the annotation.
func (r reporter) rebuildAccepted(config *mcfgv1.MachineOSConfig, number int) {
	r.recorder.Eventf(config, nil, corev1.EventTypeNormal, "RebuildRequested", "Build",
		"MachineOSConfig %s: rebuild %d, asked for by the annotation %s", config.Name, number, keys.AnnotationRebuild)
}

// inWords names the inputs that changed.
func inWords(why []change) string {
	var inputs []string
	for _, change := range why {
		inputs = append(inputs, change.Input)
	}
	if len(inputs) == 0 {
		return "the build of the same inputs is gone"
	}
	return "changed: " + strings.Join(inputs, ", ")
}

// encodeWhy writes what changed as the annotation's JSON.
func encodeWhy(why []change) string {
	if why == nil {
		why = []change{}
	}
	raw, err := json.Marshal(why)
	if err != nil {
		// A list of strings.
		panic(err)
	}
	return string(raw)
}
