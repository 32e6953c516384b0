package machineosbuild

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/imagemode/imagemode/builder/request"
)

// wait is something that keeps a builder pod from running.
type wait struct {
	since time.Time
	// class is that of the failure, should it last.
	class request.FailureClass
	// message does not change from one retry to the next.
	message string
}

// waitOf says what the newest pod of a Job waits for, or that there is none; nil:
// nothing, or nothing known.
func waitOf(s *buildScope) *wait {
	newest := newestPod(s.pods)
	if newest == nil {
		return waitForPod(s)
	}
	if newest.Status.Phase != corev1.PodPending {
		return nil
	}
	class, message := waitingFor(newest)
	if message == "" {
		return nil
	}
	return &wait{since: newest.CreationTimestamp.Time, class: class, message: message}
}

// waitForPod is about a Job that was let go and has no pod yet: a quota may be
// used up, or an admission policy may refuse it.
func waitForPod(s *buildScope) *wait {
	if s.job == nil || isSuspended(s.job) || hasEnded(s.job) || s.job.Status.StartTime == nil {
		return nil
	}
	return &wait{
		since: s.job.Status.StartTime.Time, class: request.Resources,
		message: fmt.Sprintf("Job %s has no pod; its events say why (kubectl describe job -n %s %s)", s.job.Name, s.job.Namespace, s.job.Name),
	}
}

// waitingFor says, in words that do not change from one retry to the next, what
// keeps a pod from running; "": nothing, or nothing known.
func waitingFor(pod *corev1.Pod) (class request.FailureClass, message string) {
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodScheduled && condition.Reason == corev1.PodReasonUnschedulable {
			return request.Resources, fmt.Sprintf("builder pod %s cannot be scheduled: %s", pod.Name, condition.Message)
		}
	}
	for _, container := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		if container.State.Waiting == nil {
			continue
		}
		switch container.State.Waiting.Reason {
		case "ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull":
			return request.Registry, fmt.Sprintf("builder pod %s waits: image %s cannot be pulled by its node", pod.Name, container.Image)
		case "CreateContainerConfigError", "CreateContainerError":
			return request.Internal, fmt.Sprintf("builder pod %s waits: its node cannot create container %s", pod.Name, container.Name)
		}
	}
	return "", ""
}
