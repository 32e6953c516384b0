package controller

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/imagemode/imagemode/api/v1alpha1"
)

func inZone(zone string) func(*Node) {
	return func(n *Node) { n.Labels[corev1.LabelTopologyZone] = zone }
}

func arbiter(n *Node) { n.Labels["node-role.kubernetes.io/arbiter"] = "" }

func controlPlane(n *Node) { n.Labels["node-role.kubernetes.io/control-plane"] = "" }

// ofControlPlane makes the nodes of the scope the cluster's control plane, with
// others beside them.
func ofControlPlane(others ...Node) func(*Scope) {
	return func(s *Scope) {
		for _, node := range append(others, s.Nodes...) {
			s.Cluster.ControlPlane = append(s.Cluster.ControlPlane, node.Node)
		}
	}
}

func canaryNodes(count int32, soak time.Duration) func(*Scope) {
	return func(s *Scope) {
		s.Rollout.Spec.Canary = &v1alpha1.CanarySpec{Nodes: &count, Soak: &metav1.Duration{Duration: soak}}
	}
}

func canarySelector(value string) func(*Scope) {
	return func(s *Scope) {
		s.Rollout.Spec.Canary = &v1alpha1.CanarySpec{NodeSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"canary": value}}}
	}
}

func canaryDone(ago time.Duration) func(*Scope) {
	return func(s *Scope) {
		s.Rollout.Status.Canary = &v1alpha1.CanaryStatus{Image: imageB, CompletionTime: metav1.NewTime(start.Add(-ago))}
	}
}

func skippedAgo(index int, ago time.Duration) func(*Scope) {
	return func(s *Scope) {
		name := fmt.Sprintf("worker-%d", index)
		s.Rollout.Status.Skipped = append(s.Rollout.Status.Skipped, v1alpha1.SkippedNode{Node: name, NodeUID: name + "-uid", Image: imageB, Time: metav1.NewTime(start.Add(-ago))})
	}
}

// What is said about a node that was skipped, for as long as it is not tried again.
func TestWhatIsSaidAboutSkippedNodes(t *testing.T) {
	minutes := func(count int) func(*Scope) {
		return func(s *Scope) {
			s.Rollout.Spec.Drain.Timeout = &metav1.Duration{Duration: time.Duration(count) * time.Minute}
		}
	}
	halted := func(s *Scope) { s.Rollout.Spec.Drain.OnTimeout = v1alpha1.DrainHalt }
	ago := skippedAgo(1, 10*time.Minute) // at 11:50
	const since = "worker-1 since 2026-05-01T11:50:00Z"
	tests := map[string]struct {
		changes []func(*Scope)
		want    string
	}{
		"its time is not over":             {[]func(*Scope){ago, minutes(30)}, since + ": is left alone until 2026-05-01T12:20:00Z"},
		"with what it waited for":          {[]func(*Scope){ago, minutes(30), func(s *Scope) { s.Rollout.Status.Skipped[0].Message = "waits for a" }}, since + ": waits for a, is left alone until 2026-05-01T12:20:00Z"},
		"under Halt, with another timeout": {[]func(*Scope){ago, minutes(60), halted}, since + ": is left alone until 2026-05-01T12:50:00Z"},
		"it is over":                       {[]func(*Scope){ago, minutes(5)}, since},
		"no window is open by then":        {[]func(*Scope){ago, minutes(30), window("0 22 * * *", time.Hour, "")}, since + ": is left alone until 2026-05-01T22:00:00Z"},
		"it is over, and no window open":   {[]func(*Scope){ago, minutes(5), window("0 22 * * *", time.Hour, "")}, since + ": is left alone until 2026-05-01T22:00:00Z"},
		"a window is open by then":         {[]func(*Scope){ago, minutes(30), window("15 12 * * *", time.Hour, "")}, since + ": is left alone until 2026-05-01T12:20:00Z"},
		"it is drained again":              {[]func(*Scope){ago, minutes(5), holding(1, v1alpha1.SlotDraining)}, ""},
		"it boots":                         {[]func(*Scope){ago, minutes(5), holding(1, v1alpha1.SlotBooting)}, ""},
		"another one is drained":           {[]func(*Scope){ago, minutes(5), holding(2, v1alpha1.SlotDraining)}, since},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			scope := newScope([]Node{newNode(1), newNode(2)}, test.changes...)
			if got := skippedNodes(scope, scope.Rollout.Status.Slots); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
			if wait := nextLook(scope, nil); wait == time.Second {
				t.Error("it is looked at every second")
			}
		})
	}
}

func window(expression string, length time.Duration, zone string) func(*Scope) {
	return func(s *Scope) {
		s.Rollout.Spec.Windows = append(s.Rollout.Spec.Windows, v1alpha1.MaintenanceWindow{Cron: expression, Duration: metav1.Duration{Duration: length}, TimeZone: zone})
	}
}

func controllerOn(name string) func(*Scope) {
	return func(s *Scope) { s.Cluster.ControllerNode = name }
}

func TestWhoseTurnItIs(t *testing.T) {
	labelled := func(n *Node) { n.Labels["canary"] = "yes" }
	tests := map[string]struct {
		scope *Scope
		want  string
		held  string
	}{
		"the zones in order, whatever the age":              {newScope([]Node{newNode(1, inZone("b")), newNode(2, inZone("a"))}, allowing("2")), "2", ""},
		"all of a zone at once":                             {newScope([]Node{newNode(1, inZone("a")), newNode(2, inZone("b")), newNode(3, inZone("a"))}, allowing("3")), "1 3", ""},
		"the next zone when the first is done":              {newScope([]Node{newNode(1, inZone("a"), updated), newNode(2, inZone("b"))}), "2", ""},
		"nobody of the next zone while the first has slots": {newScope([]Node{newNode(1, inZone("a")), newNode(2, inZone("b"))}, allowing("2"), holding(1, v1alpha1.SlotBooting)), "", ""},
		"a zone that still downloads is waited for":         {newScope([]Node{newNode(1, inZone("a"), notStaged), newNode(2, inZone("b"))}), "", ""},
		"a zone whose nodes are down is not":                {newScope([]Node{newNode(1, inZone("a"), notReady), newNode(2, inZone("b"))}, allowing("2")), "2", ""},
		"nodes without a zone come last":                    {newScope([]Node{newNode(1), newNode(2, inZone("z"))}), "2", ""},
		"no zones when the key is empty": {newScope([]Node{newNode(1, inZone("b")), newNode(2, inZone("a"))}, allowing("2"), func(s *Scope) {
			none := ""
			s.Rollout.Spec.TopologyKey = &none
		}), "1 2", ""},

		"the canary first, alone":                      {newScope([]Node{newNode(1), newNode(2)}, allowing("2"), canaryNodes(1, 0)), "1", ""},
		"the canary by its label":                      {newScope([]Node{newNode(1), newNode(2, labelled)}, allowing("2"), canarySelector("yes")), "2", ""},
		"the canary, whatever its zone":                {newScope([]Node{newNode(1, inZone("a")), newNode(2, inZone("b"), labelled)}, canarySelector("yes")), "2", ""},
		"nobody while the canary is on its way":        {newScope([]Node{newNode(1), newNode(2)}, allowing("2"), canaryNodes(1, 0), holding(1, v1alpha1.SlotBooting)), "", ""},
		"nobody while the canary soaks":                {newScope([]Node{newNode(1, updated), newNode(2)}, canaryNodes(1, time.Hour), canaryDone(time.Minute)), "", "CanarySoak"},
		"the others after the canary's soak":           {newScope([]Node{newNode(1, updated), newNode(2)}, canaryNodes(1, time.Hour), canaryDone(time.Hour)), "2", ""},
		"the others although the canary broke later":   {newScope([]Node{newNode(1, updated, cordoned), newNode(2)}, allowing("2"), canaryNodes(1, 0), canaryDone(time.Minute)), "2", ""},
		"a canary of an earlier image counts for that": {newScope([]Node{newNode(1), newNode(2)}, canaryNodes(1, 0), canaryDone(time.Hour), func(s *Scope) { s.Rollout.Status.Canary.Image = imageC }), "1", ""},
		"nobody when no node is a canary":              {newScope([]Node{newNode(1)}, canarySelector("no")), "", "NoCanary"},

		"one of the control plane, whatever maxUnavailable says": {newScope([]Node{newNode(1, controlPlane), newNode(2, controlPlane)}, allowing("2"), ofControlPlane()), "1", ""},
		"none of the control plane while another is down":        {newScope([]Node{newNode(1, controlPlane)}, ofControlPlane(newNode(9, controlPlane, notReady))), "", "ControlPlaneNotReady"},
		"none of the control plane while another is cordoned":    {newScope([]Node{newNode(1, controlPlane)}, ofControlPlane(newNode(9, controlPlane, cordoned))), "", ""},
		"none of the control plane while another rollout has a slot": {newScope([]Node{newNode(1, controlPlane)}, ofControlPlane(newNode(9, arbiter)), func(s *Scope) {
			s.Cluster.InSlots = map[types.UID]bool{s.Cluster.ControlPlane[0].UID: true}
		}), "", ""},
		"no arbiter while a node of the control plane is cordoned": {newScope([]Node{newNode(1, arbiter)}, ofControlPlane(newNode(9, controlPlane, cordoned))), "", ""},
		"no arbiter while a node of the control plane is down":     {newScope([]Node{newNode(1, arbiter)}, ofControlPlane(newNode(9, controlPlane, notReady))), "", "ControlPlaneNotReady"},
		"an arbiter when the control plane is whole":               {newScope([]Node{newNode(1, arbiter)}, ofControlPlane(newNode(9, controlPlane))), "1", ""},
		"workers while another rollout has a control-plane slot": {newScope([]Node{newNode(1)}, ofControlPlane(newNode(9, controlPlane)), func(s *Scope) {
			s.Cluster.InSlots = map[types.UID]bool{s.Cluster.ControlPlane[0].UID: true}
		}), "1", ""},
		"none of the control plane while etcd is not whole":        {newScope([]Node{newNode(1, controlPlane)}, ofControlPlane(), func(s *Scope) { s.Cluster.Etcd = "etcd-9 is not Ready" }), "", "EtcdNotReady"},
		"workers while a node of the control plane is down":        {newScope([]Node{newNode(1)}, ofControlPlane(newNode(9, controlPlane, notReady))), "1", ""},
		"the controller's own node last":                           {newScope([]Node{newNode(1), newNode(2)}, controllerOn("worker-1")), "2", ""},
		"not the controller's own node while another downloads":    {newScope([]Node{newNode(1), newNode(2, notStaged)}, controllerOn("worker-1")), "", ""},
		"the controller's own node when it is the last":            {newScope([]Node{newNode(1), newNode(2, updated)}, controllerOn("worker-1")), "1", ""},
		"the controller's own zone does not hold the others back":  {newScope([]Node{newNode(1, inZone("a")), newNode(2, inZone("b"))}, controllerOn("worker-1")), "2", ""},
		"the controller's own node when it is the canary":          {newScope([]Node{newNode(1), newNode(2)}, canaryNodes(1, 0), controllerOn("worker-1")), "1", ""},
		"not a node whose drain took too long just now":            {newScope([]Node{newNode(1), newNode(2)}, skippedAgo(1, time.Minute)), "2", ""},
		"a node whose drain took too long, after the others":       {newScope([]Node{newNode(1), newNode(2)}, skippedAgo(1, 2*time.Hour)), "2", ""},
		"a node whose drain took too long, when nobody else waits": {newScope([]Node{newNode(1), newNode(2, updated)}, skippedAgo(1, 2*time.Hour)), "1", ""},

		"somebody inside a window":             {newScope([]Node{newNode(1)}, window("0 11 * * *", 2*time.Hour, "UTC")), "1", ""},
		"nobody outside of it":                 {newScope([]Node{newNode(1)}, window("0 11 * * *", time.Hour, "UTC")), "", "WindowClosed"},
		"somebody inside one of two":           {newScope([]Node{newNode(1)}, window("0 1 * * *", time.Hour, "UTC"), window("0 11 * * *", 2*time.Hour, "UTC")), "1", ""},
		"a window in another time zone":        {newScope([]Node{newNode(1)}, window("0 14 * * *", time.Hour, "Europe/Berlin")), "1", ""},
		"nobody when a window makes no sense":  {newScope([]Node{newNode(1)}, window("0 99 * * *", time.Hour, "UTC")), "", "InvalidWindow"},
		"nobody when a time zone is not known": {newScope([]Node{newNode(1)}, window("0 1 * * *", time.Hour, "Mars/Olympus")), "", "InvalidWindow"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			answer := schedule(test.scope)
			var got []string
			for _, slot := range answer.Grants {
				got = append(got, strings.TrimPrefix(slot.Node, "worker-"))
			}
			if diff := cmp.Diff(test.want, strings.Join(got, " ")); diff != "" {
				t.Errorf("slots (-want +got):\n%s", diff)
			}
			if answer.Held.Reason != test.held {
				t.Errorf("held by %q (%s), want %q", answer.Held.Reason, answer.Held.Message, test.held)
			}
		})
	}
}

func TestWindows(t *testing.T) {
	berlin := "Europe/Berlin"
	at := func(text string) time.Time {
		parsed, err := time.Parse(time.RFC3339, text)
		if err != nil {
			t.Fatal(err)
		}
		return parsed
	}
	tests := map[string]struct {
		cron   string
		length time.Duration
		zone   string
		now    time.Time
		isOpen bool
		next   time.Time
	}{
		"open from the first second":            {"0 22 * * 6", 4 * time.Hour, "UTC", at("2026-05-02T22:00:00Z"), true, at("2026-05-09T22:00:00Z")},
		"open past midnight":                    {"0 22 * * 6", 4 * time.Hour, "UTC", at("2026-05-03T01:59:59Z"), true, at("2026-05-09T22:00:00Z")},
		"closed when its time is over":          {"0 22 * * 6", 4 * time.Hour, "UTC", at("2026-05-03T02:00:00Z"), false, at("2026-05-09T22:00:00Z")},
		"in summer by summer time":              {"30 3 * * *", time.Hour, berlin, at("2026-07-01T01:45:00Z"), true, at("2026-07-02T01:30:00Z")},
		"in winter by winter time":              {"30 3 * * *", time.Hour, berlin, at("2026-12-01T01:45:00Z"), false, at("2026-12-01T02:30:00Z")},
		"not in the hour that is left out":      {"30 2 29 3 *", time.Hour, berlin, at("2026-03-29T01:15:00Z"), false, at("2027-03-29T00:30:00Z")},
		"longer than the time between openings": {"0 * * * *", 2 * time.Hour, "UTC", at("2026-05-01T00:30:00Z"), true, at("2026-05-01T01:00:00Z")},
		"a day that never comes":                {"0 0 31 2 *", time.Hour, "UTC", at("2026-05-01T00:30:00Z"), false, time.Time{}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := lookAtWindows([]v1alpha1.MaintenanceWindow{{Cron: test.cron, Duration: metav1.Duration{Duration: test.length}, TimeZone: test.zone}}, test.now)
			if err != nil {
				t.Fatal(err)
			}
			if got.isOpen != test.isOpen || !got.next.Equal(test.next) {
				t.Errorf("open %t, next %s; want %t, %s", got.isOpen, got.next.UTC(), test.isOpen, test.next)
			}
		})
	}
	for name, cron := range map[string]string{"a descriptor": "@every 1h", "six fields": "0 0 1 * * *", "a zone of its own": "TZ=UTC 0 1 * * *", "nothing": ""} {
		t.Run(name+" is refused", func(t *testing.T) {
			_, err := lookAtWindows([]v1alpha1.MaintenanceWindow{{Cron: cron, Duration: metav1.Duration{Duration: time.Hour}}}, start)
			if err == nil || !strings.HasPrefix(err.Error(), "spec.windows[0].cron: ") {
				t.Errorf("error %v, want one about spec.windows[0].cron", err)
			}
		})
	}
}

func TestFailureBudget(t *testing.T) {
	failed := func(class v1alpha1.FailureClass) func(*Node) {
		return func(n *Node) {
			n.Image.Status.FailedImages = []v1alpha1.Attempt{{Image: imageB, Class: class, Permanent: true}}
		}
	}
	budget := func(value string) func(*Scope) {
		return func(s *Scope) {
			parsed := intstr.Parse(value)
			s.Rollout.Spec.FailureBudget = &parsed
		}
	}
	back := failed(v1alpha1.FailureRolledBack)
	later := func(s *Scope) { s.Now = start.Add(time.Hour) }
	tests := map[string]struct {
		scope      *Scope
		isRejected bool
	}{
		"nothing has failed":                        {newScope([]Node{newNode(1), newNode(2)}), false},
		"the first node fails":                      {newScope([]Node{newNode(1, back), newNode(2)}), true},
		"the first node fails, whatever the budget": {newScope([]Node{newNode(1, back), newNode(2)}, budget("2")), true},
		"one fails after another did well":          {newScope([]Node{newNode(1, updated), newNode(2, back), newNode(3)}), false},
		"two fail after another did well":           {newScope([]Node{newNode(1, updated), newNode(2, back), newNode(3, back)}), true},
		"two of a budget of three":                  {newScope([]Node{newNode(1, updated), newNode(2, back), newNode(3, back)}, budget("3")), false},
		"one fails while the canary has not soaked": {newScope([]Node{newNode(1, updated), newNode(2, back)}, canaryNodes(1, time.Hour), canaryDone(time.Minute)), true},
		"one fails after the canary":                {newScope([]Node{newNode(1, updated), newNode(2, back)}, canaryNodes(1, time.Minute), canaryDone(time.Hour)), false},
		"a signature is refused, once":              {newScope([]Node{newNode(1, updated), newNode(2, failed(v1alpha1.FailureSignature))}), true},
		"another image failed":                      {newScope([]Node{newNode(1, back)}, func(s *Scope) { s.Rollout.Spec.Image = imageC }), false},
		"it failed under another token":             {newScope([]Node{newNode(1, back)}, func(s *Scope) { s.Rollout.Spec.RetryToken = "2" }), false},
		"a node does not come back":                 {newScope([]Node{newNode(1, notReady), newNode(2)}, holding(1, v1alpha1.SlotBooting), later), true},
		"a node is kept from its reboot":            {newScope([]Node{newNode(1, heldUpBy("RebootInhibited", "backup")), newNode(2)}, holding(1, v1alpha1.SlotBooting), later), false},
		"an agent has not seen the order to boot":   {newScope([]Node{newNode(1, toldMore), newNode(2)}, holding(1, v1alpha1.SlotBooting), later), false},
		"a node takes its time":                     {newScope([]Node{newNode(1, notReady), newNode(2)}, holding(1, v1alpha1.SlotBooting)), false},
		"a gate is not met":                         {newScope([]Node{newNode(1, updated), newNode(2)}, holding(1, v1alpha1.SlotBooting), later), true},
		"a node is told to go back":                 {newScope([]Node{newNode(1, updated), newNode(2)}, holding(1, v1alpha1.SlotRollingBack)), true},
		"a node in its soak is not Ready for long":  {newScope([]Node{newNode(1, updated, notReady), newNode(2)}, holding(1, v1alpha1.SlotSoaking), later), true},
		"a failure counts once, by slot and report": {newScope([]Node{newNode(1, updated), newNode(2, back, notReady), newNode(3)}, holding(2, v1alpha1.SlotBooting), later), false},
		"a registry that does not answer is no failure": {newScope([]Node{newNode(1, func(n *Node) {
			n.Image.Status.LastAttempt = &v1alpha1.Attempt{Image: imageB, Class: "Registry", Failures: 50}
		})}), false},
		"nodes of another rollout do not count": {newScope([]Node{newNode(1, back, claimed), newNode(2)}), false},
		"a rejected image stays so when its node is gone": {newScope([]Node{newNode(2)}, func(s *Scope) {
			s.Rollout.Status.Rejected = []v1alpha1.RejectedImage{{Digest: digestOf(imageB), Reason: "x"}}
		}), true},
		"a rejected image is tried again with a new token": {newScope([]Node{newNode(2)}, func(s *Scope) {
			s.Rollout.Status.Rejected = []v1alpha1.RejectedImage{{Digest: digestOf(imageB), RetryToken: "1", Reason: "x"}}
		}), false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			status := statusOf(test.scope, test.scope.Rollout.Status.Slots, schedule(test.scope).Held)
			got := len(status.Rejected) == 1 && status.Rejected[0].Digest == digestOf(imageB) && status.Rejected[0].RetryToken == test.scope.Rollout.Spec.RetryToken
			if got != test.isRejected {
				t.Errorf("rejected %+v, want %t", status.Rejected, test.isRejected)
			}
			if held := holdWhenRejected(test.scope).Reason == "ImageRejected"; held != test.isRejected {
				t.Errorf("held %t, want %t", held, test.isRejected)
			}
		})
	}
}

func TestNodesOfOtherZonesSayWhatTheyWaitFor(t *testing.T) {
	nodes := func() []Node {
		return []Node{newNode(1, inZone("a")), newNode(2, inZone("b")), newNode(3, inZone("b"), updated)}
	}
	anyZone := ""
	for name, test := range map[string]struct {
		scope *Scope
		want  string
	}{
		"a place is free":           {newScope(nodes(), holding(1, v1alpha1.SlotBooting), allowing("2")), `; nodes of other zones, 1, wait until none of zone "a" is out of service`},
		"it is paused":              {newScope(nodes(), holding(1, v1alpha1.SlotBooting), allowing("2"), paused), ""},
		"the canary comes first":    {newScope(nodes(), holding(1, v1alpha1.SlotBooting), allowing("2"), canarySelector("yes")), ""},
		"no place is free":          {newScope(nodes(), holding(1, v1alpha1.SlotBooting)), ""},
		"zones do not matter":       {newScope(nodes(), holding(1, v1alpha1.SlotBooting), allowing("2"), func(s *Scope) { s.Rollout.Spec.TopologyKey = &anyZone }), ""},
		"none of them is left":      {newScope(nodes(), holding(2, v1alpha1.SlotBooting), allowing("2"), func(s *Scope) { updated(&s.Nodes[0]) }), ""},
		"its node has been deleted": {newScope(nodes(), holding(9, v1alpha1.SlotBooting), allowing("2")), ""},
	} {
		t.Run(name, func(t *testing.T) {
			if got := waitsForZone(test.scope, test.scope.Rollout.Status.Slots, schedule(test.scope).Held); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}
