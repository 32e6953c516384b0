package streams

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/version"
)

// HistoryEntry is one entry of ClusterVersion.status.history.
type HistoryEntry struct {
	Version string
	// IsCompleted: the update to it was finished.
	IsCompleted bool
}

// InstallVersion returns the version that a cluster was installed with: of the
// history, which has the newest first, the earliest entry that was completed;
// desired, ClusterVersion.status.desired.version, where none was.
func InstallVersion(history []HistoryEntry, desired string) string {
	installed := desired
	for _, entry := range history {
		if entry.IsCompleted && entry.Version != "" {
			installed = entry.Version
		}
	}
	return installed
}

// versionPattern takes 4.19.3, 5.0.0-0.nightly-2026-01-01 and the like.
var versionPattern = regexp.MustCompile(`^v?([0-9]{1,4})\.[0-9]+`)

// majorOf returns the first number of a version. A pre-release counts as the
// release it leads to: 5.0.0-0.nightly is of 5.
func majorOf(text string) (int, error) {
	found := versionPattern.FindStringSubmatch(text)
	if found == nil {
		return 0, fmt.Errorf("version %q is not of the form major.minor…, such as 5.0.1", text)
	}
	return strconv.Atoi(found[1])
}

// BuiltinDefault returns the stream that a cluster gets which has chosen none,
// by the version it was installed with: rhel-9 for 4.x, rhel-10 for later ones,
// centos-10 for OKD. Empty: the version says nothing.
func BuiltinDefault(installed string) string {
	major, err := majorOf(installed)
	switch {
	case err != nil:
		return ""
	case strings.Contains(installed, "okd"):
		return "centos-10"
	case major <= 4:
		return "rhel-9"
	default:
		return "rhel-10"
	}
}

// NextMinor returns the greatest of the offered versions that has another minor
// or major version than current and is greater; empty: there is none. Versions
// that cannot be read are passed over.
func NextMinor(current string, offered []string) string {
	now, err := version.ParseGeneric(current)
	if err != nil {
		return ""
	}
	var next *version.Version
	name := ""
	for _, each := range offered {
		candidate, err := version.ParseGeneric(each)
		isOfMinor := err == nil && candidate.Major() == now.Major() && candidate.Minor() == now.Minor()
		if err != nil || isOfMinor || candidate.LessThan(now) || next != nil && candidate.LessThan(next) {
			continue
		}
		next, name = candidate, each
	}
	return name
}
