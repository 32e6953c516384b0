package controller

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/tools/events"

	"github.com/imagemode/imagemode/api/v1alpha1"
)

// TestALongPauseIsSaid counts the days, by the condition and one event a day.
func TestALongPauseIsSaid(t *testing.T) {
	c := newCluster(t, 2)
	recorder := events.NewFakeRecorder(1000)
	c.controller.Recorder = recorder
	c.changeRollout(func(s *v1alpha1.ImageRolloutSpec) { s.Image, s.Paused = imageB, true })
	c.rounds(3)
	for day, want := range []string{"", "", "", "", "", "", "", "for 7 days", "for 8 days"} {
		if day > 0 {
			c.now = c.now.Add(24 * time.Hour)
		}
		c.rounds(2)
		paused := meta.FindStatusCondition(c.rollout().Status.Conditions, v1alpha1.ConditionPaused)
		if (want == "") != (paused.Reason == "Paused") || !strings.Contains(paused.Message, want) {
			t.Errorf("day %d: %s, %s; want %q", day, paused.Reason, paused.Message, want)
		}
	}
	var told []string
	for len(recorder.Events) > 0 {
		if event := <-recorder.Events; strings.Contains(event, reasonPausedForLong) {
			told = append(told, event)
		}
	}
	if len(told) != 2 || !strings.HasPrefix(told[0], "Warning") {
		t.Errorf("events %s, want one a day", fmt.Sprint(told))
	}
	// Released and paused again, the days begin anew.
	for _, paused := range []bool{false, true} {
		c.changeRollout(func(s *v1alpha1.ImageRolloutSpec) { s.Paused = paused })
		c.rounds(2)
	}
	if paused := meta.FindStatusCondition(c.rollout().Status.Conditions, v1alpha1.ConditionPaused); paused.Reason != "Paused" {
		t.Errorf("after another pause: %s, %s", paused.Reason, paused.Message)
	}
}

func TestWhenTheDaysOfAPauseChange(t *testing.T) {
	since := func(d time.Duration) func(*Scope) {
		return func(s *Scope) {
			s.Rollout.Status.Conditions = statusOf(s, nil, Hold{}).Conditions
			s.Now = s.Now.Add(d)
			for i := range s.Rollout.Status.Conditions {
				s.Rollout.Status.Conditions[i].LastTransitionTime.Time = start
			}
		}
	}
	for name, test := range map[string]struct {
		changes []func(*Scope)
		want    time.Duration
	}{
		"never without a pause":        {nil, 0},
		"after a week":                 {[]func(*Scope){paused, since(time.Hour)}, longPause - time.Hour},
		"then every day":               {[]func(*Scope){paused, since(longPause + time.Hour)}, 23 * time.Hour},
		"at the end of a day, anew":    {[]func(*Scope){paused, since(longPause)}, 24 * time.Hour},
		"a pause that nobody has seen": {[]func(*Scope){paused}, longPause},
	} {
		t.Run(name, func(t *testing.T) {
			if got := nextPausedDay(newScope([]Node{newNode(1)}, test.changes...)); got != test.want {
				t.Errorf("looked at after %s, want %s", got, test.want)
			}
		})
	}
}
