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
		at          int
		from, to    string
		want        int // tenths
		isSameImage bool
	}
	for name, looks := range map[string][]look{
		"the first config is taken at once":      {{0, "", "a", 0, false}},
		"the present one needs nothing":          {{0, "a", "a", 0, false}},
		"another one waits":                      {{0, "a", "b", 20, false}, {5, "a", "b", 15, false}, {20, "a", "b", 0, false}},
		"on the same image it waits for less":    {{0, "a", "b", 6, true}, {3, "a", "b", 3, true}, {7, "a", "b", 0, true}},
		"another image after it waits its time":  {{0, "a", "b", 6, true}, {5, "a", "c", 20, false}, {15, "a", "c", 10, false}},
		"one that changes again begins anew":     {{0, "a", "b", 20, false}, {15, "a", "c", 20, false}, {20, "a", "c", 15, false}, {35, "a", "c", 0, false}},
		"a change that is taken back is nothing": {{0, "a", "b", 20, false}, {5, "a", "a", 0, false}, {30, "a", "b", 20, false}},
		"changes without end put it off for five times the wait": {
			{0, "a", "b", 20, false}, {19, "a", "c", 20, false}, {38, "a", "d", 20, false}, {57, "a", "e", 20, false}, {76, "a", "f", 20, false}, {95, "a", "g", 5, false}, {100, "a", "h", 0, false},
		},
		"what was taken late does not count for the next": {{0, "a", "b", 20, false}, {300, "a", "b", 0, false}, {301, "b", "b", 0, false}, {302, "b", "c", 20, false}},
	} {
		t.Run(name, func(t *testing.T) {
			start := time.Unix(1000, 0)
			clock := clocktesting.NewFakePassiveClock(start)
			settler := &settler{wait: 2 * time.Second, clock: clock}
			var got []look
			for _, each := range looks {
				clock.SetTime(start.Add(time.Duration(each.at) * 100 * time.Millisecond))
				settler.remaining("other", "x", "y", false)
				each.want = int(settler.remaining("worker", each.from, each.to, each.isSameImage) / (100 * time.Millisecond))
				got = append(got, each)
			}
			if diff := cmp.Diff(looks, got, cmp.AllowUnexported(look{})); diff != "" {
				t.Error(diff)
			}
		})
	}
	if wait := (&settler{clock: clocktesting.NewFakePassiveClock(time.Now())}).remaining("worker", "a", "b", false); wait != 0 {
		t.Errorf("without a wait: %v", wait)
	}
}
