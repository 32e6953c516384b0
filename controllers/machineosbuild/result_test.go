package machineosbuild

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"

	"github.com/imagemode/imagemode/builder/request"
)

// aPod is a builder pod that runs.
func aPod(changes ...func(*corev1.Pod)) corev1.Pod {
	pod := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "build-worker-x", Namespace: "ns"}}
	pod.Status.Phase = corev1.PodRunning
	pod.Status.InitContainerStatuses = []corev1.ContainerStatus{{
		Name: copyContainer, State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}},
	}}
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: builderContainer}}
	for _, change := range changes {
		change(&pod)
	}
	return pod
}

// ended is a builder container that ended.
func ended(exitCode int32, message string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		pod.Status.Phase = corev1.PodSucceeded
		if exitCode != 0 {
			pod.Status.Phase = corev1.PodFailed
		}
		pod.Status.ContainerStatuses[0].State.Terminated = &corev1.ContainerStateTerminated{ExitCode: exitCode, Message: message}
	}
}

func pending(pod *corev1.Pod) {
	pod.Status.Phase = corev1.PodPending
	pod.Status.InitContainerStatuses = nil
}

func disrupted(pod *corev1.Pod) {
	pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue})
}

func named(name string) func(*corev1.Pod) { return func(pod *corev1.Pod) { pod.Name = name } }

// reported is what a builder of ours writes at its end.
func reported(result request.Result) func(*corev1.Pod) {
	code := int32(0)
	if result.Failure != nil {
		code = 1
	}
	return ended(code, string(result.Encode()))
}

var (
	success = request.Result{Digest: imageDigest}
	runFail = request.Result{Failure: &request.Failure{
		Class: request.Containerfile, Step: "user", Message: "RUN exit 1", Line: 2, ExitCode: 1, LastLines: []string{"one", "two"},
	}}
)

func TestStateOfEndedPods(t *testing.T) {
	for name, test := range map[string]struct {
		pods []corev1.Pod
		// phase is "" where no pod says anything.
		phase  phase
		reason string
		says   []string
	}{
		"no pod":                   {nil, "", "", nil},
		"a pod that runs":          {[]corev1.Pod{aPod()}, "", "", nil},
		"a pod that waits":         {[]corev1.Pod{aPod(pending)}, "", "", nil},
		"an image":                 {[]corev1.Pod{aPod(reported(success))}, mcfgv1.MachineOSBuildSucceeded, "", nil},
		"a failed RUN":             {[]corev1.Pod{aPod(reported(runFail))}, mcfgv1.MachineOSBuildFailed, "Containerfile", []string{"step user: Containerfile line 2: RUN exit 1 (exit code 1)", "one\ntwo"}},
		"the newest pod counts":    {[]corev1.Pod{aPod(reported(runFail)), aPod(reported(success))}, mcfgv1.MachineOSBuildSucceeded, "", nil},
		"a moved pod counts last":  {[]corev1.Pod{aPod(reported(runFail)), aPod(disrupted, ended(137, ""))}, mcfgv1.MachineOSBuildFailed, "Containerfile", nil},
		"if there is nothing else": {[]corev1.Pod{aPod(disrupted, ended(137, ""))}, mcfgv1.MachineOSBuildFailed, "Internal", []string{"exit code 137"}},
		"killed for memory": {[]corev1.Pod{aPod(ended(137, ""), func(pod *corev1.Pod) {
			pod.Status.ContainerStatuses[0].State.Terminated.Reason = "OOMKilled"
		})}, mcfgv1.MachineOSBuildFailed, "Resources", []string{"needed more memory"}},
		"evicted for its own storage": {[]corev1.Pod{aPod(func(pod *corev1.Pod) {
			pod.Status.Reason, pod.Status.Message = "Evicted", "Pod ephemeral local storage usage exceeds the total limit"
		})}, mcfgv1.MachineOSBuildFailed, "Resources", []string{"ephemeral local storage"}},
		"a log in place of a result": {[]corev1.Pod{aPod(ended(2, "panic: oh\ngoroutine 1\n"))}, mcfgv1.MachineOSBuildFailed, "Internal", []string{"exit code 2 and no result", "panic: oh\ngoroutine 1"}},
		"no result with exit code 0": {[]corev1.Pod{aPod(ended(0, ""))}, mcfgv1.MachineOSBuildFailed, "Internal", []string{"no result"}},
		"an image and an exit code":  {[]corev1.Pod{aPod(ended(1, string(success.Encode())))}, mcfgv1.MachineOSBuildFailed, "Internal", []string{"and then ended with exit code 1"}},
		"credentials that could not be copied": {[]corev1.Pod{aPod(func(pod *corev1.Pod) {
			pod.Status.InitContainerStatuses[0].State.Terminated = &corev1.ContainerStateTerminated{ExitCode: 1, Message: "copy-credentials: no space"}
		})}, mcfgv1.MachineOSBuildFailed, "Internal", []string{"container copy-credentials", "no space"}},
		"a class nobody knows": {[]corev1.Pod{aPod(ended(1, `{"failure":{"class":"not a reason!","message":"x"}}`))}, mcfgv1.MachineOSBuildFailed, "Internal", []string{"x"}},
	} {
		t.Run(name, func(t *testing.T) {
			result, found := resultOf(test.pods)
			if !found {
				if test.phase != "" {
					t.Fatal("no result")
				}
				return
			}
			got := stateOf(result)
			if got.phase != test.phase || got.reason != test.reason {
				t.Errorf("got %s with reason %q, want %s with %q", got.phase, got.reason, test.phase, test.reason)
			}
			for _, text := range test.says {
				if !strings.Contains(got.message, text) {
					t.Errorf("message %q does not say %q", got.message, text)
				}
			}
			if got.phase == mcfgv1.MachineOSBuildSucceeded && got.digest != imageDigest {
				t.Errorf("digest %q", got.digest)
			}
		})
	}
}

func TestALineIsNamedOnce(t *testing.T) {
	for message, want := range map[string]string{
		"Containerfile line 2: COPY --from=nosuch: no stage": "step user: Containerfile line 2: COPY --from=nosuch: no stage",
		"line 2: RUN false: exit status 1":                   "step user: Containerfile line 2: RUN false: exit status 1",
		"no space left":                                      "step user: Containerfile line 2: no space left",
		"Containerfile: line 20: odd":                        "step user: Containerfile line 2: Containerfile: line 20: odd",
	} {
		if got := describe(request.Failure{Step: "user", Line: 2, Message: message}); got != want {
			t.Errorf("%q gives %q, want %q", message, got, want)
		}
	}
}

func TestLastLinesAreBoundedAndValid(t *testing.T) {
	lines := lastLines(strings.Repeat("line\n", 100) + "end \xff\n")
	if len(lines) != 10 || lines[9] != "end" {
		t.Errorf("%q", lines)
	}
}

func TestBuildStatusHasAllConditions(t *testing.T) {
	status := mcfgv1.MachineOSBuildStatus{}
	for _, s := range []state{
		{phase: mcfgv1.MachineOSBuildPrepared},
		{phase: mcfgv1.MachineOSBuilding, message: "attempt 2 of 4"},
		{phase: mcfgv1.MachineOSBuildSucceeded, digest: imageDigest},
	} {
		status = buildStatus(status, "registry.example.com/os/worker", s, someTime)
		if len(status.Conditions) != 5 {
			t.Fatalf("%s: %d conditions", s.phase, len(status.Conditions))
		}
		for _, condition := range status.Conditions {
			if want := condition.Type == string(s.phase); want != (condition.Status == metav1.ConditionTrue) {
				t.Errorf("%s: condition %s is %s", s.phase, condition.Type, condition.Status)
			}
			if condition.Reason == "" || condition.Message == "" || condition.LastTransitionTime.IsZero() {
				t.Errorf("%s: condition %+v is incomplete", s.phase, condition)
			}
		}
		build := &mcfgv1.MachineOSBuild{Status: status}
		if phaseOf(build) != s.phase || isTerminal(build) != s.isTerminal() {
			t.Errorf("read back as %s", phaseOf(build))
		}
	}
	if want := mcfgv1.ImageDigestFormat("registry.example.com/os/worker@" + imageDigest); status.DigestedImagePushSpec != want {
		t.Errorf("image %s, want %s", status.DigestedImagePushSpec, want)
	}
	if end := status.BuildEnd.Sub(status.BuildStart.Time); end != time.Second {
		t.Errorf("a build within one second ends %s after its start, want 1s", end)
	}
}

func TestBuildEndIsNowWhereItCan(t *testing.T) {
	status := buildStatus(mcfgv1.MachineOSBuildStatus{}, "", state{phase: mcfgv1.MachineOSBuilding}, someTime)
	status = buildStatus(status, "", state{phase: mcfgv1.MachineOSBuildFailed}, someTime.Add(90*time.Second+time.Millisecond))
	if got := status.BuildEnd.Sub(status.BuildStart.Time); got != 90*time.Second {
		t.Errorf("took %s", got)
	}
}
