package ignition

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/coreos/ignition/v2/config/v3_6/types"
)

// ownerName are the names of users and groups that may exist on a node.
var ownerName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_.-]{0,254}$`)

// owner of a file. A name is set where only the node knows the number.
type owner struct {
	uid, gid    int
	user, group string
}

// accounts knows the numbers of users and groups: those that the config itself
// gives, and those of the base image.
type accounts struct {
	base          Base
	users, groups map[string]int
	// of the base, once they have been asked for.
	baseUsers, baseGroups map[string]int
}

func newAccounts(config types.Config, base Base) *accounts {
	known := &accounts{base: base, users: map[string]int{"root": 0}, groups: map[string]int{"root": 0}}
	for _, group := range config.Passwd.Groups {
		if group.Gid != nil {
			known.groups[group.Name] = *group.Gid
		}
	}
	for _, user := range config.Passwd.Users {
		if user.UID == nil {
			continue
		}
		known.users[user.Name] = *user.UID
		if _, own := known.groups[user.Name]; !own && user.PrimaryGroup == nil {
			known.groups[user.Name] = *user.UID // systemd-sysusers makes it
		}
	}
	return known
}

// ownerOf gives the owner of a node, silent where the config says nothing. What
// is put in place on the node may be owned by users that only the node has.
func (a *accounts) ownerOf(node types.Node, silent owner, where place) (owner, error) {
	found := silent
	var err error
	if found.uid, found.user, err = a.user(node, silent, where); err != nil {
		return owner{}, err
	}
	found.gid, found.group, err = a.group(node, silent, where)
	return found, err
}

func (a *accounts) user(node types.Node, silent owner, where place) (int, string, error) {
	name := node.User.Name
	switch {
	case node.User.ID != nil:
		return *node.User.ID, "", nil
	case name == nil || *name == "":
		return silent.uid, silent.user, nil
	}
	if id, known := a.users[*name]; known {
		return id, "", nil
	}
	if where == inVar {
		return 0, *name, nil
	}
	if a.baseUsers == nil {
		var err error
		if a.baseUsers, err = readAccounts(a.base, "/etc/passwd", "/usr/lib/passwd"); err != nil {
			return 0, "", fmt.Errorf("%s: user.name %q: %w", node.Path, *name, err)
		}
	}
	if id, known := a.baseUsers[*name]; known {
		return id, "", nil
	}
	return 0, "", refuse(node.Path, fmt.Errorf("user.name: the base image has no user %q; use user.id, or declare it in passwd.users with its uid", *name))
}

func (a *accounts) group(node types.Node, silent owner, where place) (int, string, error) {
	name := node.Group.Name
	switch {
	case node.Group.ID != nil:
		return *node.Group.ID, "", nil
	case name == nil || *name == "":
		return silent.gid, silent.group, nil
	}
	if id, known := a.groups[*name]; known {
		return id, "", nil
	}
	if where == inVar {
		return 0, *name, nil
	}
	if a.baseGroups == nil {
		var err error
		if a.baseGroups, err = readAccounts(a.base, "/etc/group", "/usr/lib/group"); err != nil {
			return 0, "", fmt.Errorf("%s: group.name %q: %w", node.Path, *name, err)
		}
	}
	if id, known := a.baseGroups[*name]; known {
		return id, "", nil
	}
	return 0, "", refuse(node.Path, fmt.Errorf("group.name: the base image has no group %q; use group.id, or declare it in passwd.groups with its gid", *name))
}

// readAccounts reads name and number from files in the format of passwd(5) or
// group(5). A file that is not there is skipped, and so are lines that are not
// of the format: they make no account either. The first file wins.
func readAccounts(base Base, files ...string) (map[string]int, error) {
	known := map[string]int{}
	for _, file := range files {
		content, err := readIfThere(base, file)
		if err != nil {
			return nil, err
		}
		for line := range strings.Lines(string(content)) {
			fields := strings.SplitN(strings.TrimRight(line, "\n"), ":", 4)
			if len(fields) < 3 {
				continue
			}
			id, err := strconv.Atoi(fields[2])
			if _, twice := known[fields[0]]; err == nil && !twice {
				known[fields[0]] = id
			}
		}
	}
	return known, nil
}

// readIfThere reads a regular file of the base, links followed; nil: there is
// none.
func readIfThere(base Base, name string) ([]byte, error) {
	resolved, err := resolveAll(base, name)
	if err != nil {
		return nil, err
	}
	found, err := base.Find(resolved)
	if err != nil || found == nil {
		return nil, err
	}
	if !found.isFile() {
		return nil, errors.New("in the base image " + resolved + " is not a file")
	}
	return base.Read(resolved)
}
