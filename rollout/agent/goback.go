package agent

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/imagemode/imagemode/rollout/bootc"
)

// contactPath says when, by /proc/uptime, the agent last reached the API server
// from an image that is not confirmed. It is in memory: each boot begins anew.
const contactPath = "/run/imagemode/contact"

// contactLimit is how long ago that may be for the node to count as well: the
// controller may be away for a while, and healthy nodes need not go back for that.
const contactLimit = 10 * time.Minute

// wayBack is what decides whether a node goes back to the image before.
type wayBack struct {
	intent *Intent
	bootID string
	host   *bootc.Host
}

func wayBackOf(in Inputs) wayBack {
	return wayBack{intent: in.Intent, bootID: in.BootID, host: in.Host}
}

// stayRule is one line of the specification: a non-empty reason keeps the node
// where it is.
type stayRule struct {
	name string
	why  func(wayBack) string
}

// stayRules, in order. Every one may rely on those above it having passed.
var stayRules = []stayRule{
	{"nothing waits for confirmation", func(w wayBack) string {
		if w.intent == nil || !w.intent.Rebooting {
			return "no update waits for confirmation"
		}
		return ""
	}},
	// The reboot into the image is still to come.
	{"not rebooted yet", func(w wayBack) string {
		if w.intent.BootID == w.bootID {
			return "the node has not rebooted since it was told to"
		}
		return ""
	}},
	{"not on the image", func(w wayBack) string {
		if image, err := bootc.ParseReference(w.intent.Image); err != nil || w.host == nil || !w.host.Runs(image) {
			return "the node does not run the image"
		}
		return ""
	}},
	// Two images that do not work would otherwise be booted in turn, for ever.
	{"went back before", func(w wayBack) string {
		if w.intent.WentBack != "" && w.intent.WentBack != w.bootID {
			return "it went back once before"
		}
		return ""
	}},
	// bootc rollback a second time would take back the first one.
	{"somebody else did it", func(w wayBack) string {
		if w.host.Status.RollbackQueued && w.intent.WentBack == "" {
			return "a rollback is queued already, by somebody else"
		}
		return ""
	}},
	// The rollback entry may be an older image, or none.
	{"no way back", func(w wayBack) string {
		rollback := w.host.Status.Rollback
		isPrevious := rollback != nil && rollback.Image != nil && rollback.Image.ImageDigest == w.intent.Previous
		if !isPrevious {
			return "bootc's rollback entry is not the image that the node had, " + w.intent.Previous
		}
		return ""
	}},
}

// whyStay says what keeps the node on the image it runs; empty when it can go
// back. It is pure.
func whyStay(w wayBack) string {
	for _, rule := range stayRules {
		if why := rule.why(w); why != "" {
			return why
		}
	}
	return ""
}

// whyNoWayBack is the problem of a node that runs an image which nobody has
// confirmed, and could not go back by itself.
func whyNoWayBack(in Inputs) string {
	if !isUnconfirmed(in) || in.Intent.RollbackAfterSeconds == 0 || in.Intent.WentBack != "" {
		return ""
	}
	return whyStay(wayBackOf(in))
}

// goBack makes the next step of going back: record it, queue the image before,
// reboot. Every step can be repeated, by whoever comes next. It returns whether
// the reboot was asked for.
func goBack(ctx context.Context, host Host, intent Intent, bootID string, now time.Time) (isAsked bool, err error) {
	if intent.WentBack == "" {
		intent.WentBack, intent.Time = bootID, now.UTC().Truncate(time.Second)
		if err := writeIntent(host, intent); err != nil {
			return false, err
		}
	}
	command, err := host.Command(ctx, unitRollback)
	switch {
	case err != nil || command.State == CommandRunning:
		return false, err
	case command.State == CommandNone:
		return false, host.Start(ctx, unitRollback, bootc.RollbackArguments(), shortTimeout)
	case !command.Output.Succeeded():
		failure := bootc.Classify(command.Output.Stderr)
		if err := host.Forget(ctx, unitRollback); err != nil {
			return false, err
		}
		return false, fmt.Errorf("bootc rollback failed and is tried again: %s", failure.Message)
	}
	return true, host.Reboot(ctx, false)
}

// uptime is how long the host runs, by its own clock, which nobody sets.
func uptime(host Host) (time.Duration, error) {
	content, err := host.ReadFile("/proc/uptime")
	if err != nil {
		return 0, err
	}
	first, _, _ := strings.Cut(string(content), " ")
	seconds, err := strconv.ParseFloat(strings.TrimSpace(first), 64)
	if err != nil {
		return 0, fmt.Errorf("/proc/uptime: %w", err)
	}
	return time.Duration(seconds * float64(time.Second)), nil
}

// writeContact notes that the API server was reached.
func writeContact(host Host) error {
	now, err := uptime(host)
	if err != nil {
		return err
	}
	return host.WriteFile(contactPath, []byte(strconv.Itoa(int(now.Seconds()))+"\n"), 0o600)
}

// hasContact says whether that was a short while ago.
func hasContact(host Host) bool {
	content, err := host.ReadFile(contactPath)
	if err != nil {
		return false
	}
	seconds, err := strconv.Atoi(strings.TrimSpace(string(content)))
	now, uptimeErr := uptime(host)
	return err == nil && uptimeErr == nil && now-time.Duration(seconds)*time.Second < contactLimit
}
