package controller

import (
	"errors"
	"regexp"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/imagemode/imagemode/api/v1alpha1"
)

// aTime is how a message says since when.
var aTime = regexp.MustCompile(`since \d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ`)

// reports is a node whose agent reports a condition.
func reports(kind string, status metav1.ConditionStatus, message string) func(*Node) {
	return func(n *Node) {
		n.Image.Status.Conditions = append(n.Image.Status.Conditions, metav1.Condition{Type: kind, Status: status, Message: message, LastTransitionTime: metav1.NewTime(start)})
	}
}

// stuck is a scope for each reason of Degraded, with what its message has to name
// beside since when and what can be done.
func stuck() map[string]struct {
	scope *Scope
	names []string
} {
	after := func(d time.Duration) func(*Scope) { return func(s *Scope) { s.Now = start.Add(d) } }
	saying := func(text string) func(*Scope) {
		return func(s *Scope) { s.Rollout.Status.Slots[0].Message = text }
	}
	attempt := func(class v1alpha1.FailureClass, failures int32) func(*Node) {
		return func(n *Node) {
			n.Image.Status.LastAttempt = &v1alpha1.Attempt{Image: imageB, Class: class, Failures: failures, Message: "connection refused", Time: metav1.NewTime(start)}
		}
	}
	failed := func(n *Node) {
		n.Image.Status.FailedImages = []v1alpha1.Attempt{{Image: imageB, Class: v1alpha1.FailureRolledBack, Permanent: true, Time: metav1.NewTime(start)}}
	}
	proven := newNode(2, updated)
	return map[string]struct {
		scope *Scope
		names []string
	}{
		"InvalidGate":       {newScope([]Node{newNode(1)}, gated(podsGate("a b"))), []string{"spec.gates[0].pods.selector"}},
		"InvalidSelector":   {newScope([]Node{newNode(1)}, func(s *Scope) { s.SelectorProblem = "spec.nodeSelector is not valid" }), []string{"spec.nodeSelector"}},
		"InvalidWindow":     {newScope([]Node{newNode(1)}, window("0 1 * * *", time.Hour, "Mars")), []string{"spec.windows[0].timeZone", "Mars"}},
		"InvalidCanary":     {newScope([]Node{newNode(1)}, canarySelector("a b")), []string{"spec.canary.nodeSelector"}},
		"NoCanary":          {newScope([]Node{newNode(1)}, canarySelector("no")), []string{"spec.canary.nodeSelector"}},
		"InvalidDrain":      {newScope([]Node{newNode(1)}, skipping("a b")), []string{"spec.drain.skipPodSelector"}},
		"PullSecretMissing": {newScope([]Node{newNode(1)}, func(s *Scope) { s.Problem = "Secret a/b (spec.pullSecretRef) does not exist" }), []string{"Secret a/b", "does not exist"}},
		"WriteRefused": {newScope([]Node{newNode(1)}, func(s *Scope) {
			s.Refused = refusedOnly(map[string]error{"worker-1": apierrors.NewForbidden(schema.GroupResource{Resource: "nodes"}, "worker-1", errors.New("policy keep-nodes")), "worker-2": errors.New("it is late")})
		}), []string{"worker-1", "policy keep-nodes"}},
		"ImageRejected": {newScope([]Node{newNode(1, failed)}), []string{"worker-1", digestOf(imageB), "RolledBack", "spec.retryToken"}},
		"RecallUnconfirmed": {newScope([]Node{newNode(1, notReady)}, holding(1, v1alpha1.SlotBooting), after(time.Hour), func(s *Scope) { s.Rollout.DeletionTimestamp = &metav1.Time{Time: start} }),
			[]string{"worker-1 since 2026", "the rollout is being deleted, and the agent of worker-1 has to confirm", "Ready=Unknown", "delete the Node"}},
		"RebootTimeout":   {newScope([]Node{newNode(1, notReady), proven, newNode(3, updated)}, holding(1, v1alpha1.SlotBooting), saying("not Ready on the image"), after(time.Hour)), []string{"worker-1", "not Ready on the image"}},
		"RollbackTimeout": {newScope([]Node{newNode(1, updated), proven, newNode(3, updated)}, holding(1, v1alpha1.SlotRollingBack), saying("not back on the image before"), after(time.Hour)), []string{"worker-1", "not back"}},
		"NodeNotReady": {newScope([]Node{newNode(1, updated, notReady), proven, newNode(3, updated)}, holding(1, v1alpha1.SlotSoaking), withImage(imageC), after(time.Hour)),
			[]string{"worker-1 since 2026", "not Ready", "delete the Node"}},
		"NodeFailed":       {newScope([]Node{newNode(1, failed), proven, newNode(3)}), []string{"worker-1", "RolledBack"}},
		"DrainBlocked":     {newScope([]Node{newNode(1)}, holding(1, v1alpha1.SlotDraining), saying("waits for default/web (no more disruptions allowed: web)"), after(2*time.Hour)), []string{"worker-1", "default/web", "disruptions"}},
		"DrainSkipped":     {newScope([]Node{newNode(1)}, skippedAgo(1, time.Minute), func(s *Scope) { s.Rollout.Status.Skipped[0].Message = "waits for default/web" }), []string{"worker-1", "default/web"}},
		"NodeConflict":     {newScope([]Node{newNode(1, claimed)}), []string{"worker-1", "ImageRollout other"}},
		"AgentSilent":      {newScope([]Node{newNode(1, neverReported)}, after(silentAfter)), []string{"worker-1", "no agent"}},
		"StagingFailing":   {newScope([]Node{newNode(1, notStaged, attempt(v1alpha1.FailureRegistry, 3))}), []string{"worker-1", "Registry", "connection refused"}},
		"NotManageable":    {newScope([]Node{newNode(1, reports(v1alpha1.ConditionManageable, metav1.ConditionFalse, "packages were layered"))}), []string{"worker-1", "packages were layered"}},
		"NodeHeldUp":       {newScope([]Node{newNode(1, notStaged, heldUpBy(reasonBusy, "bootc does not answer"))}, after(heldUpAfter)), []string{"worker-1", "HostBusy", "bootc does not answer"}},
		"RollbackNotReady": {newScope([]Node{newNode(1, reports(v1alpha1.ConditionRollbackReady, metav1.ConditionFalse, "rollback entry"))}), []string{"worker-1", "rollback entry"}},
		"LiveTooLarge": {newScope([]Node{newNode(1)}, func(s *Scope) {
			s.Rollout.Spec.Live = &v1alpha1.LiveContent{TrustBundle: strings.Repeat("x", v1alpha1.MaxLiveBytes)}
		}), []string{"spec.live", "bytes"}},
		"LiveInvalid":  {newScope([]Node{newNode(1)}, paused, func(s *Scope) { s.Rollout.Spec.Live = &v1alpha1.LiveContent{TrustBundle: "nonsense"} }), []string{"spec.live.trustBundle", "no certificate"}},
		"LiveFailed":   {newScope([]Node{newNode(1, reports(v1alpha1.ConditionLiveFailed, metav1.ConditionTrue, "user a does not exist"))}), []string{"worker-1", "user a"}},
		"NodeDrifted":  {newScope([]Node{newNode(1, reports(v1alpha1.ConditionDrifted, metav1.ConditionTrue, "/etc/motd (content)"))}), []string{"worker-1", "/etc/motd"}},
		"RivalUpdater": {newScope([]Node{newNode(1, reports(v1alpha1.ConditionRivalUpdater, metav1.ConditionTrue, "zincati.service"))}), []string{"worker-1", "zincati.service"}},
		"LowDiskSpace": {newScope([]Node{newNode(1, reports(v1alpha1.ConditionLowDiskSpace, metav1.ConditionTrue, "/boot"))}), []string{"worker-1", "/boot"}},
	}
}

// aboutNoNode are reasons that are not about a node: the condition's own time
// says since when.
var aboutNoNode = map[string]bool{"PullSecretMissing": true, "WriteRefused": true, "NodeConflict": true, "LiveTooLarge": true, "LiveInvalid": true,
	reasonInvalidGate: true, "InvalidSelector": true, "InvalidWindow": true, "InvalidCanary": true, "NoCanary": true, "InvalidDrain": true}

func TestEveryTroubleSaysWhereWhySinceWhenAndWhatToDo(t *testing.T) {
	cases := stuck()
	for _, trouble := range troubles {
		t.Run(trouble.reason, func(t *testing.T) {
			test, isThere := cases[trouble.reason]
			if !isThere {
				t.Fatal("no case shows it")
			}
			got := degradedCondition(test.scope, test.scope.Rollout.Status.Slots)
			if got.Reason != trouble.reason || got.Status != metav1.ConditionTrue {
				t.Fatalf("Degraded is %s, %s: %s", got.Status, got.Reason, got.Message)
			}
			for _, want := range test.names {
				if !strings.Contains(got.Message, want) {
					t.Errorf("%q does not name %q", got.Message, want)
				}
			}
			if !aboutNoNode[trouble.reason] && !aTime.MatchString(got.Message) {
				t.Errorf("%q does not say since when", got.Message)
			}
			if before, advice, _ := strings.Cut(got.Message, "; "); advice == "" || before == "" || strings.Contains(got.Message, "\n") {
				t.Errorf("%q is not one line that ends with what to do", got.Message)
			}
		})
	}
}

func TestANodeThatIsDownInAWithdrawnSoakIsNamed(t *testing.T) {
	after := func(by time.Duration) func(*Scope) { return func(s *Scope) { s.Now = start.Add(by) } }
	deleted := func(s *Scope) { s.Rollout.DeletionTimestamp = &metav1.Time{Time: start} }
	down := func(n *Node) { updated(n); notReady(n); readySince(0)(n) }
	for name, test := range map[string]struct {
		node    Node
		changes []func(*Scope)
		want    bool
	}{
		"another image, for long":      {newNode(1, down), []func(*Scope){withImage(imageC), after(20 * time.Minute)}, true},
		"the rollout is being deleted": {newNode(1, down), []func(*Scope){deleted, after(20 * time.Minute)}, true},
		"another image, for a while":   {newNode(1, down), []func(*Scope){withImage(imageC), after(10 * time.Minute)}, false},
		"another image, Ready":         {newNode(1, updated), []func(*Scope){withImage(imageC), after(20 * time.Minute)}, false},
		"its own image":                {newNode(1, down), []func(*Scope){after(20 * time.Minute)}, false},
	} {
		t.Run(name, func(t *testing.T) {
			scope := newScope([]Node{test.node}, append([]func(*Scope){holding(1, v1alpha1.SlotSoaking)}, test.changes...)...)
			if got := degradedCondition(scope, scope.Rollout.Status.Slots); (got.Reason == "NodeNotReady") != test.want {
				t.Errorf("Degraded is %s: %s", got.Reason, got.Message)
			}
		})
	}
}

// TestTheGravestTroubleComesFirst, and hides no other.
func TestTheGravestTroubleComesFirst(t *testing.T) {
	overdue := func() *Scope {
		return newScope([]Node{newNode(1, notReady), newNode(2, updated), newNode(3, updated)}, holding(1, v1alpha1.SlotBooting), func(s *Scope) { s.Now = start.Add(time.Hour) })
	}
	everything := overdue()
	window("x", time.Hour, "UTC")(everything)
	everything.Problem = "Secret a/b (spec.pullSecretRef) does not exist"
	everything.Rollout.Spec.Live = keysFor("root", "nonsense")
	rejected := newScope([]Node{newNode(1, failedOnB)})
	rejected.Rollout.Spec.Live = keysFor("root", strings.Repeat("é", 400))
	withoutImage := func(changes ...func(*Scope)) *Scope {
		return newScope([]Node{newNode(1)}, append(changes, func(s *Scope) { s.Rollout.Spec.Image = "" })...)
	}
	deleted := newScope([]Node{newNode(1)}, window("x", time.Hour, "UTC"), func(s *Scope) { s.Rollout.DeletionTimestamp = &metav1.Time{Time: start} })
	for name, test := range map[string]struct {
		scope        *Scope
		reason, ends string
	}{
		"a mistake hides no node that is away":  {func() *Scope { s := overdue(); window("x", time.Hour, "UTC")(s); return s }(), "RebootTimeout", "; also: InvalidWindow, NodeFailed"},
		"all that there is":                     {everything, "PullSecretMissing", "; also: RebootTimeout, InvalidWindow, NodeFailed, LiveInvalid"},
		"a rejection":                           {rejected, "ImageRejected", rejectedAdvice + "; also: NodeFailed, LiveInvalid"},
		"two mistakes":                          {newScope([]Node{newNode(1)}, window("x", time.Hour, "UTC"), skipping("a b")), "InvalidWindow", "; also: InvalidDrain"},
		"a canary that is wrong is not missing": {newScope([]Node{newNode(1)}, canarySelector("a b")), "InvalidCanary", "nothing begins until it is put right"},
		"a window, without an image":            {withoutImage(window("x", time.Hour, "UTC")), "InvalidWindow", "until it is put right"},
		"a zone, without an image":              {withoutImage(window("0 1 * * *", time.Hour, "Mars")), "InvalidWindow", "until it is put right"},
		"a gate, without an image":              {withoutImage(gated(podsGate("a b"))), "InvalidGate", "until it is put right"},
		"a canary, without an image":            {withoutImage(canarySelector("a b")), "InvalidCanary", "until it is put right"},
		"nothing, of a rollout that is deleted": {deleted, "AsExpected", ""},
	} {
		t.Run(name, func(t *testing.T) {
			got := degradedCondition(test.scope, test.scope.Rollout.Status.Slots)
			if got.Reason != test.reason || !strings.HasSuffix(got.Message, test.ends) || len(got.Message) > maxMessageBytes {
				t.Errorf("Degraded is %s, %s: %s", got.Status, got.Reason, got.Message)
			}
		})
	}
}

func TestWhatHoldsARolloutSaysWhatToDo(t *testing.T) {
	tests := map[string]struct {
		scope *Scope
		names string
	}{
		"NoImage":              {newScope([]Node{newNode(1)}, func(s *Scope) { s.Rollout.Spec.Image = "" }), "spec.image"},
		"Paused":               {newScope([]Node{newNode(1)}, paused), "spec.paused"},
		"StageOnly":            {newScope([]Node{newNode(1)}, stageOnly), "spec.mode"},
		"ImageRejected":        {newScope([]Node{newNode(1, failedOnB)}), "spec.retryToken"},
		"WindowClosed":         {newScope([]Node{newNode(1)}, window("0 1 * * *", time.Hour, "UTC")), "opens at 2026-05-02T01:00:00Z"},
		"InvalidWindow":        {newScope([]Node{newNode(1)}, paused, window("x", time.Hour, "UTC")), "spec.windows[0].cron"},
		"InvalidCanary":        {newScope([]Node{newNode(1)}, paused, canarySelector("a b")), "spec.canary.nodeSelector"},
		"InvalidDrain":         {newScope([]Node{newNode(1)}, paused, skipping("a b")), "spec.drain.skipPodSelector"},
		"InvalidGate":          {newScope([]Node{newNode(1)}, paused, gated(podsGate("a b"))), "spec.gates[0].pods.selector (gate pods)"},
		"NoCanary":             {newScope([]Node{newNode(1)}, canarySelector("no")), "spec.canary.nodeSelector"},
		"CanarySoak":           {newScope([]Node{newNode(1, updated), newNode(2)}, canaryNodes(1, time.Hour), canaryDone(time.Minute)), "wait until 2026-05-01T12:59:00Z"},
		"ControlPlaneNotReady": {newScope([]Node{newNode(1, controlPlane)}, ofControlPlane(newNode(9, controlPlane, notReady))), "worker-9"},
		"EtcdNotReady":         {newScope([]Node{newNode(1, controlPlane)}, ofControlPlane(), func(s *Scope) { s.Cluster.Etcd = "etcd-9 is not Ready" }), "etcd-9"},
	}
	for reason, test := range tests {
		t.Run(reason, func(t *testing.T) {
			held := schedule(test.scope).Held
			if held.Reason != reason || !strings.Contains(held.Message, test.names) {
				t.Errorf("held by %s: %s; want %s, which names %q", held.Reason, held.Message, reason, test.names)
			}
		})
	}
}

// skipping has pods with a label stay in a drain.
func skipping(label string) func(*Scope) {
	return func(s *Scope) {
		s.Rollout.Spec.Drain.SkipPodSelector = &metav1.LabelSelector{MatchLabels: map[string]string{label: ""}}
	}
}

func TestAWindowThatNeverOpensIsAMistake(t *testing.T) {
	held := schedule(newScope([]Node{newNode(1)}, window("0 22 30 2 *", time.Hour, "UTC"))).Held
	if held.Reason != "InvalidWindow" || held.Message != "none of spec.windows ever opens" {
		t.Errorf("held by %+v", held)
	}
}

func TestAdviceIsNeverCut(t *testing.T) {
	got := advise(strings.Repeat("é", 1000), "do this")
	if len(got) > maxMessageBytes || !strings.HasSuffix(got, "…; do this") {
		t.Errorf("%d bytes, ends with %q", len(got), got[len(got)-20:])
	}
}
