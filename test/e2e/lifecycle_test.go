//go:build e2e

package e2e

import (
	"context"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/imagemode/imagemode/test/e2e/story"
)

// lifecycleTimeout bounds one of these tests: four attempts with Kubernetes'
// pauses between them, or one rollout.
const lifecycleTimeout = 10 * time.Minute

// inTime ends with the test, or with its time.
func inTime(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), lifecycleTimeout)
	t.Cleanup(cancel)
	return ctx
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// testFailingBuild lets a RUN fail in all four attempts, corrects it, and takes
// the edit back. Nothing of it reaches a node.
func testFailingBuild(t *testing.T, told *story.Story) {
	ctx := inTime(t)
	const text = "FROM configs AS final\nRUN echo the reason stands here; exit 3\n"
	before, image := told.Workers.Reboots(), told.Image
	must(t, told.ApplyMachineOSConfig(ctx, story.Pool, text, "push"))
	degraded, err := told.DegradedConfig(ctx)
	must(t, err)
	failed, err := told.CurrentBuild(ctx)
	must(t, err)
	for _, want := range []string{
		"Failed to build OS image for pool " + story.Pool, failed.Name, "Containerfile", "line 2", "exit code 3", "the reason stands here",
	} {
		if !strings.Contains(degraded.Message, want) {
			t.Errorf("ImageBuildDegraded does not say %q: %s", want, degraded.Message)
		}
	}
	pods, err := told.PodsOf(ctx, failed)
	must(t, err)
	if len(pods) != 4 {
		t.Errorf("%d builder pods were at work, want 4: %v", len(pods), pods)
	}
	must(t, told.PoolCondition(ctx, mcfgv1.MachineConfigPoolImageBuildDegraded, corev1.ConditionTrue))
	must(t, told.PoolCondition(ctx, mcfgv1.MachineConfigPoolDegraded, corev1.ConditionTrue))

	// The pool is held, so that the correction, which is another image, stays off
	// the nodes until it is taken back.
	must(t, told.SetPaused(ctx, true))
	must(t, told.ApplyMachineOSConfig(ctx, story.Pool, story.Containerfile+"RUN true\n", "push"))
	corrected, err := told.ReadyImage(ctx)
	must(t, err)
	if corrected == image {
		t.Error("another Containerfile gave the same image")
	}
	must(t, told.PoolCondition(ctx, mcfgv1.MachineConfigPoolDegraded, corev1.ConditionFalse))

	must(t, told.ApplyMachineOSConfig(ctx, story.Pool, story.Containerfile, "push"))
	again, err := told.ReadyImage(ctx)
	must(t, err)
	if again != image {
		t.Errorf("an edit that was taken back gives %s, want %s", again, image)
	}
	must(t, told.RolloutHas(ctx, image))
	must(t, told.SetPaused(ctx, false))
	must(t, told.PoolCondition(ctx, mcfgv1.MachineConfigPoolUpdated, corev1.ConditionTrue))
	checkUntouched(t, told, before)
}

// testInterruption takes away from a build that runs, one after the other, its
// pod, its controller, its Job, and itself.
func testInterruption(t *testing.T, told *story.Story) {
	ctx := inTime(t)
	before, image := told.Workers.Reboots(), told.Image
	must(t, told.SetPaused(ctx, true))
	must(t, told.ApplyMachineOSConfig(ctx, story.Pool, story.Containerfile+"RUN sleep 300\n", "push"))
	first, err := told.NextAtWork(ctx, "")
	must(t, err)

	// A pod that is deleted, or evicted, has a successor in the same build, and an
	// eviction uses up no attempt.
	must(t, told.Evict(ctx, first.Pod))
	second, err := told.NextAtWork(ctx, first.Pod.UID)
	must(t, err)
	job, err := told.Job(ctx, second.Build)
	must(t, err)
	if job.Status.Failed > 0 {
		t.Errorf("an eviction counts as %d failed attempts", job.Status.Failed)
	}
	must(t, told.Kill(ctx, second.Pod))
	third, err := told.NextAtWork(ctx, second.Pod.UID)
	must(t, err)
	if third.Build.UID != first.Build.UID {
		t.Errorf("MachineOSBuild %s took the place of %s", third.Build.Name, first.Build.Name)
	}

	// What happens while no controller is there is noticed by the next one.
	must(t, told.KillController(ctx))
	job, err = told.Job(ctx, third.Build)
	must(t, err)
	must(t, told.Delete(ctx, job))
	_, err = told.BuildIs(ctx, third.Build.Name, mcfgv1.MachineOSBuildInterrupted)
	must(t, err)
	again, err := told.NextAtWork(ctx, third.Pod.UID)
	must(t, err)
	if again.Build.Name == third.Build.Name {
		t.Errorf("MachineOSBuild %s goes on after its end", again.Build.Name)
	}

	must(t, told.Delete(ctx, again.Build))
	anew, err := told.NextAtWork(ctx, again.Pod.UID)
	must(t, err)
	if anew.Build.Name != again.Build.Name || anew.Build.UID == again.Build.UID {
		t.Errorf("%s (%s) follows on %s (%s), which was deleted", anew.Build.Name, anew.Build.UID, again.Build.Name, again.Build.UID)
	}

	must(t, told.ApplyMachineOSConfig(ctx, story.Pool, story.Containerfile, "push"))
	taken, err := told.ReadyImage(ctx)
	must(t, err)
	if taken != image {
		t.Errorf("an edit that was taken back gives %s, want %s", taken, image)
	}
	must(t, told.RolloutHas(ctx, image))
	must(t, told.SetPaused(ctx, false))
	must(t, told.PoolCondition(ctx, mcfgv1.MachineConfigPoolUpdated, corev1.ConditionTrue))
	checkUntouched(t, told, before)
}

// testRecreation deletes the MachineOSConfig and makes it again while the pool is
// paused: its nodes notice nothing.
func testRecreation(t *testing.T, told *story.Story) {
	ctx := inTime(t)
	before, image := told.Workers.Reboots(), told.Image
	must(t, told.SetPaused(ctx, true))
	must(t, told.DeleteConfig(ctx))
	rollout, err := told.Rollout(ctx)
	must(t, err)
	if rollout.Spec.Image == image || rollout.Spec.Image == "" {
		t.Errorf("after the deletion the rollout has image %q, want another than the MachineOSConfig's", rollout.Spec.Image)
	}
	must(t, told.ApplyMachineOSConfig(ctx, story.Pool, story.Containerfile, "push"))
	again, err := told.ReadyImage(ctx)
	must(t, err)
	if again != image {
		t.Errorf("made again it gives %s, want %s", again, image)
	}
	build, err := told.CurrentBuild(ctx)
	must(t, err)
	if pods, err := told.PodsOf(ctx, build); err != nil || len(pods) > 0 {
		t.Errorf("builder pods %v, error %v: the image existed", pods, err)
	}
	must(t, told.RolloutHas(ctx, image))
	must(t, told.SetPaused(ctx, false))
	must(t, told.PoolCondition(ctx, mcfgv1.MachineConfigPoolUpdated, corev1.ConditionTrue))
	checkUntouched(t, told, before)
}

// testDeletion deletes the MachineOSConfig: the nodes go to an image with their
// configuration and without its package.
func testDeletion(t *testing.T, told *story.Story) {
	ctx := inTime(t)
	must(t, told.DeleteConfig(ctx))
	rollout, err := told.Rollout(ctx)
	must(t, err)
	must(t, told.AllRun(ctx, rollout.Spec.Image))
	must(t, told.PoolCondition(ctx, mcfgv1.MachineConfigPoolUpdated, corev1.ConditionTrue))
	for _, machine := range told.Workers.Names() {
		if got := inMachine(t, told, machine, "cat", story.ConfigFile); got+"\n" != told.Text {
			t.Errorf("%s: %s holds %q, want the MachineConfig's %q", machine, story.ConfigFile, got, told.Text)
		}
		if found, err := told.Cluster.Exec(ctx, machine, "which", story.Program); err == nil {
			t.Errorf("%s: the package of the Containerfile is still there: %s", machine, found)
		}
	}
	if out := told.Workers.MaxUnavailable(); out > maxWorkersOut {
		t.Errorf("%d workers were out of service at the same time, want at most %d", out, maxWorkersOut)
	}
}

func checkUntouched(t *testing.T, told *story.Story, before map[string]int) {
	t.Helper()
	after := told.Workers.Reboots()
	for _, machine := range slices.Sorted(maps.Keys(after)) {
		if after[machine] != before[machine] {
			t.Errorf("%s rebooted", machine)
		}
	}
}
