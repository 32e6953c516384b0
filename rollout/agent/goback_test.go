package agent

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/imagemode/imagemode/api/v1alpha1"
	"github.com/imagemode/imagemode/rollout/bootc"
)

func TestWhyANodeStays(t *testing.T) {
	// A node that was told to boot B, did so, and came from A.
	base := func(changes ...func(*wayBack)) wayBack {
		w := wayBack{
			bootID: "boot-2",
			intent: &Intent{Image: imageB.String(), Previous: imageA.Digest(), BootID: "boot-1", Rebooting: true, RollbackAfterSeconds: 60},
			host:   &bootc.Host{Status: bootc.HostStatus{Booted: deployment(imageB, false), Rollback: deployment(imageA, false)}},
		}
		for _, change := range changes {
			change(&w)
		}
		return w
	}
	tests := map[string]struct {
		in   wayBack
		want string
	}{
		"nothing keeps it":                         {base(), ""},
		"no update":                                {base(func(w *wayBack) { w.intent = nil }), "no update waits"},
		"an update that was not ordered to boot":   {base(func(w *wayBack) { w.intent.Rebooting = false }), "no update waits"},
		"the reboot is still to come":              {base(func(w *wayBack) { w.bootID = "boot-1" }), "has not rebooted"},
		"it runs the old image":                    {base(func(w *wayBack) { w.host.Status.Booted = deployment(imageA, false) }), "does not run the image"},
		"its bootc does not know what it runs":     {base(func(w *wayBack) { w.host = nil }), "does not run the image"},
		"it went back before":                      {base(func(w *wayBack) { w.intent.WentBack = "boot-0" }), "went back once before"},
		"it is going back in this boot":            {base(func(w *wayBack) { w.intent.WentBack, w.host.Status.RollbackQueued = "boot-2", true }), ""},
		"somebody else has queued a rollback":      {base(func(w *wayBack) { w.host.Status.RollbackQueued = true }), "by somebody else"},
		"the rollback entry is an older image":     {base(func(w *wayBack) { w.host.Status.Rollback = deployment(imageC, false) }), "not the image that the node had"},
		"there is no rollback entry":               {base(func(w *wayBack) { w.host.Status.Rollback = nil }), "not the image that the node had"},
		"the rollback entry is no container image": {base(func(w *wayBack) { w.host.Status.Rollback.Image = nil }), "not the image that the node had"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got := whyStay(test.in)
			if (test.want == "") != (got == "") || !strings.Contains(got, test.want) {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

// deadman lets the dead-man timer of the host fire, once its time has come.
func (b *bench) deadman() string {
	b.t.Helper()
	intent, err := readIntent(b.machine)
	if err != nil {
		b.t.Fatal(err)
	}
	if intent == nil || b.machine.files[timerPath] == nil || b.machine.up < time.Duration(intent.RollbackAfterSeconds)*time.Second {
		return "its time has not come"
	}
	return b.lookAndGoBack()
}

// countBoot lets the unit of the host run that does so, and goes back after too many.
func (b *bench) countBoot() {
	b.t.Helper()
	isTooOften, _, err := countBoot(context.Background(), b.machine)
	if err != nil {
		b.t.Fatal(err)
	}
	if isTooOften {
		b.lookAndGoBack()
	}
}

func (b *bench) lookAndGoBack() string {
	b.t.Helper()
	for range 5 {
		found, err := lookForDeadman(context.Background(), b.machine)
		if err != nil {
			b.t.Fatal(err)
		}
		if found.isWell {
			return "the agent is well"
		}
		if found.why != "" {
			return found.why
		}
		isAsked, err := goBack(context.Background(), b.machine, *found.intent, found.bootID, b.now)
		if err != nil {
			b.t.Fatal(err)
		}
		if isAsked {
			return ""
		}
		b.machine.finish()
	}
	b.t.Fatal("the dead-man comes to no end")
	return ""
}

// bootInto takes the machine from A into B, unconfirmed, with 60 s to go.
func bootInto(t *testing.T, changes ...func(*v1alpha1.NodeImageSpec)) *bench {
	t.Helper()
	b := newBench(t)
	b.orderSpec(func(s *v1alpha1.NodeImageSpec) {
		s.DesiredImage, s.Phase, s.RollbackAfterSeconds = imageB.String(), v1alpha1.PhaseBooted, 60
		for _, change := range changes {
			change(s)
		}
	})
	for range 12 {
		b.pass()
		if b.machine.rebootAsked {
			b.machine.reboot()
			b.startAgent(b.agent.options.PullSecretDir)
			break
		}
	}
	if b.machine.booted != imageB {
		t.Fatalf("the machine runs %s, want B", b.machine.booted)
	}
	return b
}

func TestANodeWhoseAgentIsGoneGoesBackOnce(t *testing.T) {
	b := bootInto(t)
	b.pause(time.Minute)
	if why := b.deadman(); why != "" {
		t.Fatalf("it stays: %s", why)
	}
	b.machine.reboot()
	b.startAgent(b.agent.options.PullSecretDir)
	b.settleDown()
	if b.machine.booted != imageA || b.machine.rollbacks[imageB] != 1 {
		t.Errorf("it runs %s after %d rollbacks", b.machine.booted, b.machine.rollbacks[imageB])
	}
	b.expectCondition(v1alpha1.ConditionBooted, metav1.ConditionFalse, "RolledBack")
	b.pause(time.Hour)
	if why := b.deadman(); !strings.Contains(why, "does not run the image") {
		t.Errorf("on the old image the dead-man says %q", why)
	}

	// Another image in between, then this one again under the same token.
	b.order(imageC, v1alpha1.PhaseStaged)
	b.settleDown()
	calls := len(b.machine.calls)
	b.order(imageB, v1alpha1.PhaseStaged)
	b.settleDown()
	if len(b.machine.calls) != calls {
		t.Errorf("an image that failed was tried again: %v", b.machine.calls[calls:])
	}
	b.expectCondition(v1alpha1.ConditionStaged, metav1.ConditionFalse, "RolledBack")
}

func TestANodeWhoseAgentReachesTheAPIServerStays(t *testing.T) {
	b := bootInto(t)
	b.pass()
	b.pause(time.Minute)
	if why := b.deadman(); why != "the agent is well" {
		t.Errorf("the dead-man says %q", why)
	}
	b.pause(contactLimit)
	if why := b.deadman(); why != "" {
		t.Errorf("the agent was not heard of for %s, and it stays: %s", contactLimit, why)
	}
}

// untilDone runs something while the machine's commands come to their ends.
func (b *bench) untilDone(run func(context.Context, Host) (string, error)) (string, error) {
	stop := make(chan struct{})
	defer close(stop)
	go func() {
		for {
			select {
			case <-stop:
				return
			case <-time.After(10 * time.Millisecond):
				b.machine.lock.Lock()
				b.machine.finish()
				b.machine.lock.Unlock()
			}
		}
	}()
	return run(b.t.Context(), lockedHost{b.machine})
}

// TestAnImageThatRebootsAgainAndAgain: no boot lasts until the deadline, nor does an
// agent come up.
func TestAnImageThatRebootsAgainAndAgain(t *testing.T) {
	b := bootInto(t)
	for boot := 1; boot <= maxBoots; boot++ {
		for range 2 { // the unit may be started twice in a boot
			what, err := CountBoot(t.Context(), b.machine)
			if err != nil || what != fmt.Sprintf("boot %d of an image that is not confirmed", boot) {
				t.Fatalf("boot %d: %q, %v", boot, what, err)
			}
		}
		b.machine.restart()
	}
	what, err := b.untilDone(CountBoot)
	if err != nil || what != "going back to "+imageA.Digest() || !b.machine.rebootAsked {
		t.Fatalf("after %d boots: %q, %v", maxBoots, what, err)
	}
	b.machine.reboot()
	if what, err := CountBoot(t.Context(), b.machine); err != nil || what != "the node does not run the image" || b.machine.booted != imageA {
		t.Errorf("on %s: %q, %v", b.machine.booted, what, err)
	}
	b.startAgent(b.agent.options.PullSecretDir)
	b.settleDown()
	b.expectCondition(v1alpha1.ConditionBooted, metav1.ConditionFalse, "RolledBack")
}

func TestBootsThatAreNotCounted(t *testing.T) {
	b := newBench(t)
	if what, err := CountBoot(t.Context(), b.machine); err != nil || what != "no update waits for confirmation" {
		t.Errorf("without an update: %q, %v", what, err)
	}
	b = bootInto(t, func(s *v1alpha1.NodeImageSpec) { s.RollbackAfterSeconds = 0 })
	for range maxBoots + 1 {
		b.machine.restart()
		if what, err := CountBoot(t.Context(), b.machine); err != nil || what != "no update waits for confirmation" {
			t.Errorf("without a way back: %q, %v", what, err)
		}
	}
	b = bootInto(t)
	b.pass()
	b.order(imageB, v1alpha1.PhaseStaged) // confirmed
	b.pass()
	for range maxBoots + 1 {
		b.machine.restart()
		if what, err := CountBoot(t.Context(), b.machine); err != nil || what != "no update waits for confirmation" {
			t.Errorf("on a confirmed image: %q, %v", what, err)
		}
	}
}

// TestTheDeadmanEnds runs what the timer starts, as it is.
func TestTheDeadmanEnds(t *testing.T) {
	b := bootInto(t)
	why, err := b.untilDone(Deadman)
	if err != nil || why != "going back to "+imageA.Digest() || !b.machine.rebootAsked || !b.machine.queued {
		t.Errorf("%q, %v; reboot asked %t, rollback queued %t", why, err, b.machine.rebootAsked, b.machine.queued)
	}
	b.machine.reboot()
	why, err = Deadman(t.Context(), b.machine)
	if err != nil || why != "the node does not run the image" {
		t.Errorf("on the image before: %q, %v", why, err)
	}
}

// lockedHost is a machine that two goroutines use.
type lockedHost struct{ *machine }

func (h lockedHost) Run(ctx context.Context, unit string, arguments []string, timeout time.Duration) (Output, error) {
	h.lock.Lock()
	defer h.lock.Unlock()
	return h.machine.Run(ctx, unit, arguments, timeout)
}

func (h lockedHost) Start(ctx context.Context, unit string, arguments []string, timeout time.Duration) error {
	h.lock.Lock()
	defer h.lock.Unlock()
	return h.machine.Start(ctx, unit, arguments, timeout)
}

func (h lockedHost) Command(ctx context.Context, unit string) (Command, error) {
	h.lock.Lock()
	defer h.lock.Unlock()
	return h.machine.Command(ctx, unit)
}

func TestAConfirmedImageStays(t *testing.T) {
	b := bootInto(t)
	b.pass()
	b.order(imageB, v1alpha1.PhaseStaged)
	b.pass()
	b.pause(time.Hour)
	if why := b.deadman(); why != "its time has not come" || b.machine.files[intentPath] != nil {
		t.Errorf("the dead-man says %q, with record %s", why, b.machine.files[intentPath])
	}
}

func TestTheDeadmanSurvivesACrashAtEveryStep(t *testing.T) {
	b := bootInto(t)
	b.pause(time.Minute)
	// It recorded its decision and was killed; the agent comes up and goes on.
	intent, err := readIntent(b.machine)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := goBack(t.Context(), b.machine, *intent, "boot-2", b.now); err != nil {
		t.Fatal(err)
	}
	for range 10 {
		b.startAgent(b.agent.options.PullSecretDir)
		b.pass()
	}
	if !b.machine.rebootAsked || !b.machine.queued {
		t.Fatalf("reboot asked %t, rollback queued %t", b.machine.rebootAsked, b.machine.queued)
	}
	b.machine.reboot()
	if b.machine.booted != imageA {
		t.Errorf("it runs %s", b.machine.booted)
	}
}

func TestANodeThatIsToldToGoBackDoes(t *testing.T) {
	b := bootInto(t)
	b.pass()
	b.order(imageB, v1alpha1.PhaseRolledBack)
	b.settleDown()
	if b.machine.booted != imageA || b.machine.rollbacks[imageB] != 1 {
		t.Errorf("it runs %s after %d rollbacks", b.machine.booted, b.machine.rollbacks[imageB])
	}
	b.expectCondition(v1alpha1.ConditionBooted, metav1.ConditionFalse, "RolledBack")
	b.settleDown()
	if b.machine.rollbacks[imageA] != 0 {
		t.Error("it went back from the image before, too")
	}
}

func TestANodeThatCannotGoBackSaysSo(t *testing.T) {
	b := bootInto(t)
	b.machine.rollback = imageC
	b.pass()
	b.expectCondition(v1alpha1.ConditionRollbackReady, metav1.ConditionFalse, "NoWayBack")
	b.order(imageB, v1alpha1.PhaseRolledBack)
	b.settleDown()
	if b.machine.booted != imageB {
		t.Errorf("it runs %s", b.machine.booted)
	}
	b.expectCondition(v1alpha1.ConditionRollbackReady, metav1.ConditionFalse, "NoWayBack")
}

// TestANodeWithoutARecordSaysThatItCannotGoBack: what is wrong would otherwise stand
// nowhere, as it runs the image.
func TestANodeWithoutARecordSaysThatItCannotGoBack(t *testing.T) {
	b := bootInto(t)
	b.pass()
	delete(b.machine.files, intentPath)
	b.order(imageB, v1alpha1.PhaseRolledBack)
	b.settleDown()
	b.expectCondition(v1alpha1.ConditionRollbackReady, metav1.ConditionFalse, "NoWayBack")
	b.order(imageB, v1alpha1.PhaseStaged)
	b.settleDown()
	if got := meta.FindStatusCondition(b.object().Status.Conditions, v1alpha1.ConditionRollbackReady); got != nil {
		t.Errorf("when nobody asks any more: %+v", got)
	}
}

func TestSoftReboot(t *testing.T) {
	tests := map[string]struct {
		isCapable, isAllowed, fails bool
		boots, softs                int
	}{
		"where it is allowed and possible":            {isCapable: true, isAllowed: true, boots: 1, softs: 1},
		"not where it is not allowed":                 {isCapable: true, boots: 2},
		"not where the image is not capable":          {isAllowed: true, boots: 2},
		"followed by a full one when it did not work": {isCapable: true, isAllowed: true, fails: true, boots: 2},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.machine.features.SoftReboots, b.machine.softCapable, b.machine.softFails = true, test.isCapable, test.fails
			b.order(imageB, v1alpha1.PhaseStaged)
			b.settleDown()
			b.orderSpec(func(s *v1alpha1.NodeImageSpec) {
				s.DesiredImage, s.Phase, s.AllowSoftReboot = imageB.String(), v1alpha1.PhaseBooted, test.isAllowed
			})
			b.settleDown()
			b.settleDown()
			if b.machine.booted != imageB || b.machine.boots != test.boots || b.machine.softs != test.softs {
				t.Errorf("it runs %s after boot %d, %d soft reboots: %v", b.machine.booted, b.machine.boots, b.machine.softs, b.machine.calls)
			}
			if got := b.object().Status; got.SoftReboots != int32(test.softs) || strings.Contains(got.BootID, "+") {
				t.Errorf("reported boot %s, %d soft reboots", got.BootID, got.SoftReboots)
			}
		})
	}
}
