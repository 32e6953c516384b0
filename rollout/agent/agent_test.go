package agent

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/imagemode/imagemode/api/v1alpha1"
	"github.com/imagemode/imagemode/rollout/bootc"
)

const pullSecret = `{"auths":{"registry.example:5000":{"auth":"c2VjcmV0"}}}`

// bench is an agent on a machine in memory, with an API server in memory.
type bench struct {
	t       *testing.T
	client  client.Client
	machine *machine
	agent   *Agent
	now     time.Time
	writes  int
	// wrap changes an agent that is started, if set.
	wrap func(*Agent)
}

func newBench(t *testing.T) *bench {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{v1alpha1.AddToScheme, corev1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	b := &bench{t: t, now: now}
	b.client = fake.NewClientBuilder().WithScheme(scheme).WithTypeConverters(managedfields.NewDeducedTypeConverter()).WithStatusSubresource(&v1alpha1.NodeImage{}).
		WithInterceptorFuncs(interceptor.Funcs{SubResourceApply: func(ctx context.Context, c client.Client, name string, object runtime.ApplyConfiguration, options ...client.SubResourceApplyOption) error {
			b.writes++
			return c.SubResource(name).Apply(ctx, object, options...)
		}}).Build()
	b.machine = newMachine(imageA, func() time.Time { return b.now })
	directory := t.TempDir()
	if err := os.WriteFile(filepath.Join(directory, "worker"), []byte(pullSecret), 0o600); err != nil {
		t.Fatal(err)
	}
	b.startAgent(directory)
	return b
}

// startAgent starts the agent anew: all that it held in memory is gone.
func (b *bench) startAgent(secrets string) {
	b.agent = &Agent{
		client: b.client, live: b.client, recorder: events.NewFakeRecorder(1000), host: b.machine, clock: func() time.Time { return b.now },
		options: Options{NodeName: "worker-1", PullSecretDir: secrets},
	}
	if b.wrap != nil {
		b.wrap(b.agent)
	}
}

func (b *bench) order(image bootc.Reference, phase v1alpha1.NodeImagePhase) {
	b.t.Helper()
	b.orderSpec(func(s *v1alpha1.NodeImageSpec) { s.DesiredImage, s.Phase = image.String(), phase })
}

func (b *bench) orderSpec(change func(*v1alpha1.NodeImageSpec)) {
	b.t.Helper()
	object := b.object()
	isNew := object.Name == ""
	object.Name = "worker-1"
	object.Generation++
	object.Spec = v1alpha1.NodeImageSpec{Rollout: "worker", PullSecretHash: Secret(pullSecret).hash()}
	change(&object.Spec)
	var err error
	if isNew {
		err = b.client.Create(context.Background(), object)
	} else {
		err = b.client.Update(context.Background(), object)
	}
	if err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) object() *v1alpha1.NodeImage {
	b.t.Helper()
	object := &v1alpha1.NodeImage{}
	if err := b.client.Get(context.Background(), client.ObjectKey{Name: "worker-1"}, object); client.IgnoreNotFound(err) != nil {
		b.t.Fatal(err)
	}
	return object
}

// pass lets the agent make one pass; the command that it started comes to its
// end, and the time goes on as far as the agent asked to wait.
func (b *bench) pass() {
	b.t.Helper()
	result, err := b.agent.Reconcile(context.Background(), ctrl.Request{NamespacedName: client.ObjectKey{Name: "worker-1"}})
	if err != nil {
		b.t.Fatal(err)
	}
	b.machine.finish()
	b.pause(max(result.RequeueAfter, time.Second))
}

// look lets the agent make one pass, and nothing else happens.
func (b *bench) look() {
	b.t.Helper()
	if _, err := b.agent.Reconcile(context.Background(), ctrl.Request{NamespacedName: client.ObjectKey{Name: "worker-1"}}); err != nil {
		b.t.Fatal(err)
	}
}

// pause lets time go on, for the machine too.
func (b *bench) pause(d time.Duration) {
	b.now = b.now.Add(d)
	b.machine.up += d
}

// settleDown makes passes, with reboots where they were asked for.
func (b *bench) settleDown() {
	for range 12 {
		b.pass()
		if b.machine.rebootAsked {
			b.machine.reboot()
			b.startAgent(b.agent.options.PullSecretDir)
		}
	}
}

func (b *bench) expectCondition(kind string, status metav1.ConditionStatus, reason string) {
	b.t.Helper()
	got := meta.FindStatusCondition(b.object().Status.Conditions, kind)
	if got == nil || got.Status != status || got.Reason != reason {
		b.t.Errorf("condition %s is %+v, want %s with reason %s", kind, got, status, reason)
	}
}

func TestAgentTakesANodeFromStagedToBooted(t *testing.T) {
	b := newBench(t)
	b.order(imageB, v1alpha1.PhaseStaged)
	b.settleDown()
	b.expectCondition(v1alpha1.ConditionStaged, metav1.ConditionTrue, ReasonStaged)
	b.expectCondition(v1alpha1.ConditionBooted, metav1.ConditionFalse, ReasonStaged)
	if string(b.machine.files[authFilePath]) != pullSecret {
		t.Errorf("%s holds %q", authFilePath, b.machine.files[authFilePath])
	}
	b.order(imageB, v1alpha1.PhaseBooted)
	b.settleDown()
	b.expectCondition(v1alpha1.ConditionBooted, metav1.ConditionTrue, ReasonBooted)
	want := []string{"switch --quiet " + imageB.String(), "upgrade --quiet --download-only", "upgrade --quiet --from-downloaded", "reboot"}
	if diff := cmp.Diff(want, b.machine.calls); diff != "" {
		t.Errorf("commands (-want +got):\n%s", diff)
	}
	status := b.object().Status
	if status.BootID != "boot-2" || status.Booted.Digest != imageB.Digest() || status.Rollback.Digest != imageA.Digest() || status.ObservedGeneration != 2 {
		t.Errorf("status %+v", status)
	}
	b.order(imageB, v1alpha1.PhaseStaged) // confirmed
	b.settleDown()
	if _, isThere := b.machine.files[intentPath]; isThere {
		t.Errorf("%s is still there", intentPath)
	}
	writes := b.writes
	b.settleDown()
	if b.writes != writes {
		t.Errorf("%d writes though nothing changed", b.writes-writes)
	}
	t.Logf("%d status writes from the old image to the new one", writes)
	if writes > 3 {
		t.Errorf("%d status writes, want 3: the first word about the host, staged, booted", writes)
	}
}

// TestADownloadThatTakesItsTimeIsReported: once, and not when it begins.
func TestADownloadThatTakesItsTimeIsReported(t *testing.T) {
	b := newBench(t)
	b.order(imageA, v1alpha1.PhaseStaged)
	b.settleDown() // the first report, which tells of the host
	b.order(imageB, v1alpha1.PhaseStaged)
	begun := b.now
	writes := b.writes
	for b.now.Sub(begun) < 2*quietDownload {
		b.look()
		if b.now.Sub(begun) < quietDownload && b.writes != writes {
			t.Fatalf("reported after %s", b.now.Sub(begun))
		}
		b.pause(time.Second)
	}
	b.expectCondition(v1alpha1.ConditionStaged, metav1.ConditionFalse, ReasonStaging)
	if b.writes != writes+1 {
		t.Errorf("%d reports of one download", b.writes-writes)
	}
}

// TestAnAgentThatIsAskedForAReportGivesOne, once, and does nothing to the host.
func TestAnAgentThatIsAskedForAReportGivesOne(t *testing.T) {
	b := newBench(t)
	b.order(imageB, v1alpha1.PhaseStaged)
	b.settleDown()
	writes, calls := b.writes, len(b.machine.calls)
	b.orderSpec(func(s *v1alpha1.NodeImageSpec) {
		s.DesiredImage, s.Phase, s.ReportRequests = imageB.String(), v1alpha1.PhaseStaged, 1
	})
	b.look()
	if got := b.object(); b.writes != writes+1 || got.Status.ObservedGeneration != got.Generation {
		t.Errorf("%d reports, of generation %d of %d", b.writes-writes, got.Status.ObservedGeneration, got.Generation)
	}
	b.settleDown()
	if b.writes != writes+1 || len(b.machine.calls) != calls {
		t.Errorf("%d reports, commands %v", b.writes-writes, b.machine.calls[calls:])
	}
}

func TestAgentWithoutNodeImageDoesNotLookAtTheHost(t *testing.T) {
	b := newBench(t)
	b.agent.host = nil // any look would panic
	b.pass()
}

func TestAgentTellsAFailedBoot(t *testing.T) {
	b := newBench(t)
	b.order(imageB, v1alpha1.PhaseBooted)
	b.machine.finalizeFails = true
	b.settleDown()
	b.expectCondition(v1alpha1.ConditionBooted, metav1.ConditionFalse, "FinalizeFailed")
	if last := b.object().Status.LastAttempt; last == nil || !last.Permanent {
		t.Errorf("last attempt %+v, want a permanent failure", last)
	}
	calls := len(b.machine.calls)
	b.settleDown()
	if len(b.machine.calls) != calls {
		t.Errorf("it was tried again: %v", b.machine.calls[calls:])
	}
}

func TestAgentRetriesAfterTheRegistryIsBack(t *testing.T) {
	b := newBench(t)
	b.machine.fails["stage"] = []string{"connection refused", "i/o timeout"}
	b.order(imageB, v1alpha1.PhaseStaged)
	b.settleDown()
	b.expectCondition(v1alpha1.ConditionStaged, metav1.ConditionTrue, ReasonStaged)
}

func TestAgentStagesAgainAfterAPowerCut(t *testing.T) {
	b := newBench(t)
	b.order(imageB, v1alpha1.PhaseStaged)
	b.settleDown()
	b.machine.restart()
	b.settleDown()
	b.expectCondition(v1alpha1.ConditionStaged, metav1.ConditionTrue, ReasonStaged)
	if last := b.object().Status.LastAttempt; last == nil || last.Class != "" {
		t.Errorf("last attempt %+v, want no failure", last)
	}
}

// TestAgentSurvivesARestartAtEveryPass: an agent that is started anew before
// each pass comes to the same end with the same commands.
func TestAgentSurvivesARestartAtEveryPass(t *testing.T) {
	b := newBench(t)
	b.order(imageB, v1alpha1.PhaseBooted)
	for range 20 {
		b.startAgent(b.agent.options.PullSecretDir)
		b.pass()
		if b.machine.rebootAsked {
			b.machine.reboot()
		}
	}
	b.expectCondition(v1alpha1.ConditionBooted, metav1.ConditionTrue, ReasonBooted)
	want := []string{"switch --quiet " + imageB.String(), "reboot"}
	if diff := cmp.Diff(want, b.machine.calls); diff != "" {
		t.Errorf("commands (-want +got):\n%s", diff)
	}
}

func TestSecretDoesNotPrint(t *testing.T) {
	text, err := Secret(pullSecret).MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	for _, printed := range []string{Secret(pullSecret).String(), Secret(pullSecret).GoString(), string(text)} {
		if strings.Contains(printed, "auths") {
			t.Errorf("printed as %s", printed)
		}
	}
}

// TestANodeThatSomebodySwitchedIsBroughtBack: the image that the rollout wants is
// staged again, and booted when it is the node's turn, not before.
func TestANodeThatSomebodySwitchedIsBroughtBack(t *testing.T) {
	b := newBench(t)
	b.order(imageA, v1alpha1.PhaseStaged)
	b.settleDown()
	b.expectCondition(v1alpha1.ConditionBooted, metav1.ConditionTrue, "Booted")
	b.machine.booted, b.machine.rollback = imageC, imageA // bootc switch, and a reboot
	b.machine.restart()
	b.startAgent(b.agent.options.PullSecretDir)
	b.settleDown()
	b.expectCondition(v1alpha1.ConditionBooted, metav1.ConditionFalse, "Staged")
	if b.machine.booted != imageC || b.machine.staged != imageA || !b.machine.locked {
		t.Errorf("it runs %s and has staged %s, locked %t", b.machine.booted, b.machine.staged, b.machine.locked)
	}
	b.order(imageA, v1alpha1.PhaseBooted)
	b.settleDown()
	if b.machine.booted != imageA {
		t.Errorf("in its turn it runs %s", b.machine.booted)
	}
}
