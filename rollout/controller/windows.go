package controller

import (
	"fmt"
	"strings"
	"time"

	"github.com/robfig/cron/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/imagemode/imagemode/api/v1alpha1"
)

// cronFields is the form with five fields, and nothing else: no seconds, no
// descriptors such as @every, whose beginning would be undefined.
var cronFields = cron.NewParser(cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow)

// openings is when the windows open, in the controller's time.
type openings struct {
	// isOpen: one is open now, or there are none at all.
	isOpen bool
	// next is when the next one opens; zero when none ever will.
	next time.Time
}

// lookAtWindows says whether a maintenance window is open. Nodes' clocks have no
// part in it.
func lookAtWindows(windows []v1alpha1.MaintenanceWindow, now time.Time) (openings, error) {
	answer := openings{isOpen: len(windows) == 0}
	for i, window := range windows {
		schedule, zone, err := parseWindow(window)
		if err != nil {
			return openings{}, fmt.Errorf("spec.windows[%d].%w", i, err)
		}
		local := now.In(zone)
		// The window is open if it opened within its duration.
		if opened := schedule.Next(local.Add(-window.Duration.Duration)); !opened.IsZero() && !opened.After(local) {
			answer.isOpen = true
		}
		if next := schedule.Next(local); !next.IsZero() && (answer.next.IsZero() || next.Before(answer.next)) {
			answer.next = next
		}
	}
	return answer, nil
}

func parseWindow(window v1alpha1.MaintenanceWindow) (cron.Schedule, *time.Location, error) {
	zone, err := time.LoadLocation(window.TimeZone) // "" is UTC
	if err != nil || window.TimeZone == "Local" {
		return nil, nil, fmt.Errorf("timeZone: %q is no IANA time zone", window.TimeZone)
	}
	if strings.Contains(window.Cron, "TZ=") {
		return nil, nil, fmt.Errorf("cron: %q names a time zone; that belongs into timeZone", window.Cron)
	}
	schedule, err := cronFields.Parse(window.Cron)
	if err != nil {
		return nil, nil, fmt.Errorf("cron: %q: %w", window.Cron, err)
	}
	return schedule, zone, nil
}

// holdOutsideWindows gates new slots only: a node on its way finishes.
func holdOutsideWindows(s *Scope) Hold {
	windows, err := lookAtWindows(s.Rollout.Spec.Windows, s.Now)
	if err != nil || windows.isOpen {
		return Hold{} // holdForMistakes has told the error
	}
	return Hold{"WindowClosed", "the next maintenance window opens at " + windows.next.UTC().Format(time.RFC3339)}
}

// nextWindow is status.nextWindow: nil while a window is open.
func nextWindow(s *Scope) *metav1.Time {
	windows, err := lookAtWindows(s.Rollout.Spec.Windows, s.Now)
	if err != nil || windows.isOpen || windows.next.IsZero() {
		return nil
	}
	next := metav1.NewTime(windows.next.UTC())
	return &next
}
