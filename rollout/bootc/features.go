package bootc

import "strings"

// Features are the options that a host's bootc knows. They are looked for in
// its help: distributions back-port options, so that version numbers mislead.
type Features struct {
	// SwitchLocks: `bootc switch` has --download-only.
	SwitchLocks bool
	// UpgradeLocks: `bootc upgrade` has --download-only and --from-downloaded.
	// Without it (before bootc 1.12) an image cannot be staged locked, and any
	// reboot applies it.
	UpgradeLocks bool
	// SoftReboots: `bootc upgrade` has --soft-reboot.
	SoftReboots bool
}

// ParseFeatures reads the help texts of `bootc switch` and `bootc upgrade`.
func ParseFeatures(switchHelp, upgradeHelp string) Features {
	return Features{
		SwitchLocks:  hasOption(switchHelp, "--download-only"),
		UpgradeLocks: hasOption(upgradeHelp, "--download-only") && hasOption(upgradeHelp, "--from-downloaded"),
		SoftReboots:  hasOption(upgradeHelp, "--soft-reboot"),
	}
}

// hasOption looks for an option as a word of its own in a help text.
func hasOption(help, option string) bool {
	for _, word := range strings.FieldsFunc(help, func(r rune) bool { return strings.ContainsRune(" \t\r\n[],=<>`", r) }) {
		if word == option {
			return true
		}
	}
	return false
}
