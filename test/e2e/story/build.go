package story

import (
	"context"
	"fmt"
	"strings"
	"time"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/imagemode/imagemode/api/machineconfiguration"
	"github.com/imagemode/imagemode/builder/request"
)

// buildFollower prints what becomes of one build, each thing once.
type buildFollower struct {
	story   *Story
	build   string
	state   string
	podSeen map[string]string
}

// followBuild follows the build of the rendered config until the MachineOSConfig
// offers its image to the nodes.
func (s *Story) followBuild(ctx context.Context) error {
	follower := &buildFollower{story: s, podSeen: map[string]string{}}
	if err := until(ctx, "the MachineOSBuild of "+s.Rendered, follower.look); err != nil {
		return err
	}
	if err := until(ctx, "MachineOSConfig "+Pool+" to be Ready", s.configIsReady); err != nil {
		return err
	}
	s.Log.Line("MachineOSConfig %s is Ready: %s", Pool, s.Image)
	return nil
}

// look is a check: done when the build succeeded.
func (f *buildFollower) look(ctx context.Context) (string, bool, error) {
	build, err := f.story.currentBuild(ctx)
	if err != nil {
		return err.Error(), false, nil
	}
	if f.build != build.Name {
		f.build = build.Name
		f.story.Log.Line("MachineOSBuild %s", build.Name)
	}
	f.lookAtPods(ctx, build.Name)
	state := buildState(build)
	if state != f.state {
		f.state = state
		f.story.Log.Line("  %s", state)
	}
	if meta.IsStatusConditionTrue(build.Status.Conditions, string(mcfgv1.MachineOSBuildFailed)) {
		return state, false, fmt.Errorf("the build failed: %s", describeConditions(build.Status.Conditions))
	}
	succeeded := meta.IsStatusConditionTrue(build.Status.Conditions, string(mcfgv1.MachineOSBuildSucceeded))
	if succeeded && build.Status.BuildStart != nil && build.Status.BuildEnd != nil {
		f.story.Log.Line("  took %s", build.Status.BuildEnd.Sub(build.Status.BuildStart.Time).Round(time.Second))
	}
	return state, succeeded, nil
}

// lookAtPods prints the phases of the builder pods and, at the end of each, the
// steps in its report.
func (f *buildFollower) lookAtPods(ctx context.Context, build string) {
	var pods corev1.PodList
	err := f.story.Cluster.Client.List(ctx, &pods,
		client.InNamespace(machineconfiguration.Namespace),
		client.MatchingLabels{machineconfiguration.LabelMachineOSBuild: machineconfiguration.Shorten(build, machineconfiguration.MaxLabelValue)})
	if err != nil {
		return
	}
	for i := range pods.Items {
		pod := &pods.Items[i]
		if f.podSeen[pod.Name] == string(pod.Status.Phase) {
			continue
		}
		f.podSeen[pod.Name] = string(pod.Status.Phase)
		f.story.Log.Line("  builder pod %s is %s", pod.Name, pod.Status.Phase)
		if pod.Status.Phase == corev1.PodRunning {
			go f.story.followLog(ctx, pod)
		}
		for _, line := range reportLines(pod) {
			f.story.Log.Line("    %s", line)
		}
	}
}

// reportLines renders the report that a builder left as its termination message.
func reportLines(pod *corev1.Pod) []string {
	var lines []string
	for _, status := range pod.Status.ContainerStatuses {
		if status.State.Terminated == nil || status.State.Terminated.Message == "" {
			continue
		}
		result, err := request.DecodeResult([]byte(status.State.Terminated.Message))
		if err != nil {
			lines = append(lines, status.State.Terminated.Message)
			continue
		}
		lines = append(lines, resultLines(result)...)
	}
	return lines
}

func resultLines(result *request.Result) []string {
	var lines []string
	for _, step := range result.Steps {
		how := ""
		if step.Reused {
			how = " (reused)"
		}
		lines = append(lines, fmt.Sprintf("step %-16s %6.1fs%s", step.Name, step.Duration.Seconds(), how))
	}
	if result.Failure != nil {
		lines = append(lines, fmt.Sprintf("failed, class %s: %s", result.Failure.Class, result.Failure.Message))
		return append(lines, result.Failure.LastLines...)
	}
	return append(lines, fmt.Sprintf("pushed %s, %.1f MB", result.Digest, float64(result.Size)/1e6))
}

// currentBuild returns the build that the MachineOSConfig names as its current
// one, once that is the build of the rendered config the story waits for.
func (s *Story) currentBuild(ctx context.Context) (*mcfgv1.MachineOSBuild, error) {
	config, err := s.machineOSConfig(ctx)
	if err != nil {
		return nil, err
	}
	name := config.Annotations[machineconfiguration.AnnotationCurrentMachineOSBuild]
	if name == "" {
		return nil, fmt.Errorf("MachineOSConfig %s names no build yet: %s", Pool, describeConditions(config.Status.Conditions))
	}
	build := &mcfgv1.MachineOSBuild{}
	if err := s.Cluster.Client.Get(ctx, client.ObjectKey{Name: name}, build); err != nil {
		return nil, err
	}
	if build.Spec.MachineConfig.Name != s.Rendered {
		return nil, fmt.Errorf("MachineOSConfig %s still names the build of %s", Pool, build.Spec.MachineConfig.Name)
	}
	return build, nil
}

// configIsReady is done when the MachineOSConfig is Ready with the build's image.
func (s *Story) configIsReady(ctx context.Context) (string, bool, error) {
	build, err := s.currentBuild(ctx)
	if err != nil {
		return err.Error(), false, nil
	}
	config, err := s.machineOSConfig(ctx)
	if err != nil {
		return err.Error(), false, nil
	}
	s.Image = string(config.Status.CurrentImagePullSpec)
	ready := meta.IsStatusConditionTrue(config.Status.Conditions, machineconfiguration.ConditionReady)
	same := s.Image != "" && s.Image == string(build.Status.DigestedImagePushSpec)
	return describeConditions(config.Status.Conditions), ready && same, nil
}

func (s *Story) machineOSConfig(ctx context.Context) (*mcfgv1.MachineOSConfig, error) {
	config := &mcfgv1.MachineOSConfig{}
	err := s.Cluster.Client.Get(ctx, client.ObjectKey{Name: Pool}, config)
	return config, err
}

// buildState names the conditions of a build that are True.
func buildState(build *mcfgv1.MachineOSBuild) string {
	var states []string
	for _, condition := range build.Status.Conditions {
		if condition.Status == metav1.ConditionTrue {
			states = append(states, condition.Type+" ("+condition.Reason+")")
		}
	}
	if len(states) == 0 {
		return "planned"
	}
	return strings.Join(states, ", ")
}
