package ignition

import (
	"cmp"
	_ "embed"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/coreos/ignition/v2/config/v3_6/types"
)

// sysusersPath is read by systemd-sysusers: it makes users and groups that a node
// does not have, and leaves those it has as they are. systemd has it done when
// /usr is newer than /etc, which an image without times never is; so a unit of
// the layer has it done at every boot.
const (
	sysusersPath = "/usr/lib/sysusers.d/imagemode.conf"
	accountsUnit = "imagemode-accounts.service"
)

//go:embed node/imagemode-accounts.service
var accountsUnitText string

// accountName are the names that systemd-sysusers takes.
var accountName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_-]{0,30}$`)

func (b *layerBuilder) addAccounts() error {
	lines := append(groupLines(b.config.Passwd.Groups), userLines(b.config.Passwd.Users)...)
	if len(lines) == 0 {
		return nil
	}
	if err := b.addHomes(); err != nil {
		return err
	}
	for _, e := range []*entry{
		newFile(sysusersPath, strings.Join(lines, "")),
		newFile(baseUnitDir+"/"+accountsUnit, accountsUnitText),
		newLink(baseUnitDir+"/sysinit.target.wants/"+accountsUnit, "../"+accountsUnit),
	} {
		if err := b.addOwn(e); err != nil {
			return err
		}
	}
	return nil
}

func groupLines(groups []types.PasswdGroup) []string {
	var lines []string
	for _, group := range groups {
		id := "-"
		if group.Gid != nil {
			id = fmt.Sprint(*group.Gid)
		}
		lines = append(lines, fmt.Sprintf("g %s %s\n", group.Name, id))
	}
	slices.Sort(lines)
	return lines
}

// userLines gives the users first, then what groups they are members of.
func userLines(users []types.PasswdUser) []string {
	var made, members []string
	for _, user := range users {
		if isNewAccount(user) {
			made = append(made, userLine(user))
		}
		for _, group := range user.Groups {
			members = append(members, fmt.Sprintf("m %s %s\n", user.Name, group))
		}
	}
	slices.Sort(made)
	slices.Sort(members)
	return append(made, slices.Compact(members)...)
}

func userLine(user types.PasswdUser) string {
	id := "-"
	if user.UID != nil {
		id = fmt.Sprint(*user.UID)
	}
	if group := textOf(user.PrimaryGroup); group != "" {
		id += ":" + group
	}
	gecos, shell := "-", textOf(user.Shell)
	if textOf(user.Gecos) != "" {
		gecos = quoteWord(*user.Gecos)
	}
	if shell == "" && !isTrue(user.System) {
		shell = "/bin/bash" // systemd-sysusers would give a shell that refuses
	}
	home := "-"
	if !isTrue(user.System) || textOf(user.HomeDir) != "" {
		home = quoteWord(homeOf(user))
	}
	return fmt.Sprintf("u %s %s %s %s %s\n", user.Name, id, gecos, home, cmp.Or(shell, "-"))
}

func homeOf(user types.PasswdUser) string { return cmp.Or(textOf(user.HomeDir), "/home/"+user.Name) }

// addHomes has homes made on the node, where they are below /var.
func (b *layerBuilder) addHomes() error {
	for _, user := range b.config.Passwd.Users {
		if !isNewAccount(user) || isTrue(user.System) || isTrue(user.NoCreateHome) {
			continue
		}
		home, err := resolveAll(b.base, path.Clean(homeOf(user)))
		if err != nil {
			return err
		}
		if place, _ := placeOf(home); place == inVar {
			b.inVar.home(home, user.Name, cmp.Or(textOf(user.PrimaryGroup), user.Name))
		}
	}
	return nil
}

// isAccount reports whether a user entry asks for more than a password or
// keys: an entry with a name alone, as is common for core, changes nothing.
func isAccount(user types.PasswdUser) bool {
	return isNewAccount(user) || len(user.Groups) > 0 || isFalse(user.ShouldExist)
}

// isNewAccount reports whether an entry describes a user, and does not only
// make one that is there already a member of groups.
func isNewAccount(user types.PasswdUser) bool {
	return user.UID != nil || user.Gecos != nil || user.HomeDir != nil || user.Shell != nil || user.PrimaryGroup != nil ||
		user.System != nil || user.NoCreateHome != nil || user.NoLogInit != nil || user.NoUserGroup != nil
}

func isFalse(value *bool) bool { return value != nil && !*value }

func textOf(value *string) string {
	if value == nil {
		return ""
	}
	return *value
}

func refusedPasswd(config types.Config) []Problem {
	var problems []Problem
	for _, user := range config.Passwd.Users {
		where := "passwd.users[" + user.Name + "]"
		for _, reason := range refusedUser(user) {
			problems = append(problems, Problem{where, reason})
		}
	}
	for _, group := range config.Passwd.Groups {
		where := "passwd.groups[" + group.Name + "]"
		for _, reason := range refusedGroup(group) {
			problems = append(problems, Problem{where, reason})
		}
	}
	return problems
}

const (
	refusedHash  = "passwordHash would be readable by everyone who may pull the image, and /etc/shadow is the host's own"
	refusedGone  = "shouldExist: false: an image cannot remove an account from a node"
	refusedName  = "the name is not one that systemd-sysusers takes: a letter or _, then letters, digits, _ and -, 31 in all"
	refusedField = "%s holds a colon or a line break, or is no absolute path"
)

func refusedUser(user types.PasswdUser) []string {
	var reasons []string
	for _, rule := range []struct {
		broken bool
		reason string
	}{
		{!accountName.MatchString(user.Name), refusedName},
		{textOf(user.PasswordHash) != "", refusedHash + "; use SSH keys"},
		{isFalse(user.ShouldExist), refusedGone},
		{isNewAccount(user) && user.UID == nil && !isTrue(user.System), "uid is missing: every node would choose another; set it, or system: true"},
		{isTrue(user.NoUserGroup) && textOf(user.PrimaryGroup) == "", "noUserGroup needs primaryGroup: systemd-sysusers makes a group of the user's name otherwise"},
		{textOf(user.PrimaryGroup) != "" && !accountName.MatchString(*user.PrimaryGroup), "primaryGroup is not the name of a group"},
		{hasBreak(textOf(user.Gecos)), fmt.Sprintf(refusedField, "gecos")},
		{!isAccountPath(user.HomeDir), fmt.Sprintf(refusedField, "homeDir")},
		{!isAccountPath(user.Shell) || strings.ContainsAny(textOf(user.Shell), " \t"), fmt.Sprintf(refusedField, "shell")},
		{slices.ContainsFunc(user.Groups, func(g types.Group) bool { return !accountName.MatchString(string(g)) }), "groups has what is not the name of a group"},
	} {
		if rule.broken {
			reasons = append(reasons, rule.reason)
		}
	}
	return reasons
}

func refusedGroup(group types.PasswdGroup) []string {
	var reasons []string
	for _, rule := range []struct {
		broken bool
		reason string
	}{
		{!accountName.MatchString(group.Name), refusedName},
		{textOf(group.PasswordHash) != "", refusedHash},
		{isFalse(group.ShouldExist), refusedGone},
		{group.Gid == nil && !isTrue(group.System), "gid is missing: every node would choose another; set it, or system: true"},
	} {
		if rule.broken {
			reasons = append(reasons, rule.reason)
		}
	}
	return reasons
}

func hasBreak(text string) bool { return !isText(text) || strings.ContainsAny(text, ":\r") }

func isAccountPath(value *string) bool {
	return textOf(value) == "" || path.IsAbs(*value) && !hasBreak(*value)
}
