package machineosbuild

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"

	"github.com/imagemode/imagemode/builder/request"
)

// maxMessage bounds the message of a condition, in bytes. A builder's result
// has at most 4096; what is put around it is short.
const maxMessage = 8192

// resultOf reads what the pods of a Job that has ended report. found is false
// when no pod is there any more that could have said something.
func resultOf(pods []corev1.Pod) (result request.Result, found bool) {
	// The newest pod that was not merely moved away has the last word.
	for _, moved := range []bool{false, true} {
		for i := len(pods) - 1; i >= 0; i-- {
			if isDisrupted(&pods[i]) != moved {
				continue
			}
			if result, found := resultOfPod(&pods[i]); found {
				return result, true
			}
		}
	}
	return request.Result{}, false
}

// resultOfPod reads one pod. found is false while no container of it has ended.
func resultOfPod(pod *corev1.Pod) (result request.Result, found bool) {
	if pod.Status.Reason == "Evicted" {
		return failed(request.Resources, "the builder pod %s was evicted: %s", pod.Name, pod.Status.Message), true
	}
	for _, container := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		ended := container.State.Terminated
		if ended == nil || ended.ExitCode == 0 && container.Name != builderContainer {
			continue
		}
		return resultOfContainer(pod, container.Name, ended), true
	}
	return request.Result{}, false
}

func resultOfContainer(pod *corev1.Pod, name string, ended *corev1.ContainerStateTerminated) request.Result {
	if ended.Reason == "OOMKilled" {
		return failed(request.Resources, "container %s of builder pod %s was killed: it needed more memory than its limit", name, pod.Name)
	}
	result, err := request.DecodeResult([]byte(ended.Message))
	if err != nil {
		failure := failed(request.Internal, "container %s of builder pod %s ended with exit code %d and no result", name, pod.Name, ended.ExitCode)
		failure.Failure.LastLines = lastLines(ended.Message)
		return failure
	}
	if result.Failure == nil && ended.ExitCode != 0 {
		return failed(request.Internal, "builder pod %s reported an image and then ended with exit code %d", pod.Name, ended.ExitCode)
	}
	return *result
}

// lastLines are the ends of a log that the kubelet put in place of a message.
func lastLines(log string) []string {
	lines := strings.Split(strings.TrimSpace(strings.ToValidUTF8(log, "")), "\n")
	return lines[max(0, len(lines)-10):]
}

func failed(class request.FailureClass, format string, arguments ...any) request.Result {
	return request.Result{Failure: &request.Failure{Class: class, Message: fmt.Sprintf(format, arguments...)}}
}

// stateOf says what a builder's result means for the build.
func stateOf(result request.Result) state {
	if result.Failure != nil {
		return failedState(*result.Failure)
	}
	return state{phase: mcfgv1.MachineOSBuildSucceeded, digest: result.Digest}
}

// failedState has the failure's class as its reason.
func failedState(failure request.Failure) state {
	class := failure.Class
	if !slices.Contains(classes, class) {
		class = request.Internal
	}
	return state{phase: mcfgv1.MachineOSBuildFailed, reason: string(class), message: describe(failure)}
}

// classes are the failure classes that may become a condition's reason. A
// builder is another program, perhaps of another version.
var classes = []request.FailureClass{
	request.Containerfile, request.Image, request.Registry, request.Authentication,
	request.Network, request.Resources, request.Config, request.Internal,
}

// lastLinesMark stands between a failure and the end of its log.
const lastLinesMark = "; last lines:\n"

// describe puts a failure into words: where, what, exit code, last lines.
func describe(failure request.Failure) string {
	var text strings.Builder
	if failure.Step != "" {
		fmt.Fprintf(&text, "step %s: ", failure.Step)
	}
	message := failure.Message
	if failure.Line > 0 {
		// A builder's message is read by itself as well, and may name the line, too.
		line := fmt.Sprintf("line %d: ", failure.Line)
		message = strings.TrimPrefix(strings.TrimPrefix(message, "Containerfile "), line)
		text.WriteString("Containerfile " + line)
	}
	text.WriteString(message)
	if failure.ExitCode != 0 {
		fmt.Fprintf(&text, " (exit code %d)", failure.ExitCode)
	}
	if lines := strings.Join(failure.LastLines, "\n"); lines != "" {
		text.WriteString(lastLinesMark + lines)
	}
	return truncate(text.String(), maxMessage)
}

// isDisrupted reports whether a pod ended because it was moved away, by an
// eviction or preemption, which the Job does not count.
func isDisrupted(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(condition corev1.PodCondition) bool {
		return condition.Type == corev1.DisruptionTarget && condition.Status == corev1.ConditionTrue
	})
}
