package machineosbuild

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"

	keys "github.com/imagemode/imagemode/api/machineconfiguration"
)

// maxNote is the API's limit of an event's text, in bytes.
const maxNote = 1024

// reporter tells users what happens. Its reasons are those that users of
// on-cluster builds know.
type reporter struct{ recorder events.EventRecorder }

func (r reporter) normal(about client.Object, reason, note string) {
	r.tell(about, corev1.EventTypeNormal, reason, note)
}

func (r reporter) warning(about client.Object, reason, note string) {
	r.tell(about, corev1.EventTypeWarning, reason, note)
}

func (r reporter) tell(about client.Object, kind, reason, note string) {
	r.recorder.Eventf(about, nil, kind, reason, "Build", "%s", truncate(note, maxNote))
}

// buildChosen is told once, when a MachineOSBuild is created.
func (r reporter) buildChosen(config *mcfgv1.MachineOSConfig, build *mcfgv1.MachineOSBuild, why []change) {
	r.normal(build, "BuildStarted", "MachineOSBuild "+build.Name+": "+inWords(why))
	r.normal(config, "ConfigReconciled", fmt.Sprintf("MachineOSConfig %s: MachineOSBuild %s (%s)", config.Name, build.Name, inWords(why)))
	if slices.ContainsFunc(why, func(c change) bool { return c.Input == inputRendered }) {
		configChanges.WithLabelValues(config.Spec.MachineConfigPool.Name).Inc()
	}
}

// jobCreated is told once for each build that needs a pod.
func (r reporter) jobCreated(build *mcfgv1.MachineOSBuild, job *batchv1.Job) {
	note := fmt.Sprintf("MachineOSBuild %s is built by Job %s", build.Name, job.Name)
	if ptr.Deref(job.Spec.Template.Spec.HostUsers, false) {
		r.warning(build, "JobCreated", note+", without a user namespace (--builder-host-users): root in its pod is root on the node")
		return
	}
	r.normal(build, "JobCreated", note)
}

// jobDeleted is told when a Job is not wanted any more.
func (r reporter) jobDeleted(build *mcfgv1.MachineOSBuild, job string) {
	r.normal(build, "JobDeleted", fmt.Sprintf("MachineOSBuild %s: deleted Job %s", build.Name, job))
}

// phaseChanged is told when a build goes from one phase to the next.
func (r reporter) phaseChanged(build *mcfgv1.MachineOSBuild, s state) {
	said := fmt.Sprintf("MachineOSBuild %s: %s", build.Name, s.orUsual())
	hasJob := build.Status.Builder != nil
	switch s.phase {
	case mcfgv1.MachineOSBuildPrepared:
		r.normal(build, "BuildPreparing", said)
	case mcfgv1.MachineOSBuilding:
		r.normal(build, "JobStarted", said)
		r.normal(build, "BuildBuilding", said)
	case mcfgv1.MachineOSBuildSucceeded:
		if hasJob {
			r.normal(build, "JobCompleted", said)
		}
		r.normal(build, "BuildCompleted", fmt.Sprintf("MachineOSBuild %s: image %s", build.Name, build.Status.DigestedImagePushSpec))
	case mcfgv1.MachineOSBuildFailed:
		said = fmt.Sprintf("MachineOSBuild %s: %s: %s", build.Name, s.reason, s.orUsual())
		if hasJob {
			r.warning(build, "JobFailed", said)
		}
		r.warning(build, "BuildFailed", said)
	case mcfgv1.MachineOSBuildInterrupted:
		r.warning(build, "BuildInterrupted", fmt.Sprintf("MachineOSBuild %s: %s: %s", build.Name, s.reason, s.orUsual()))
	}
}

// rebuildAccepted is told once for each value of the annotation.
func (r reporter) rebuildAccepted(config *mcfgv1.MachineOSConfig, number int) {
	r.normal(config, "RebuildRequested", fmt.Sprintf("MachineOSConfig %s: rebuild %d, asked for by the annotation %s",
		config.Name, number, keys.AnnotationRebuild))
}

// imageGone is told once for an image that was lost.
func (r reporter) imageGone(config *mcfgv1.MachineOSConfig, build *mcfgv1.MachineOSBuild) {
	r.warning(config, "ImageGone", fmt.Sprintf("MachineOSConfig %s: image %s is gone from its registry; it is built again",
		config.Name, build.Status.DigestedImagePushSpec))
}

// imagesKept is told to those who push to a repository that unused images could not
// be deleted from: it fills up, and nothing else shows why.
func (r reporter) imagesKept(configs []mcfgv1.MachineOSConfig, kept place, err error) {
	for i := range configs {
		if config := &configs[i]; repositoryOf(config.Spec.RenderedImagePushSpec) == kept.repository {
			r.warning(config, "ImagesNotDeleted", fmt.Sprintf("MachineOSConfig %s: images that nothing refers to stay in %s; secret %q (spec.renderedImagePushSecret.name) needs the right to delete there: %s",
				config.Name, kept.repository, kept.secret, localAddress.ReplaceAllString(err.Error(), "")))
		}
	}
}

// configDeleted is told when a MachineOSConfig goes.
func (r reporter) configDeleted(config *mcfgv1.MachineOSConfig) {
	r.normal(config, "ConfigDeleted", fmt.Sprintf("MachineOSConfig %s is deleted; its builds go with it", config.Name))
}

// statusChanged is told when what is said about a MachineOSConfig turns. The
// condition is False again as soon as the next build starts; recovered is it only
// when that has succeeded.
func (r reporter) statusChanged(config *mcfgv1.MachineOSConfig, before []metav1.Condition, failedBefore bool) {
	degraded := apimeta.FindStatusCondition(config.Status.Conditions, keys.ConditionImageBuildDegraded)
	old := apimeta.FindStatusCondition(before, keys.ConditionImageBuildDegraded)
	if degraded != nil && (old == nil || old.Reason != degraded.Reason) {
		switch {
		case degraded.Status == metav1.ConditionTrue:
			r.warning(config, "BuildDegraded", degraded.Message)
		case degraded.Reason == reasonBuildSuccess && failedBefore:
			r.normal(config, "BuildRecovered", degraded.Message)
		}
	}
	valid, old := apimeta.FindStatusCondition(config.Status.Conditions, keys.ConditionValid), apimeta.FindStatusCondition(before, keys.ConditionValid)
	if valid == nil {
		return
	}
	if _, unknown, found := strings.Cut(valid.Message, unknownKeysMark); found && (old == nil || !strings.Contains(old.Message, unknown)) {
		r.warning(config, "UnknownKeys", fmt.Sprintf("MachineOSConfig %s%s%s", config.Name, unknownKeysMark, unknown))
	}
	if valid.Status != metav1.ConditionFalse {
		return
	}
	if old == nil || old.Reason != valid.Reason || old.Status != valid.Status {
		r.warning(config, "ConfigReconcileFailed", valid.Message)
	}
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
