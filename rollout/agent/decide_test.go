package agent

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/imagemode/imagemode/api/v1alpha1"
	"github.com/imagemode/imagemode/rollout/bootc"
)

var (
	now    = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	imageA = reference("a")
	imageB = reference("b")
	imageC = reference("c")
)

func reference(digit string) bootc.Reference {
	image, err := bootc.ParseReference("registry.example:5000/os@sha256:" + strings.Repeat(digit, 64))
	if err != nil {
		panic(err)
	}
	return image
}

func deployment(image bootc.Reference, downloadOnly bool) *bootc.BootEntry {
	return &bootc.BootEntry{DownloadOnly: downloadOnly, Image: &bootc.ImageStatus{
		Image: bootc.ImageReference{Image: image.String(), Transport: "registry"}, ImageDigest: image.Digest(),
	}}
}

// inputs are those of a node that runs A and is to have B in the phase, changed
// by the functions.
func inputs(phase v1alpha1.NodeImagePhase, changes ...func(*Inputs)) Inputs {
	in := Inputs{
		Node: "worker-1", Now: now, BootID: "boot-1", Desired: imageB,
		Spec:     v1alpha1.NodeImageSpec{Rollout: "worker", DesiredImage: imageB.String(), Phase: phase},
		Host:     &bootc.Host{Status: bootc.HostStatus{Booted: deployment(imageA, false)}},
		Features: bootc.Features{UpgradeLocks: true},
	}
	for _, change := range changes {
		change(&in)
	}
	return in
}

func staged(image bootc.Reference, locked bool) func(*Inputs) {
	return func(in *Inputs) { in.Host.Status.Staged = deployment(image, locked) }
}

func booted(image bootc.Reference) func(*Inputs) {
	return func(in *Inputs) { in.Host.Status.Booted = deployment(image, false) }
}

func command(state CommandState, arguments []string, output Output) func(*Inputs) {
	return func(in *Inputs) {
		in.Command = Command{State: state, Arguments: arguments, Output: output, Started: now.Add(-time.Minute)}
	}
}

// begun is an attempt that has no end yet.
func begun(in *Inputs) { attempt("", 0, false, time.Minute)(in) }

func attempt(class v1alpha1.FailureClass, failures int32, permanent bool, ago time.Duration) func(*Inputs) {
	return func(in *Inputs) {
		in.Attempt = &v1alpha1.Attempt{Image: in.Spec.DesiredImage, Class: class, Failures: failures, Permanent: permanent, Message: "text", Time: metav1.NewTime(now.Add(-ago))}
	}
}

// refused is a node in a long wait after credentials that a registry refused.
func refused(in *Inputs) { attempt(v1alpha1.FailureAuthentication, 9, false, time.Second)(in) }

// secret is a pull secret that is there as it was meant, after a command that was
// started with the other.
func secret(content, tried string) func(*Inputs) {
	return func(in *Inputs) {
		in.Secret, in.Spec.PullSecretHash = Secret(content), Secret(content).hash()
		if tried != "" {
			in.TriedSecret = Secret(tried).hash()
		}
	}
}

func intent(bootID string, rebooting bool, ago time.Duration) func(*Inputs) {
	return func(in *Inputs) {
		in.Intent = &Intent{Image: imageB.String(), BootID: bootID, Rebooting: rebooting, Time: now.Add(-ago)}
	}
}

func TestDecide(t *testing.T) {
	tests := map[string]struct {
		in     Inputs
		action Action
		reason string
	}{
		"idle asks for nothing":                               {inputs(v1alpha1.PhaseIdle), Report, ReasonIdle},
		"an image that is not staged is staged":               {inputs(v1alpha1.PhaseStaged), Stage, ReasonStaging},
		"another image that is staged is replaced":            {inputs(v1alpha1.PhaseStaged, staged(imageC, true)), Stage, ReasonStaging},
		"a staged image is locked":                            {inputs(v1alpha1.PhaseStaged, staged(imageB, false)), Lock, ReasonLocking},
		"a locked image waits for the order":                  {inputs(v1alpha1.PhaseStaged, staged(imageB, true)), Report, ReasonStaged},
		"a bootc that cannot lock stages unlocked":            {inputs(v1alpha1.PhaseStaged, staged(imageB, false), func(in *Inputs) { in.Features = bootc.Features{} }), Report, ReasonStagedUnlocked},
		"the order to boot unlocks first":                     {inputs(v1alpha1.PhaseBooted, staged(imageB, true)), Unlock, ReasonUnlocking},
		"an unlocked image is booted":                         {inputs(v1alpha1.PhaseBooted, staged(imageB, false)), Reboot, ReasonRebooting},
		"a stage lost in a power cut is staged again":         {inputs(v1alpha1.PhaseBooted), Stage, ReasonStaging},
		"the order withdrawn locks again":                     {inputs(v1alpha1.PhaseStaged, staged(imageB, false), intent("boot-1", false, time.Minute)), Lock, ReasonLocking},
		"a node that runs the image is done":                  {inputs(v1alpha1.PhaseBooted, booted(imageB)), Report, ReasonBooted},
		"an image unlocked and not wanted any more is locked": {inputs(v1alpha1.PhaseStaged, booted(imageB), staged(imageC, false)), Lock, ReasonLocking},
		"a command that runs is waited for":                   {inputs(v1alpha1.PhaseBooted, command(CommandRunning, bootc.StageArguments(imageB, bootc.Features{}), Output{})), Report, ReasonStaging},
		"a download that is not wanted any more is ended":     {inputs(v1alpha1.PhaseStaged, command(CommandRunning, bootc.StageArguments(imageC, bootc.Features{}), Output{})), Cancel, ReasonSuperseded},
		"an unlock that runs is never ended":                  {inputs(v1alpha1.PhaseStaged, command(CommandRunning, bootc.UnlockArguments(), Output{})), Report, ReasonUnlocking},
		"a command that nobody here made is waited for":       {inputs(v1alpha1.PhaseStaged, command(CommandRunning, []string{"/bin/sleep", "1", "2"}, Output{})), Report, ReasonBusy},
		"a bootc that does not answer is left alone":          {inputs(v1alpha1.PhaseBooted, staged(imageB, false), func(in *Inputs) { in.Busy = "locked" }), Report, ReasonBusy},
		"a bootc that fails is left alone":                    {inputs(v1alpha1.PhaseBooted, staged(imageB, false), func(in *Inputs) { in.Busy, in.IsBroken = "Missing base image ref", true }), Report, ReasonNotManageable},
		"a host without any status is left alone":             {inputs(v1alpha1.PhaseBooted, func(in *Inputs) { in.Host = nil }), Report, ReasonBusy},
		"a host that is no bootc host is left alone":          {inputs(v1alpha1.PhaseBooted, func(in *Inputs) { in.Host = &bootc.Host{} }), Report, ReasonNotManageable},
		"a host changed by hand is left alone":                {inputs(v1alpha1.PhaseStaged, func(in *Inputs) { in.Host.Status.Booted.Incompatible = true }), Report, ReasonNotManageable},
		"an image that is no reference is refused":            {inputs(v1alpha1.PhaseStaged, func(in *Inputs) { in.Spec.DesiredImage, in.Desired = "os:latest", bootc.Reference{} }), Report, "ImageInvalid"},
		"a permanent failure is not tried again":              {inputs(v1alpha1.PhaseBooted, attempt("ImageInvalid", 1, true, time.Hour)), Report, "ImageInvalid"},
		"a permanent failure does not stop what runs already": {inputs(v1alpha1.PhaseBooted, booted(imageB), attempt("FinalizeFailed", 1, true, time.Hour)), Report, ReasonBooted},
		"a failure of another image does not count":           {inputs(v1alpha1.PhaseStaged, attempt("ImageInvalid", 1, true, time.Hour), func(in *Inputs) { in.Attempt.Image = imageC.String() }), Stage, ReasonStaging},
		"a new retry token tries again":                       {inputs(v1alpha1.PhaseStaged, attempt("ImageInvalid", 1, true, time.Hour), func(in *Inputs) { in.Spec.RetryToken = "2" }), Stage, ReasonStaging},
		"a failure waits before the next try":                 {inputs(v1alpha1.PhaseStaged, attempt("Registry", 3, false, time.Second)), Report, "Registry"},
		"after the wait it is tried again":                    {inputs(v1alpha1.PhaseStaged, attempt("Registry", 3, false, time.Minute)), Stage, ReasonStaging},
		"a clock set back does not wait for ever":             {inputs(v1alpha1.PhaseStaged, attempt("Registry", 3, false, -time.Hour)), Stage, ReasonStaging},
		"the pull secret has not arrived":                     {inputs(v1alpha1.PhaseStaged, func(in *Inputs) { in.Spec.PullSecretHash = Secret("x").hash() }), Report, ReasonWaitingForSecret},
		"the pull secret is an older one":                     {inputs(v1alpha1.PhaseStaged, func(in *Inputs) { in.Spec.PullSecretHash, in.Secret = Secret("x").hash(), Secret("y") }), Report, ReasonWaitingForSecret},
		"the pull secret is there":                            {inputs(v1alpha1.PhaseStaged, func(in *Inputs) { in.Spec.PullSecretHash, in.Secret = Secret("x").hash(), Secret("x") }), Stage, ReasonStaging},
		"the node's own pull secret counts for any": {inputs(v1alpha1.PhaseStaged, func(in *Inputs) {
			in.Spec.PullSecretHash, in.Secret, in.IsSecretOwn = Secret("x").hash(), Secret("y"), true
		}), Stage, ReasonStaging},
		"the node's own pull secret is not there":              {inputs(v1alpha1.PhaseStaged, func(in *Inputs) { in.Spec.PullSecretHash, in.IsSecretOwn = Secret("x").hash(), true }), Report, ReasonWaitingForSecret},
		"credentials that were refused wait":                   {inputs(v1alpha1.PhaseStaged, refused, secret("x", "x")), Report, "Authentication"},
		"credentials that were refused, and no others, wait":   {inputs(v1alpha1.PhaseStaged, refused), Report, "Authentication"},
		"another pull secret than the refused one ends a wait": {inputs(v1alpha1.PhaseStaged, refused, secret("y", "x")), Stage, ReasonStaging},
		"a first pull secret after a refusal ends a wait":      {inputs(v1alpha1.PhaseStaged, refused, secret("y", "")), Stage, ReasonStaging},
		"another own pull secret of the node ends a wait": {inputs(v1alpha1.PhaseStaged, refused, secret("y", "x"), func(in *Inputs) {
			in.Spec.PullSecretHash, in.IsSecretOwn = "", true
		}), Stage, ReasonStaging},
		"another pull secret that has not arrived is waited for": {inputs(v1alpha1.PhaseStaged, refused, secret("x", "x"), func(in *Inputs) {
			in.Spec.PullSecretHash = Secret("y").hash()
		}), Report, ReasonWaitingForSecret},
		"another pull secret does not help a registry that is away": {inputs(v1alpha1.PhaseStaged, attempt("Registry", 9, false, time.Second), secret("y", "x")), Report, "Registry"},
		"a reboot that somebody on the host holds back waits":       {inputs(v1alpha1.PhaseBooted, staged(imageB, true), func(in *Inputs) { in.Inhibitor = "backup (process 7): a copy runs" }), Report, ReasonInhibited},
		"booting does not wait for a pull secret":                   {inputs(v1alpha1.PhaseBooted, staged(imageB, true), func(in *Inputs) { in.Spec.PullSecretHash = "00" }), Unlock, ReasonUnlocking},
		"a reboot under way is asked for again":                     {inputs(v1alpha1.PhaseBooted, staged(imageB, false), intent("boot-1", true, time.Minute)), Reboot, ReasonRebooting},
		"a reboot under way cannot be taken back":                   {inputs(v1alpha1.PhaseStaged, staged(imageB, false), intent("boot-1", true, time.Minute)), Report, ReasonRebooting},
		"a reboot that never came is given up":                      {inputs(v1alpha1.PhaseStaged, staged(imageB, false), intent("boot-1", true, time.Hour)), Lock, ReasonLocking},
		"the intent alone does not reboot":                          {inputs(v1alpha1.PhaseBooted, staged(imageB, true), intent("boot-1", false, time.Minute)), Unlock, ReasonUnlocking},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got := decide(test.in)
			if got.Action != test.action || got.Reason != test.reason {
				t.Errorf("got %s, %s (%s); want %s, %s", got.Action, got.Reason, got.Message, test.action, test.reason)
			}
			if got.Again <= 0 || got.Again > lastRetry {
				t.Errorf("the next look is due in %s", got.Again)
			}
		})
	}
}

func TestSettle(t *testing.T) {
	succeeded := Output{Result: "success"}
	failedWith := func(text string) Output { return Output{ExitCode: 1, Result: "exit-code", Stderr: text} }
	stageB := bootc.StageArguments(imageB, bootc.Features{})
	type result struct {
		Class     v1alpha1.FailureClass
		Failures  int32
		Permanent bool
	}
	tests := map[string]struct {
		in   Inputs
		want *result
	}{
		"nothing ran":         {inputs(v1alpha1.PhaseStaged), nil},
		"the image is staged": {inputs(v1alpha1.PhaseStaged, begun, command(CommandFinished, stageB, succeeded), staged(imageB, false)), &result{}},
		"staged for an agent that was ended meanwhile":     {inputs(v1alpha1.PhaseStaged, command(CommandFinished, stageB, succeeded), staged(imageB, false)), &result{}},
		"a lock that nothing is known of":                  {inputs(v1alpha1.PhaseStaged, command(CommandFinished, bootc.LockArguments(), succeeded), staged(imageB, true)), nil},
		"success ends a row of failures":                   {inputs(v1alpha1.PhaseStaged, attempt("Registry", 4, false, time.Hour), command(CommandFinished, stageB, succeeded), staged(imageB, false)), &result{}},
		"exit code 0 without an effect is a failure":       {inputs(v1alpha1.PhaseStaged, begun, command(CommandFinished, stageB, succeeded)), &result{Class: "Internal", Failures: 1}},
		"a lock that did not lock is a failure":            {inputs(v1alpha1.PhaseStaged, begun, command(CommandFinished, bootc.LockArguments(), succeeded), staged(imageB, false)), &result{Class: "Internal", Failures: 1}},
		"an unlock that did not unlock is a failure":       {inputs(v1alpha1.PhaseBooted, begun, command(CommandFinished, bootc.UnlockArguments(), succeeded), staged(imageB, true)), &result{Class: "Internal", Failures: 1}},
		"a failure is classified":                          {inputs(v1alpha1.PhaseStaged, begun, command(CommandFinished, stageB, failedWith("error: Target image does not have ostree.bootable label"))), &result{Class: "ImageInvalid", Failures: 1, Permanent: true}},
		"failures of an image are counted":                 {inputs(v1alpha1.PhaseStaged, attempt("Registry", 4, false, time.Hour), command(CommandFinished, stageB, failedWith("error: connection refused"))), &result{Class: "Registry", Failures: 5}},
		"a download that took too long":                    {inputs(v1alpha1.PhaseStaged, begun, command(CommandFinished, stageB, Output{ExitCode: -1, Result: "timeout"})), &result{Class: "Registry", Failures: 1}},
		"the end of another image's download is no news":   {inputs(v1alpha1.PhaseStaged, begun, command(CommandFinished, bootc.StageArguments(imageC, bootc.Features{}), failedWith("error: x"))), &result{}},
		"the end of a command under an earlier token":      {inputs(v1alpha1.PhaseStaged, command(CommandFinished, stageB, failedWith("error: x"))), nil},
		"an end that bootc's status cannot be checked for": {inputs(v1alpha1.PhaseStaged, begun, command(CommandFinished, stageB, succeeded), func(in *Inputs) { in.Busy = "locked" }), &result{}},
		"the node came back on the image":                  {inputs(v1alpha1.PhaseBooted, booted(imageB), intent("boot-0", true, time.Minute)), nil},
		"the node came back on the old image":              {inputs(v1alpha1.PhaseBooted, intent("boot-0", true, time.Minute)), &result{Class: "FinalizeFailed", Failures: 1, Permanent: true}},
		"a reboot before the image was unlocked":           {inputs(v1alpha1.PhaseBooted, intent("boot-0", false, time.Minute)), nil},
		"a new token forgets the failed boot":              {inputs(v1alpha1.PhaseBooted, intent("boot-0", true, time.Minute), func(in *Inputs) { in.Spec.RetryToken = "2" }), nil},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			var got *result
			if attempt := settle(test.in); attempt != nil {
				got = &result{attempt.Class, attempt.Failures, attempt.Permanent}
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("attempt (-want +got):\n%s", diff)
			}
		})
	}
}

func TestBlocking(t *testing.T) {
	kubelet := inhibitor{What: "shutdown", Who: "kubelet", Why: "Kubelet needs time to handle node shutdown", Mode: "delay"}
	backup := inhibitor{What: "sleep:shutdown", Who: "backup", Why: "a copy runs", Mode: "block", PID: 7}
	lid := inhibitor{What: "handle-lid-switch", Who: "desk", Mode: "block"}
	if got := blocking([]inhibitor{kubelet, lid}); got != "" {
		t.Errorf("blocked by %q", got)
	}
	if got, want := blocking([]inhibitor{kubelet, backup}), "backup (process 7): a copy runs"; got != want {
		t.Errorf("blocked by %q, want %q", got, want)
	}
}

func TestRetryAfterGrowsAndSpreads(t *testing.T) {
	for failures := int32(1); failures < 100; failures++ {
		full := lastRetry
		if failures < 7 {
			full = min(firstRetry<<(failures-1), lastRetry)
		}
		if got := retryAfter("worker-1", failures); got < full/2 || got > full {
			t.Errorf("after %d failures %s, want %s to %s", failures, got, full/2, full)
		}
	}
	if retryAfter("worker-1", 6) == retryAfter("worker-2", 6) {
		t.Error("two nodes come back at the same moment")
	}
}

// TestWhatANodeIsStuckInSaysWhatToDo: the NodeImage's name is the node's, and the
// condition has the time.
func TestWhatANodeIsStuckInSaysWhatToDo(t *testing.T) {
	tests := map[string]struct {
		in        Inputs
		why, todo string
	}{
		"bootc does not answer":       {inputs(v1alpha1.PhaseStaged, func(in *Inputs) { in.Busy = "took longer than 30s" }), "took longer than 30s", "see whether another bootc"},
		"bootc fails":                 {inputs(v1alpha1.PhaseStaged, func(in *Inputs) { in.Busy, in.IsBroken = "Missing base image ref", true }), "Missing base image ref", "mend it on the node"},
		"it is no bootc host":         {inputs(v1alpha1.PhaseStaged, func(in *Inputs) { in.Host.Status.Booted = nil }), "not booted from a container image", "install it with bootc"},
		"packages were layered":       {inputs(v1alpha1.PhaseStaged, func(in *Inputs) { in.Host.Status.Booted.Incompatible = true }), "layered", "rpm-ostree reset"},
		"its pull secret is missing":  {inputs(v1alpha1.PhaseStaged, func(in *Inputs) { in.Spec.PullSecretHash = "x" }), "has not arrived", "see Secret imagemode-node-pull"},
		"something inhibits a reboot": {inputs(v1alpha1.PhaseBooted, staged(imageB, true), func(in *Inputs) { in.Inhibitor = "backup (process 7): nightly" }), "backup (process 7)", "systemd-inhibit --list"},
		"it cannot go back":           {inputs(v1alpha1.PhaseRolledBack, booted(imageB), intent("boot-0", true, time.Hour)), "rollback entry", "boot that one by hand"},
		"its bootc cannot lock":       {inputs(v1alpha1.PhaseStaged, staged(imageB, false), func(in *Inputs) { in.Features.UpgradeLocks = false }), "cannot lock", "do not reboot"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got := decide(test.in)
			if !strings.Contains(got.Message, test.why) || !strings.Contains(got.Message, test.todo) {
				t.Errorf("%s: %q, want why (%q) and what to do (%q)", got.Reason, got.Message, test.why, test.todo)
			}
		})
	}
	for class, advice := range adviceOf {
		for _, permanent := range []bool{false, true} {
			in := inputs(v1alpha1.PhaseStaged, attempt(class, 3, permanent, time.Second))
			in.Attempt.Message = strings.Repeat("what bootc said ", 60)
			if got := decide(in); !strings.HasSuffix(got.Message, advice) || advice == "" || len(got.Message) > 1024 {
				t.Errorf("%s: %d bytes, %q", class, len(got.Message), got.Message)
			}
		}
	}
}

func TestEveryClassHasAdvice(t *testing.T) {
	for _, class := range []v1alpha1.FailureClass{
		v1alpha1.FailureRegistry, v1alpha1.FailureAuthentication, v1alpha1.FailureImageGone, v1alpha1.FailureImageInvalid, v1alpha1.FailureSignature,
		v1alpha1.FailureWrongArchitecture, v1alpha1.FailureDiskFull, v1alpha1.FailureHostDrift, v1alpha1.FailureEnvironment,
		v1alpha1.FailureFinalizeFailed, v1alpha1.FailureRolledBack, v1alpha1.FailureInternal,
	} {
		if adviceOf[class] == "" {
			t.Errorf("nothing is said about %s", class)
		}
	}
}
