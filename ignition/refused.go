package ignition

import (
	"strings"
	"unicode/utf8"

	"github.com/coreos/ignition/v2/config/v3_6/types"
)

// checks in the order in which their problems are listed.
var checks = []func(types.Config) []Problem{
	refusedStorage,
	refusedFiles,
	refusedDirectories,
	refusedLinks,
	refusedUnits,
	refusedPasswd,
	refusedKernelArguments,
	refusedIgnition,
}

// Refused names everything in a config that no image can hold, or that is not
// delivered yet. It needs no base image, so that a config is refused when it is
// rendered and not when it is built. Paths are looked at as the links of
// DefaultBase lead them.
func Refused(config types.Config) []Problem {
	var problems []Problem
	for _, check := range checks {
		problems = append(problems, check(config)...)
	}
	return problems
}

// refusedStorage: partitions are made by an installer, before there is an image.
func refusedStorage(config types.Config) []Problem {
	const reason = "an image cannot change the disks of an installed machine; set them up at installation"
	fields := []struct {
		path    string
		present bool
	}{
		{"storage.disks", len(config.Storage.Disks) > 0},
		{"storage.raid", len(config.Storage.Raid) > 0},
		{"storage.luks", len(config.Storage.Luks) > 0},
		{"storage.filesystems", len(config.Storage.Filesystems) > 0},
	}
	var problems []Problem
	for _, field := range fields {
		if field.present {
			problems = append(problems, Problem{field.path, reason})
		}
	}
	return problems
}

func refusedFiles(config types.Config) []Problem {
	var problems []Problem
	for _, file := range config.Storage.Files {
		problems = append(problems, refusedNode(file.Node)...)
		switch {
		case len(file.Append) > 0:
			problems = append(problems, problemf(file.Path, "append is not supported yet; write the whole file with contents"))
		case file.Contents.Source == nil:
			problems = append(problems, problemf(file.Path,
				"contents.source is missing, which keeps the content of a file that exists; write data:, for an empty file"))
		default:
			problems = append(problems, refusedSource(file.Path, file.Contents)...)
		}
	}
	return problems
}

// refusedSource refuses content that is not in the config itself.
func refusedSource(path string, contents types.Resource) []Problem {
	if source := *contents.Source; source != "" && !strings.HasPrefix(source, "data:") {
		scheme, _, _ := strings.Cut(source, ":")
		return []Problem{problemf(path, "contents.source is fetched by %s; only data: URLs are the same in every build", scheme)}
	}
	if compression := contents.Compression; compression != nil && *compression != "" && *compression != "gzip" {
		return []Problem{problemf(path, "contents.compression %q is not known, gzip is", *compression)}
	}
	return nil
}

func refusedDirectories(config types.Config) []Problem {
	var problems []Problem
	for _, directory := range config.Storage.Directories {
		problems = append(problems, refusedNode(directory.Node)...)
	}
	return problems
}

func refusedLinks(config types.Config) []Problem {
	var problems []Problem
	for _, link := range config.Storage.Links {
		problems = append(problems, refusedNode(link.Node)...)
		switch {
		case link.Hard != nil && *link.Hard:
			problems = append(problems, problemf(link.Path, "hard links are not supported yet; use a symbolic link"))
		case link.Target == nil || *link.Target == "":
			problems = append(problems, problemf(link.Path, "target is missing"))
		case !isText(*link.Target):
			problems = append(problems, problemf(link.Path, "target %q is not UTF-8 text", *link.Target))
		}
	}
	return problems
}

// refusedNode checks what files, directories and links have in common.
func refusedNode(node types.Node) []Problem {
	if !isText(node.Path) {
		return []Problem{problemf(node.Path, "the path %q is not UTF-8 text", node.Path)}
	}
	var problems []Problem
	if place, reason := placeOf(DefaultBase().resolve(node.Path)); place == nowhere {
		problems = append(problems, Problem{node.Path, reason})
	}
	if name := node.User.Name; name != nil && *name != "" && *name != "root" {
		problems = append(problems, problemf(node.Path, "user.name %q: owners by name are not supported yet; use user.id", *name))
	}
	if name := node.Group.Name; name != nil && *name != "" && *name != "root" {
		problems = append(problems, problemf(node.Path, "group.name %q: owners by name are not supported yet; use group.id", *name))
	}
	return problems
}

func refusedPasswd(config types.Config) []Problem {
	var problems []Problem
	for _, user := range config.Passwd.Users {
		where := "passwd.users[" + user.Name + "]"
		if user.PasswordHash != nil && *user.PasswordHash != "" {
			problems = append(problems, problemf(where, "passwordHash would be readable in the image, and /etc/shadow is the host's own; use SSH keys"))
		}
		if len(user.SSHAuthorizedKeys) > 0 {
			problems = append(problems, problemf(where, "sshAuthorizedKeys are not supported yet"))
		}
		if isAccount(user) {
			problems = append(problems, problemf(where, "users are not supported yet; use a sysusers.d file in /etc/sysusers.d"))
		}
	}
	for _, group := range config.Passwd.Groups {
		problems = append(problems, problemf("passwd.groups["+group.Name+"]",
			"groups are not supported yet; use a sysusers.d file in /etc/sysusers.d"))
	}
	return problems
}

// isAccount reports whether a user entry asks for more than a password or
// keys: an entry with a name alone, as is common for core, changes nothing.
func isAccount(user types.PasswdUser) bool {
	return user.UID != nil || user.Gecos != nil || user.HomeDir != nil || user.Shell != nil || user.PrimaryGroup != nil ||
		user.ShouldExist != nil || user.System != nil || user.NoCreateHome != nil || user.NoLogInit != nil ||
		user.NoUserGroup != nil || len(user.Groups) > 0
}

func refusedKernelArguments(config types.Config) []Problem {
	if len(config.KernelArguments.ShouldNotExist) == 0 {
		return nil
	}
	return []Problem{problemf("kernelArguments.shouldNotExist", "an image can add kernel arguments and not take any away")}
}

// refusedIgnition: a config that pulls in others is not known when it is built.
func refusedIgnition(config types.Config) []Problem {
	var problems []Problem
	if len(config.Ignition.Config.Merge) > 0 {
		problems = append(problems, problemf("ignition.config.merge", "configs fetched by a config are not supported; write their content into a MachineConfig"))
	}
	if config.Ignition.Config.Replace.Source != nil {
		problems = append(problems, problemf("ignition.config.replace", "configs fetched by a config are not supported; write their content into a MachineConfig"))
	}
	return problems
}

// isText reports whether text can be a path on every host: bootc's lint refuses
// names that are not UTF-8.
func isText(text string) bool {
	return utf8.ValidString(text) && !strings.ContainsAny(text, "\x00\n")
}
