package ignition

import (
	"archive/tar"
	"fmt"
	"path"
	"strings"
)

// maxLinks bounds how many links a path may lead through, as the kernel does.
const maxLinks = 40

// resolve cleans name and follows the base's links in the directories of it.
// The last element is not followed: it is what gets replaced.
func resolve(base Base, name string) (string, error) {
	resolved := cleaned(name)
	for range maxLinks {
		next, err := followOne(base, resolved)
		if err != nil {
			return "", fmt.Errorf("%s: %w", name, err)
		}
		if next == "" {
			return resolved, nil
		}
		resolved = next
	}
	return "", refuse(name, fmt.Errorf("it leads through more than %d links of the base image", maxLinks))
}

// cleaned is path.Clean of a name below /, which is itself where it is clean: a
// config is looked at several times, and has thousands of names.
func cleaned(name string) string {
	if strings.HasPrefix(name, "/") {
		return path.Clean(name)
	}
	return path.Clean("/" + name)
}

// resolveAll is resolve with the last element followed, too.
func resolveAll(base Base, name string) (string, error) {
	below, err := resolve(base, name+"/x")
	return path.Dir(below), err
}

// followOne replaces the uppermost link among the parents of name; "": there is
// none.
func followOne(base Base, name string) (string, error) {
	for i := 1; i < len(name); i++ {
		if name[i] != '/' {
			continue
		}
		found, err := findKnown(base, name[:i])
		switch {
		case err != nil:
			return "", err
		case found == nil || found.Kind != tar.TypeSymlink:
			continue
		case path.IsAbs(found.Target):
			return path.Join(found.Target, name[i:]), nil
		}
		return path.Join(path.Dir(name[:i]), found.Target, name[i:]), nil
	}
	return "", nil
}

// place is where content of a path can live.
type place int

const (
	// inImage: the path itself can be in a layer and follows the image.
	inImage place = iota
	// inVar: below /var, which an update of the image does not touch.
	inVar
	// nowhere: made anew at every boot, or owned by the boot loader.
	nowhere
)

// unreachable are trees in which a layer's content is not seen on a booted host.
var unreachable = []struct{ tree, reason string }{
	{"/boot", "belongs to the boot loader; an image cannot hold it"},
	{"/dev", "is made at every boot; an image cannot hold it"},
	{"/ostree", "belongs to the host's deployments; an image cannot hold it"},
	{"/proc", "is made at every boot; an image cannot hold it"},
	{"/run", "is empty at every boot; use a tmpfiles.d file in /etc/tmpfiles.d"},
	{"/sys", "is made at every boot; an image cannot hold it"},
	{"/sysroot", "belongs to the host's deployments; an image cannot hold it"},
	{"/tmp", "is empty at every boot; use a tmpfiles.d file in /etc/tmpfiles.d"},
	{"/usr/etc", "is the host's own copy of /etc; write the path below /etc"},
}

// placeOf says where the content of a resolved path can live, and why nowhere.
func placeOf(resolved string) (place, string) {
	for _, u := range unreachable {
		if isBelow(resolved, u.tree) {
			return nowhere, u.tree + " " + u.reason
		}
	}
	switch {
	case resolved == "/":
		return nowhere, "/ is not a file"
	case isBelow(resolved, "/var"):
		return inVar, ""
	}
	return inImage, ""
}

// isBelow reports whether name is tree or something in it.
func isBelow(name, tree string) bool {
	return name == tree || strings.HasPrefix(name, tree) && name[len(tree)] == '/'
}

// spot is where something of a config goes.
type spot struct {
	// path as the config has it, cleaned.
	path string
	// resolved is path as the base's links lead it.
	resolved string
	// place of resolved: inImage or inVar.
	place place
}

// locate finds the spot of a path. A directory that is a link in the base stays
// one: it is the directory it leads to that is meant.
func locate(base Base, name string, kind byte) (spot, error) {
	follow := resolve
	if kind == tar.TypeDir {
		follow = resolveAll
	}
	found := spot{path: path.Clean(name)}
	var err error
	if found.resolved, err = follow(base, found.path); err != nil {
		return spot{}, err
	}
	var reason string
	if found.place, reason = placeOf(found.resolved); found.place == nowhere {
		return spot{}, &RefusedError{[]Problem{{found.path, reason}}}
	}
	return found, nil
}
