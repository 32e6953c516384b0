package bootc

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// Path is where bootc is installed: transient units take absolute paths only.
const Path = "/usr/bin/bootc"

// referencePattern is what an image must look like before it may become an
// argument: host[:port]/repository@sha256:<64 hex>, at most 447 bytes (the
// API's limit). It cannot begin with a dash, hold a blank or name a tag.
var referencePattern = regexp.MustCompile(`^[a-zA-Z0-9]([a-zA-Z0-9.-]*[a-zA-Z0-9])?(:[0-9]{1,5})?(/[a-z0-9]+([._-]+[a-z0-9]+)*)+@sha256:[0-9a-f]{64}$`)

const maxReferenceBytes = 447

// Reference is an image by digest that has been validated. The zero value
// names no image.
type Reference struct {
	text string
}

// ParseReference validates host[:port]/repository@sha256:<64 hex>.
func ParseReference(text string) (Reference, error) {
	if len(text) > maxReferenceBytes || !referencePattern.MatchString(text) {
		return Reference{}, fmt.Errorf("image %.80q is not of the form host[:port]/repository@sha256:<64 lower-case hex digits>", text)
	}
	return Reference{text: text}, nil
}

// String is the reference as it was parsed.
func (r Reference) String() string { return r.text }

// IsZero is true for the zero value.
func (r Reference) IsZero() bool { return r.text == "" }

// Digest is sha256:<64 hex>, or empty for the zero value.
func (r Reference) Digest() string {
	_, digest, _ := strings.Cut(r.text, "@")
	return digest
}

// StatusArguments prints the host's deployments as JSON. The command waits for
// the lock that every other bootc command holds: give it a deadline.
func StatusArguments() []string {
	return []string{Path, "status", "--json", "--format-version=1"}
}

// SwitchHelpArguments and UpgradeHelpArguments print the options that
// ParseFeatures looks for.
func SwitchHelpArguments() []string { return []string{Path, "switch", "--help"} }

// UpgradeHelpArguments: see SwitchHelpArguments.
func UpgradeHelpArguments() []string { return []string{Path, "upgrade", "--help"} }

// Stage, Lock and Unlock are the verbs of a Command.
const (
	// Stage downloads an image and stages it.
	Stage Verb = "stage"
	// Lock makes the next reboot drop the staged image in place of applying it.
	Lock Verb = "lock"
	// Unlock makes the next reboot apply the staged image.
	Unlock Verb = "unlock"
	// UnlockSoft is Unlock that also prepares a soft reboot into the image, if
	// that is possible.
	UnlockSoft Verb = "unlock-soft"
	// Rollback makes the next reboot go to the rollback entry.
	Rollback Verb = "rollback"
)

// Verb is what a command does to the host.
type Verb string

// StageArguments stages the image; locked where `bootc switch` can do that.
// Otherwise it is unlocked until LockArguments has run.
func StageArguments(image Reference, features Features) []string {
	arguments := []string{Path, "switch", "--quiet"}
	if features.SwitchLocks {
		arguments = append(arguments, "--download-only")
	}
	return append(arguments, image.String())
}

// LockArguments locks what is staged. bootc reads the image's manifest from
// the registry for it, and fetches nothing when the digest is the staged one.
func LockArguments() []string {
	return []string{Path, "upgrade", "--quiet", "--download-only"}
}

// UnlockArguments unlocks what is staged, without the registry.
func UnlockArguments() []string {
	return []string{Path, "upgrade", "--quiet", "--from-downloaded"}
}

// UnlockSoftArguments unlocks what is staged and prepares a soft reboot into it
// where kernel, kernel arguments and SELinux policy allow one.
func UnlockSoftArguments() []string {
	return append(UnlockArguments(), "--soft-reboot=auto")
}

// RollbackArguments queues the rollback entry for the next boot and drops what
// is staged. Run twice it queues the present system again.
func RollbackArguments() []string { return []string{Path, "rollback"} }

// Describe says what a command made by this package does: its verb and, for
// Stage, the image. The verb is empty for any other command.
func Describe(arguments []string) (Verb, Reference) {
	switch {
	case slices.Equal(arguments, RollbackArguments()):
		return Rollback, Reference{}
	case len(arguments) < 3 || arguments[0] != Path:
		return "", Reference{}
	case arguments[1] == "switch":
		image, err := ParseReference(arguments[len(arguments)-1])
		if err != nil {
			return "", Reference{}
		}
		return Stage, image
	case slices.Equal(arguments, LockArguments()):
		return Lock, Reference{}
	case slices.Equal(arguments, UnlockArguments()):
		return Unlock, Reference{}
	case slices.Equal(arguments, UnlockSoftArguments()):
		return UnlockSoft, Reference{}
	}
	return "", Reference{}
}
