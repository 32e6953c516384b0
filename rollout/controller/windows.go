package controller

import (
	"fmt"
	"strconv"
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
	schedule, err := cronFields.Parse(withSunday(window.Cron))
	if err != nil {
		return nil, nil, fmt.Errorf("cron: %q: %w", window.Cron, err)
	}
	return schedule, zone, nil
}

// withSunday writes the day of week 7 as 0: the parser knows Sunday as 0 only, most
// crons as both. What is no number is left to the parser.
func withSunday(expression string) string {
	fields := strings.Fields(expression)
	if len(fields) != 5 {
		return expression
	}
	parts := strings.Split(fields[4], ",")
	for i, part := range parts {
		span, step, hasStep := strings.Cut(part, "/")
		from, to, isRange := strings.Cut(span, "-")
		switch {
		case span == "7":
			parts[i] = "0" // 7/2 is no more than the 7th day
		case isRange && to == "7":
			parts[i] = upToSunday(part, from, step, hasStep)
		}
	}
	fields[4] = strings.Join(parts, ",")
	return strings.Join(fields, " ")
}

// upToSunday lists the days of a range that ends with 7.
func upToSunday(part, from, step string, hasStep bool) string {
	first, err := strconv.Atoi(from)
	width := 1
	if hasStep && err == nil {
		width, err = strconv.Atoi(step)
	}
	if err != nil || first < 0 || first > 7 || width < 1 {
		return part
	}
	var days []string
	for day := first; day <= 7; day += width {
		days = append(days, strconv.Itoa(day%7))
	}
	return strings.Join(days, ",")
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
