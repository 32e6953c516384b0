//go:build e2e

package e2e

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"

	"github.com/imagemode/imagemode/api/v1alpha1"
	"github.com/imagemode/imagemode/test/e2e/local"
	"github.com/imagemode/imagemode/test/e2e/story"
)

const (
	// The downloads of this test take about ten seconds: long enough for
	// something to happen in the middle.
	slowBytes = 60_000_000
	slowRate  = 5_000_000
	// blockedDrain is when a drain counts as blocked: after its pods are named.
	blockedDrain = 40 * time.Second
	// shortDeadline is the shortest that the API takes.
	shortDeadline = time.Minute
)

// failures is one telling of what can go wrong, by rollouts that are written by
// hand: there is no MachineOSConfig in the cluster.
type failures struct {
	*story.Story
	first, second string // workers
}

// TestFailures lets things go wrong on booted machines.
func TestFailures(t *testing.T) {
	told := begin(t)
	run(t, told, told.Reset(), told.Deploy())
	names := told.Workers.Names()
	f := &failures{Story: told, first: names[0], second: names[1]}
	t.Cleanup(func() {
		if err := f.StopStubborn(); err != nil {
			t.Error(err)
		}
	})
	part(t, "the workers run the base", f.testBase)
	image := f.derive(t, delivered(t), slowBytes)
	part(t, "while an image is downloaded", func(t *testing.T) { f.testDownloads(t, image) })
	part(t, "power is cut after staging", func(t *testing.T) { f.testPowerCut(t, image) })
	part(t, "a token of an agent", f.testToken)
	part(t, "a drain that is blocked, and a controller that is ended", func(t *testing.T) { f.testDrain(t, image) })
	part(t, "a file of the image that is edited", func(t *testing.T) { f.testDrift(t, image) })
	part(t, "an image whose kubelet does not start", func(t *testing.T) { f.testBrokenImage(t, image) })
	part(t, "a cluster with one node", f.testSingleNode)
	must(t, f.DeleteRollout(inTime(t)))
}

// part runs the next part, if those before went well: each begins where they ended.
func part(t *testing.T, name string, test func(*testing.T)) {
	t.Helper()
	began := time.Now()
	if !t.Run(name, test) {
		t.FailNow()
	}
	t.Logf("%s: %.0f s", name, time.Since(began).Seconds())
}

func (f *failures) derive(t *testing.T, files map[string]string, size int64) string {
	t.Helper()
	image, err := local.Derive(t.Context(), files, size)
	must(t, err)
	return image
}

// apply writes the rollout: quick to go on, and quick to give up.
func (f *failures) apply(t *testing.T, image string, change func(*v1alpha1.ImageRolloutSpec)) {
	t.Helper()
	must(t, f.ApplyRollout(t.Context(), image, func(spec *v1alpha1.ImageRolloutSpec) {
		spec.Soak = &metav1.Duration{}
		spec.Drain.Timeout = &metav1.Duration{Duration: blockedDrain}
		spec.Rollback.Deadline = &metav1.Duration{Duration: shortDeadline}
		change(spec)
	}))
}

// testBase: the images here have a layer more than it. A cluster that is older runs
// another one, and would download all of its layers with the first of them.
func (f *failures) testBase(t *testing.T) {
	base, err := local.Base()
	must(t, err)
	f.apply(t, base, func(*v1alpha1.ImageRolloutSpec) {})
	_, err = f.RolloutCondition(inTime(t), v1alpha1.ConditionProgressing, metav1.ConditionFalse, "Updated")
	must(t, err)
}

// testDownloads: on one worker the agent is killed in the middle of a download, on
// the other the registry goes away. The rollout stages only.
func (f *failures) testDownloads(t *testing.T, image string) {
	ctx := inTime(t)
	slow := func(worker string) downloading {
		line, err := f.SlowRegistry(ctx, worker, slowRate)
		must(t, err)
		t.Cleanup(func() { must(t, f.TakeAway(worker, line)) })
		return downloading{f, worker, image, line}
	}
	killed, cut := slow(f.first), slow(f.second)
	f.apply(t, image, func(spec *v1alpha1.ImageRolloutSpec) { spec.Mode = v1alpha1.RolloutModeStageOnly })
	t.Run("both", func(t *testing.T) {
		t.Run("the agent is killed, and the download goes on", func(t *testing.T) {
			t.Parallel()
			killed.testKilledAgent(t)
		})
		t.Run("the registry goes away, and comes back", func(t *testing.T) {
			t.Parallel()
			cut.testRegistryGone(t)
		})
	})
	var configs mcfgv1.MachineOSConfigList
	must(t, f.Cluster.Client.List(ctx, &configs))
	if len(configs.Items) > 0 {
		t.Errorf("there are MachineOSConfigs, and this was to be without: %v", configs.Items)
	}
}

// testPowerCut: what was staged is in memory. It is staged again, and not booted.
func (f *failures) testPowerCut(t *testing.T, image string) {
	ctx := inTime(t)
	before, err := f.NodeImage(ctx, f.first)
	must(t, err)
	must(t, f.CutPower(ctx, f.first))
	after, err := f.AwaitNode(ctx, f.first, "to have staged again", story.HasStaged(image))
	must(t, err)
	if after.Status.Booted.Digest != before.Status.Booted.Digest {
		t.Errorf("a power cut has booted %s", after.Status.Booted.Digest)
	}
	if last := after.Status.LastAttempt; last == nil || last.Failures > 0 {
		t.Errorf("last attempt %+v, want one without a failure", last)
	}
}

// testToken: a real agent's token is of use for the status of its own NodeImage.
func (f *failures) testToken(t *testing.T) {
	agent, err := f.AgentClient(inTime(t), f.first)
	must(t, err)
	powers{agent, f.first, f.second, story.HandRollout}.check(t)
}

// testDrain: a budget lets no pod go from the first worker, and the controller is
// ended at the moment of the cordon.
func (f *failures) testDrain(t *testing.T, image string) {
	ctx := inTime(t)
	pod, err := f.StartStubborn(ctx, f.first)
	must(t, err)
	ended := make(chan string, 1)
	go func() {
		name, err := f.KillControllerAtCordon(ctx, f.first)
		if err != nil {
			t.Error(err)
		}
		ended <- name
	}()
	before := f.Workers.Reboots()
	f.apply(t, image, func(spec *v1alpha1.ImageRolloutSpec) {
		spec.Canary = &v1alpha1.CanarySpec{NodeSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"kubernetes.io/hostname": f.first}}}
	})
	if name := <-ended; name == "" {
		t.FailNow()
	}
	inCordon, err := f.StubbornPod(ctx)
	must(t, err)
	if inCordon.Name != pod {
		t.Fatalf("the pod %s had gone when the controller was ended", pod)
	}

	// The next controller goes on, and says what blocks.
	blocked, err := f.RolloutCondition(ctx, v1alpha1.ConditionDegraded, metav1.ConditionTrue, "DrainBlocked")
	must(t, err)
	for _, want := range []string{f.first, "imagemode-demo/" + pod, "disruption budget " + story.Stubborn, "no more disruptions allowed"} {
		if !strings.Contains(blocked.Message, want) {
			t.Errorf("Degraded does not say %q: %s", want, blocked.Message)
		}
	}
	rollout, err := f.AwaitRollout(ctx, "a slot that drains", func(*v1alpha1.ImageRollout) bool { return true })
	must(t, err)
	if slots := rollout.Status.Slots; len(slots) != 1 || slots[0].Node != f.first || slots[0].Phase != v1alpha1.SlotDraining {
		t.Errorf("slots %+v, want %s draining", slots, f.first)
	}
	must(t, f.LiftBudget(ctx))
	must(t, f.AllRun(ctx, image))
	_, err = f.RolloutCondition(ctx, v1alpha1.ConditionDegraded, metav1.ConditionFalse, "AsExpected")
	must(t, err)
	for worker, count := range f.Workers.Reboots() {
		if count != before[worker]+1 {
			t.Errorf("%s rebooted %d times, want once", worker, count-before[worker])
		}
	}
}

// deliveredFile is a file of the image that its manifest names.
const deliveredFile, deliveredText = "/etc/imagemode-failures.conf", "as delivered\n"

// delivered is the file, with the manifest that the builder writes.
func delivered(t *testing.T) map[string]string {
	t.Helper()
	sum := sha256.Sum256([]byte(deliveredText))
	manifest, err := json.Marshal([]map[string]any{{"path": deliveredFile, "mode": "0644", "sha256": hex.EncodeToString(sum[:])}})
	must(t, err)
	return map[string]string{deliveredFile: deliveredText, "/usr/lib/imagemode/files.json": string(manifest)}
}

// testDrift: an edited file is named, and put right when that is wished for.
func (f *failures) testDrift(t *testing.T, image string) {
	ctx := inTime(t)
	_, err := f.Cluster.Exec(ctx, f.second, "sh", "-c", "echo edited >"+deliveredFile)
	must(t, err)
	must(t, f.KillAgent(ctx, f.second)) // it looks when it starts, then every ten minutes
	drifted, err := f.RolloutCondition(ctx, v1alpha1.ConditionDegraded, metav1.ConditionTrue, "NodeDrifted")
	must(t, err)
	if !strings.Contains(drifted.Message, f.second) || !strings.Contains(drifted.Message, deliveredFile) {
		t.Errorf("Degraded does not name node and file: %s", drifted.Message)
	}
	f.apply(t, image, func(spec *v1alpha1.ImageRolloutSpec) { spec.Drift = v1alpha1.DriftCorrect })
	_, err = f.RolloutCondition(ctx, v1alpha1.ConditionDegraded, metav1.ConditionFalse, "AsExpected")
	must(t, err)
	if got := inMachine(t, f.Story, f.second, "cat", deliveredFile); got+"\n" != deliveredText {
		t.Errorf("the file holds %q, want %q", got, deliveredText)
	}
}

// brokenKubelet is a kubelet that ends at once.
const brokenKubelet = "[Service]\nExecStart=\nExecStart=/bin/false\n"

// testBrokenImage: the first node to boot the image goes back by itself, and the
// other one never hears of it.
func (f *failures) testBrokenImage(t *testing.T, good string) {
	ctx := inTime(t)
	broken := f.derive(t, map[string]string{"/usr/lib/systemd/system/kubelet.service.d/50-broken.conf": brokenKubelet}, 0)
	reboots := f.Workers.Reboots()
	outages := f.OutagesOf(f.second)
	f.apply(t, broken, func(spec *v1alpha1.ImageRolloutSpec) {
		spec.Canary = &v1alpha1.CanarySpec{NodeSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"kubernetes.io/hostname": f.first}}}
	})
	node, err := f.AwaitNode(ctx, f.first, "to have gone back", func(node *v1alpha1.NodeImage) bool {
		return story.Runs(good)(node) && slices.ContainsFunc(node.Status.FailedImages, func(failed v1alpha1.Attempt) bool {
			return failed.Image == broken && failed.Class == v1alpha1.FailureRolledBack
		})
	})
	must(t, err)
	t.Logf("the node says: %s", node.Status.LastAttempt.Message)
	_, digest, _ := strings.Cut(broken, "@")
	for kind, status := range map[string]metav1.ConditionStatus{v1alpha1.ConditionDegraded: metav1.ConditionTrue, v1alpha1.ConditionProgressing: metav1.ConditionFalse} {
		condition, err := f.RolloutCondition(ctx, kind, status, "ImageRejected")
		must(t, err)
		for _, want := range []string{f.first, string(v1alpha1.FailureRolledBack), digest} {
			if !strings.Contains(condition.Message, want) {
				t.Errorf("%s does not say %q: %s", kind, want, condition.Message)
			}
		}
	}
	rollout, err := f.AwaitRollout(ctx, "no slots", func(r *v1alpha1.ImageRollout) bool { return len(r.Status.Slots) == 0 })
	must(t, err)
	if rejected := rollout.Status.Rejected; len(rejected) != 1 || rejected[0].Digest != digest {
		t.Errorf("rejected %+v, want %s", rejected, digest)
	}
	must(t, f.AwaitService(ctx, f.first))
	after := f.Workers.Reboots()
	// The kubelet knows of one boot: on the image, none ran.
	if got := after[f.first] - reboots[f.first]; got != 1 {
		t.Errorf("%s reported %d boots, want one, back on the image before", f.first, got)
	}
	if after[f.second] != reboots[f.second] || f.OutagesOf(f.second) != outages {
		t.Errorf("%s was touched: %d reboots, %d times out of service", f.second, after[f.second]-reboots[f.second], f.OutagesOf(f.second)-outages)
	}
}

// testSingleNode: the controller runs on the only node. It is neither cordoned nor
// drained, since nobody could take its pods, and the controller goes on afterwards.
// A soft reboot is wished for, and its systemd knows none: it is a full one.
func (f *failures) testSingleNode(t *testing.T) {
	ctx := inTime(t)
	_, err := f.StartStubborn(ctx, f.first)
	must(t, err)
	pod, err := f.StubbornPod(ctx)
	must(t, err)
	must(t, f.SetFaults(ctx, f.first, `{"softRebootCapable": true}`))
	t.Cleanup(func() { must(t, f.SetFaults(context.Background(), f.first, "{}")) })
	restore, err := f.MakeSingleNode(ctx, f.first)
	t.Cleanup(func() { must(t, restore()) })
	must(t, err)
	image := f.derive(t, nil, 0)
	outages, reboots := f.OutagesOf(f.first), f.Workers.Reboots()[f.first]
	f.apply(t, image, func(spec *v1alpha1.ImageRolloutSpec) { spec.Reboot.Policy = v1alpha1.RebootSoftIfCapable })
	_, err = f.AwaitNode(ctx, f.first, "to run the image", story.Runs(image))
	must(t, err)
	_, err = f.RolloutCondition(ctx, v1alpha1.ConditionProgressing, metav1.ConditionFalse, "Updated")
	must(t, err)
	if got := f.OutagesOf(f.first); got != outages {
		t.Error("the only node was cordoned")
	}
	if got := f.Workers.Reboots()[f.first]; got != reboots+1 {
		t.Errorf("the only node rebooted %d times, want once", got-reboots)
	}
	after, err := f.StubbornPod(ctx)
	must(t, err)
	if after.UID != pod.UID {
		t.Error("the pod on the only node was evicted")
	}
}
