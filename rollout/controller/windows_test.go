package controller

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/imagemode/imagemode/api/v1alpha1"
)

// TestSundayIsTheSeventhDay, too: the days on which windows of one hour open.
func TestSundayIsTheSeventhDay(t *testing.T) {
	for days, want := range map[string]string{
		"7": "Sun", "0": "Sun", "5-7": "Fri Sat Sun", "0-7": "Mon Tue Wed Thu Fri Sat Sun", "1,7": "Mon Sun", "1-7/2": "Mon Wed Fri Sun",
		"2-7/3": "Tue Fri", "7-7": "Sun", "6,7/2": "Sat Sun", "mon-fri": "Mon Tue Wed Thu Fri", "*": "Mon Tue Wed Thu Fri Sat Sun",
		"8": "", "7-8": "", "8-7": "", "-7": "", "x-7": "", "1-7/0": "", "1-7/x": "", "sun-7": "",
	} {
		t.Run(days, func(t *testing.T) {
			windows := []v1alpha1.MaintenanceWindow{{Cron: "0 3 * * " + days, Duration: metav1.Duration{Duration: time.Hour}}}
			got := ""
			for day := range 7 { // from Monday on
				at := time.Date(2026, 5, 4+day, 3, 30, 0, 0, time.UTC)
				found, err := lookAtWindows(windows, at)
				if (err != nil) != (want == "") {
					t.Fatalf("error %v", err)
				}
				if err == nil && found.isOpen {
					got += " " + at.Format("Mon")
				}
			}
			if want != "" {
				want = " " + want
			}
			if got != want {
				t.Errorf("open on%s, want%s", got, want)
			}
		})
	}
	if got := withSunday("0 3 * 7 7"); got != "0 3 * 7 0" {
		t.Errorf("another field was changed: %s", got)
	}
	if got := withSunday("0 3 * 7"); got != "0 3 * 7" {
		t.Errorf("what is no cron was changed: %s", got)
	}
}

// TestANodeThatOnlyEndsWithAnotherRolloutIsNoConflict: it was relabelled in a slot.
func TestANodeThatOnlyEndsWithAnotherRolloutIsNoConflict(t *testing.T) {
	rollout := func(name, pool string) *v1alpha1.ImageRollout {
		r := &v1alpha1.ImageRollout{}
		r.Name, r.UID = name, types.UID("uid-of-"+name)
		r.Spec.NodeSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"pool": pool}}
		return r
	}
	ours := rollout("worker", "worker")
	ours.UID = "ours"
	holds := func(r *v1alpha1.ImageRollout) *v1alpha1.ImageRollout {
		r.Status.Slots = []v1alpha1.Slot{{Node: "worker-1", NodeUID: "worker-1-uid"}}
		return r
	}
	deleted := holds(rollout("other", "worker"))
	deleted.DeletionTimestamp = &metav1.Time{Time: start}
	invalid := holds(rollout("other", "a b"))
	for name, test := range map[string]struct {
		other      *v1alpha1.ImageRollout
		claimant   string
		isConflict bool
	}{
		"it was relabelled in a slot":            {holds(rollout("other", "edge")), "other", false},
		"the other one is deleted":               {deleted, "other", false},
		"both select it, and one has it in slot": {holds(rollout("younger", "worker")), "younger", true},
		"both select it":                         {rollout("other", "worker"), "other", true},
		"the other's selector is not valid":      {invalid, "other", true},
		"the other has nothing to do with it":    {rollout("other", "edge"), "", false},
	} {
		t.Run(name, func(t *testing.T) {
			node := newNode(1)
			found := rivalsOf(ours, []v1alpha1.ImageRollout{*ours, *test.other})
			node.Claimant, node.isEnding = found.claimant(&node, ours)
			got := degradedCondition(newScope([]Node{node}), nil)
			if node.Claimant != test.claimant || (got.Reason == "NodeConflict") != test.isConflict {
				t.Errorf("claimant %q; Degraded is %s, %s", node.Claimant, got.Reason, got.Message)
			}
		})
	}
}

// TestSinceWhenAnImageCannotBeStaged is not since an image before it could not.
func TestSinceWhenAnImageCannotBeStaged(t *testing.T) {
	at := func(ago time.Duration) metav1.Time { return metav1.NewTime(start.Add(-ago)) }
	for name, test := range map[string]struct {
		staged, told *metav1.Time
		want         time.Duration
	}{
		"with the image before already": {new(at(48 * time.Hour)), new(at(time.Hour)), time.Hour},
		"since it was told of it":       {new(at(50 * time.Minute)), new(at(time.Hour)), 50 * time.Minute},
		"nobody knows when it was told": {new(at(50 * time.Minute)), nil, 50 * time.Minute},
		"it was told of more later":     {new(at(50 * time.Minute)), new(at(time.Second)), time.Minute},
		"nothing is known of it":        {nil, new(at(time.Hour)), time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			node := newNode(1, notStaged)
			node.Image.Status.LastAttempt = &v1alpha1.Attempt{Image: imageB, Class: v1alpha1.FailureRegistry, Failures: 3, Time: at(time.Minute)}
			if test.staged != nil {
				meta.SetStatusCondition(&node.Image.Status.Conditions, metav1.Condition{Type: v1alpha1.ConditionStaged, Status: metav1.ConditionFalse, LastTransitionTime: *test.staged})
			}
			if test.told != nil {
				node.Image.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: string(fieldOwner), Time: test.told}}
			}
			if got := failingSince(&node); !got.Equal(start.Add(-test.want)) {
				t.Errorf("since %s ago, want %s", start.Sub(got), test.want)
			}
		})
	}
}
