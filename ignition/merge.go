package ignition

import (
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
