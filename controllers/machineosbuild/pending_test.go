package machineosbuild

import (
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"

	"github.com/imagemode/imagemode/builder/request"
)

// waits is a pod whose container waits, since a time.
func waits(reason, message string) corev1.Pod {
	return aPod(pending, func(pod *corev1.Pod) {
		pod.CreationTimestamp = metav1.NewTime(someTime)
		pod.Status.ContainerStatuses[0].Image = "registry.example.com/builder:1"
		pod.Status.ContainerStatuses[0].State.Waiting = &corev1.ContainerStateWaiting{Reason: reason, Message: message}
	})
}

func unschedulable(pod *corev1.Pod) {
	pod.CreationTimestamp = metav1.NewTime(someTime)
	pod.Status.Conditions = []corev1.PodCondition{{
		Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable, Message: "0/3 nodes are available",
	}}
}

// startedAt sets when a Job was let go.
func startedAt(at time.Time) func(*batchv1.Job) {
	return func(job *batchv1.Job) {
		started := metav1.NewTime(at)
		job.Status.StartTime = &started
	}
}

func TestWhatAPodWaitsFor(t *testing.T) {
	for name, test := range map[string]struct {
		scope *buildScope
		class request.FailureClass
		says  string
	}{
		"nothing: it runs":             {aBuildScope("", withJob(resumed), withPods(aPod())), "", ""},
		"nothing: it is being created": {aBuildScope("", withJob(resumed), withPods(waits("PodInitializing", ""))), "", ""},
		"an image":                     {aBuildScope("", withJob(resumed), withPods(waits("ErrImagePull", "after 41 s"))), request.Registry, "image registry.example.com/builder:1 cannot be pulled by its node"},
		"an image, in the same words":  {aBuildScope("", withJob(resumed), withPods(waits("ImagePullBackOff", "after 42 s"))), request.Registry, "image registry.example.com/builder:1 cannot be pulled by its node"},
		"its container":                {aBuildScope("", withJob(resumed), withPods(waits("CreateContainerConfigError", ""))), request.Internal, "cannot create container build"},
		"a node":                       {aBuildScope("", withJob(resumed), withPods(aPod(pending, unschedulable))), request.Resources, "cannot be scheduled: 0/3 nodes"},
		"to be created":                {aBuildScope("", withJob(resumed, startedAt(someTime))), request.Resources, "has no pod; its events say why"},
	} {
		t.Run(name, func(t *testing.T) {
			found := waitOf(test.scope)
			if test.says == "" {
				if found != nil {
					t.Errorf("it waits: %+v", found)
				}
				return
			}
			if found == nil || found.class != test.class || !strings.Contains(found.message, test.says) || !found.since.Equal(someTime) {
				t.Errorf("%+v, want %s with %q", found, test.class, test.says)
			}
		})
	}
}

func TestAPodThatCannotStartFailsTheBuildInTheEnd(t *testing.T) {
	for name, test := range map[string]struct {
		after  time.Duration
		action action
		wakes  time.Time
	}{
		"at first it is reported":         {time.Minute, report, someTime.Add(defaultPendingDeadline)},
		"just before the deadline, too":   {defaultPendingDeadline - time.Second, report, someTime.Add(defaultPendingDeadline)},
		"at the deadline the build fails": {defaultPendingDeadline, stop, time.Time{}},
	} {
		t.Run(name, func(t *testing.T) {
			s := aBuildScope(mcfgv1.MachineOSBuildPrepared, withJob(resumed), withPods(aPod(pending, unschedulable)))
			s.now = someTime.Add(test.after)
			next := nextStep(s)
			if next.action != test.action || !next.wakeAt.Equal(test.wakes) {
				t.Fatalf("%s, wakes at %s", next.action, next.wakeAt)
			}
			if !strings.Contains(next.state.message, "cannot be scheduled: 0/3 nodes are available") {
				t.Errorf("message %q", next.state.message)
			}
			if test.action == stop && (next.state.phase != mcfgv1.MachineOSBuildFailed || next.state.reason != string(request.Resources)) {
				t.Errorf("state %+v", next.state)
			}
		})
	}
}
