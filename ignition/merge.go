package ignition

import (
	"fmt"
	"strings"

	newest "github.com/coreos/ignition/v2/config/v3_6"
	"github.com/coreos/ignition/v2/config/v3_6/types"
)

// Merge lays child over parent by Ignition's own rules: entries of a list with
// the same key (files, directories and links by path, units by name, users by
// name) are merged field by field with the child's winning, other entries are
// appended, and a path that the child gives another type loses its old one.
//
// Merge has no state and changes neither argument. Two valid configs can merge
// into one that is not (a file in one, a unit of the same path in the other):
// Parse the result again before it is published.
func Merge(parent, child types.Config) types.Config {
	return newest.Merge(parent, child)
}

// Brings reports whether a config is one of those that bring a problem to the
// config that they were merged into.
func Brings(config types.Config, problem Problem) bool {
	text := problem.String()
	for _, name := range nodePaths(config) {
		if mentions(text, name) {
			return true
		}
	}
	for _, u := range config.Systemd.Units {
		if mentions(text, u.Name) {
			return true
		}
	}
	for _, argument := range config.KernelArguments.ShouldExist {
		if BringsArgument(string(argument), problem) {
			return true
		}
	}
	return false
}

// BringsArgument is Brings for a kernel argument of a MachineConfig itself.
func BringsArgument(argument string, problem Problem) bool {
	return strings.Contains(problem.Reason, fmt.Sprintf("kernel argument %q", argument))
}

// mentions finds a name in a text that is not only a part of a longer one.
func mentions(text, name string) bool {
	for rest := text; name != ""; {
		at := strings.Index(rest, name)
		if at < 0 {
			break
		}
		before, after := rest[:at], rest[at+len(name):]
		if (before == "" || !isNameByte(before[len(before)-1])) && (after == "" || !isNameByte(after[0]) || after[0] == '.' && (len(after) == 1 || !isNameByte(after[1]))) {
			return true
		}
		rest = after
	}
	return false
}

func isNameByte(c byte) bool {
	return c == '/' || c == '.' || c == '-' || c == '_' || c == '@' || c >= '0' && c <= '9' || c >= 'A' && c <= 'Z' || c >= 'a' && c <= 'z' || c >= 0x80
}
