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
type accounts struct{ users, groups *register }

func newAccounts(config types.Config, base Base) *accounts {
	users := &register{kind: "user", base: base, files: []string{"/etc/passwd", "/usr/lib/passwd"}, own: map[string]int{"root": 0}}
	groups := &register{kind: "group", base: base, files: []string{"/etc/group", "/usr/lib/group"}, own: map[string]int{"root": 0}}
	for _, group := range config.Passwd.Groups {
		if group.Gid != nil {
			groups.own[group.Name] = *group.Gid
		}
	}
	for _, user := range config.Passwd.Users {
		if user.UID == nil {
			continue
		}
		users.own[user.Name] = *user.UID
		if _, own := groups.own[user.Name]; !own && user.PrimaryGroup == nil {
			groups.own[user.Name] = *user.UID // systemd-sysusers makes it
		}
	}
	return &accounts{users, groups}
}

// ownerOf gives the owner of a node, silent where the config says nothing. What
// is put in place on the node may be owned by users that only the node has.
func (a *accounts) ownerOf(node types.Node, silent owner, where place) (owner, error) {
	found := silent
	var err error
	if id, name := node.User.ID, textOf(node.User.Name); id != nil {
		found.uid = *id
	} else if name != "" {
		if found.uid, found.user, err = a.users.number(node.Path, name, where); err != nil {
			return owner{}, err
		}
	}
	if id, name := node.Group.ID, textOf(node.Group.Name); id != nil {
		found.gid = *id
	} else if name != "" {
		found.gid, found.group, err = a.groups.number(node.Path, name, where)
	}
	return found, err
}

// register knows the numbers of users, or of groups.
type register struct {
	// kind is user or group.
	kind string
	// own are those of the config, inBase those of the files of the base, once
	// they have been asked for.
	own, inBase map[string]int
	base        Base
	files       []string
}

// number gives the number of a name, or the name itself where only the node
// knows it. path is that of the file that it is for.
func (r *register) number(path, name string, where place) (id int, onNode string, err error) {
	if id, known := r.own[name]; known {
		return id, "", nil
	}
	if where == inVar {
		return 0, name, nil
	}
	if r.inBase == nil {
		if r.inBase, err = readAccounts(r.base, r.files...); err != nil {
			return 0, "", fmt.Errorf("%s: %s.name %q: %w", path, r.kind, name, err)
		}
	}
	if id, known := r.inBase[name]; known {
		return id, "", nil
	}
	return 0, "", refuse(path, fmt.Errorf("%s.name: the base image has no %s %q; use %s.id, or declare it in passwd.%ss with its number",
		r.kind, r.kind, name, r.kind, r.kind))
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
