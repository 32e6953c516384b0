package ignition

import (
	"archive/tar"
	"errors"
	"fmt"
	"path"
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
	refusedNesting,
	refusedKernelArguments,
	refusedUnits,
	refusedPasswd,
	refusedIgnition,
}

// Refused names everything in a config that no image can hold, as far as it can
// be told without the base image: so a config is refused when it is rendered and
// not when it is built. Paths are looked at as DefaultBase leads them. Content
// is not decoded. What depends on the image (the number of an owner, a unit that
// is enabled) NewLayer refuses.
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
		problems = append(problems, refusedNode(file.Node, tar.TypeReg)...)
		problems = append(problems, refusedSource(file.Path, "contents", file.Contents)...)
		for i, fragment := range file.Append {
			problems = append(problems, refusedSource(file.Path, fmt.Sprintf("append[%d]", i), fragment)...)
		}
		if destinationOf(file.Path) == toNode && (file.Contents.Source == nil || len(file.Append) > 0) {
			problems = append(problems, problemf(file.Path, "it is taken over by running nodes, which need the whole file: give contents, without append"))
		}
	}
	return problems
}

// refusedSource refuses content that is not in the config itself.
func refusedSource(path, field string, resource types.Resource) []Problem {
	if source := textOf(resource.Source); source != "" && !strings.HasPrefix(source, "data:") {
		scheme, _, _ := strings.Cut(source, ":")
		return []Problem{problemf(path, "%s.source is fetched by %s; only data: URLs are the same in every build", field, scheme)}
	}
	if compression := textOf(resource.Compression); compression != "" && compression != "gzip" {
		return []Problem{problemf(path, "%s.compression %q is not known, gzip is", field, compression)}
	}
	return nil
}

func refusedDirectories(config types.Config) []Problem {
	var problems []Problem
	for _, directory := range config.Storage.Directories {
		problems = append(problems, refusedNode(directory.Node, tar.TypeDir)...)
	}
	return problems
}

func refusedLinks(config types.Config) []Problem {
	var problems []Problem
	for _, link := range config.Storage.Links {
		problems = append(problems, refusedNode(link.Node, tar.TypeSymlink)...)
		switch {
		case link.Target == nil || *link.Target == "":
			problems = append(problems, problemf(link.Path, "target is missing"))
		case !isText(*link.Target):
			problems = append(problems, problemf(link.Path, "target %q is not UTF-8 text", *link.Target))
		}
	}
	return problems
}

// refusedNesting finds paths of which one makes the other impossible: what is below
// a file cannot exist.
func refusedNesting(config types.Config) []Problem {
	files := map[string]bool{}
	for _, file := range config.Storage.Files {
		files[cleaned(file.Path)] = true
	}
	var problems []Problem
	for _, name := range nodePaths(config) {
		for above := path.Dir(cleaned(name)); above != "/"; above = path.Dir(above) {
			if files[above] {
				problems = append(problems, problemf(name, "it is below %s, which is a file in the same config; take one of the two out", above))
			}
		}
	}
	return problems
}

// nodePaths are those of files, directories and links.
func nodePaths(config types.Config) []string {
	var names []string
	for _, file := range config.Storage.Files {
		names = append(names, file.Path)
	}
	for _, directory := range config.Storage.Directories {
		names = append(names, directory.Path)
	}
	for _, link := range config.Storage.Links {
		names = append(names, link.Path)
	}
	return names
}

func refusedKernelArguments(config types.Config) []Problem {
	if _, err := kernelArguments(config, nil); err != nil {
		return []Problem{{"kernelArguments", err.Error()}}
	}
	return nil
}

// refusedNode checks what files, directories and links have in common.
func refusedNode(node types.Node, kind byte) []Problem {
	if !isText(node.Path) {
		return []Problem{problemf(node.Path, "the path %q is not UTF-8 text", node.Path)}
	}
	if hasWhiteoutName(node.Path) {
		return []Problem{problemf(node.Path, "names that begin with %s take other files away in an image", whiteoutPrefix)}
	}
	var problems []Problem
	if _, err := locate(ostreeBase, node.Path, kind); err != nil {
		var refused *RefusedError
		if errors.As(err, &refused) {
			problems = append(problems, Problem{node.Path, refused.Problems[0].Reason})
		}
	}
	for _, name := range []*string{node.User.Name, node.Group.Name} {
		if text := textOf(name); text != "" && !ownerName.MatchString(text) {
			problems = append(problems, problemf(node.Path, "%q is not the name of a user or group", text))
		}
	}
	for _, id := range []*int{node.User.ID, node.Group.ID} {
		if id != nil && (*id < 0 || *id > maxOwner) {
			problems = append(problems, problemf(node.Path, "%d is not the number of a user or group", *id))
		}
	}
	return problems
}

// maxOwner is the highest number of a user or group; the one above means none.
const maxOwner = 1<<32 - 2

func refusedUnits(config types.Config) []Problem {
	units := newUnitSet(config, ostreeBase)
	var problems []Problem
	for _, u := range config.Systemd.Units {
		if !unitName.MatchString(u.Name) {
			problems = append(problems, problemf(u.Name, "%q is not the name of a unit", u.Name))
			continue
		}
		for _, dropin := range u.Dropins {
			if !dropinName.MatchString(dropin.Name) || !isText(dropin.Name) {
				problems = append(problems, problemf(u.Name, "%q is not the name of a drop-in (name.conf)", dropin.Name))
			}
		}
		if own := units.own(u.Name); own != nil && isTrue(u.Enabled) && !isTrue(u.Mask) {
			if _, err := own.installation(); err != nil {
				problems = append(problems, Problem{u.Name, err.Error()})
			}
		}
	}
	return problems
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
