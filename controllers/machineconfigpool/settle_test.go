package machineconfigpool

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	clocktesting "k8s.io/utils/clock/testing"
)

func TestAConfigIsTakenOnceItStaysTheSame(t *testing.T) {
	// A look at a pool, so many tenths of a second after the first.
	type look struct {
		at       int
		from, to string
		want     int // tenths
	}
	for name, looks := range map[string][]look{
		"the first config is taken at once":      {{0, "", "a", 0}},
		"the present one needs nothing":          {{0, "a", "a", 0}},
		"another one waits":                      {{0, "a", "b", 20}, {5, "a", "b", 15}, {20, "a", "b", 0}},
		"one that changes again begins anew":     {{0, "a", "b", 20}, {15, "a", "c", 20}, {20, "a", "c", 15}, {35, "a", "c", 0}},
		"a change that is taken back is nothing": {{0, "a", "b", 20}, {5, "a", "a", 0}, {30, "a", "b", 20}},
		"changes without end put it off for five times the wait": {
			{0, "a", "b", 20}, {19, "a", "c", 20}, {38, "a", "d", 20}, {57, "a", "e", 20}, {76, "a", "f", 20}, {95, "a", "g", 5}, {100, "a", "h", 0},
		},
		"what was taken late does not count for the next": {{0, "a", "b", 20}, {300, "a", "b", 0}, {301, "b", "b", 0}, {302, "b", "c", 20}},
	} {
		t.Run(name, func(t *testing.T) {
			start := time.Unix(1000, 0)
			clock := clocktesting.NewFakePassiveClock(start)
			settler := &settler{wait: 2 * time.Second, clock: clock}
			var got []look
			for _, each := range looks {
				clock.SetTime(start.Add(time.Duration(each.at) * 100 * time.Millisecond))
				settler.remaining("other", "x", "y")
				each.want = int(settler.remaining("worker", each.from, each.to) / (100 * time.Millisecond))
				got = append(got, each)
			}
			if diff := cmp.Diff(looks, got, cmp.AllowUnexported(look{})); diff != "" {
				t.Error(diff)
			}
		})
	}
	if wait := (&settler{clock: clocktesting.NewFakePassiveClock(time.Now())}).remaining("worker", "a", "b"); wait != 0 {
		t.Errorf("without a wait: %v", wait)
	}
}
