package ignition

import (
	"path"
	"strings"
)

// Base is what the conversion knows of the base image.
type Base struct {
	// Links are the base's symbolic links near the root: absolute path to
	// absolute target. A path below one is looked at where it leads.
	Links map[string]string
	// Modes are directories of the base that are not 0755 root:root. A layer has
	// to name the directories above its files, and would open these otherwise.
	Modes map[string]int64
}

// DefaultBase describes the base images of the ostree family, and what is laid
// out like them.
func DefaultBase() Base {
	return Base{
		Links: map[string]string{
			"/bin":       "/usr/bin",
			"/sbin":      "/usr/sbin",
			"/lib":       "/usr/lib",
			"/lib64":     "/usr/lib64",
			"/home":      "/var/home",
			"/media":     "/run/media",
			"/mnt":       "/var/mnt",
			"/opt":       "/var/opt",
			"/root":      "/var/roothome",
			"/srv":       "/var/srv",
			"/usr/local": "/var/usrlocal",
			"/var/run":   "/run",
			"/var/lock":  "/run/lock",
			"/var/mail":  "/var/spool/mail",
		},
		Modes: map[string]int64{
			"/etc/audit":                             0o750,
			"/etc/audit/rules.d":                     0o750,
			"/etc/firewalld":                         0o750,
			"/etc/ipsec.d":                           0o700,
			"/etc/NetworkManager/system-connections": 0o700,
			"/etc/polkit-1/rules.d":                  0o700,
			"/etc/sudoers.d":                         0o750,
		},
	}
}

// maxLinks bounds how many links a path may lead through, as the kernel does.
const maxLinks = 40

// resolve follows the base's links in the directories of name and cleans it.
// The last element is not followed: it is what gets replaced.
func (b Base) resolve(name string) string {
	name = path.Clean("/" + name)
	for range maxLinks {
		next, followed := b.followOne(name)
		if !followed {
			return name
		}
		name = next
	}
	return name
}

// followOne replaces the uppermost link among the parents of name.
func (b Base) followOne(name string) (string, bool) {
	for i := 1; i < len(name); i++ {
		if name[i] != '/' {
			continue
		}
		if target, isLink := b.Links[name[:i]]; isLink {
			return path.Join(target, name[i:]), true
		}
	}
	return name, false
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
var unreachable = map[string]string{
	"/boot":    "belongs to the boot loader; an image cannot hold it",
	"/dev":     "is made at every boot; an image cannot hold it",
	"/ostree":  "belongs to the host's deployments; an image cannot hold it",
	"/proc":    "is made at every boot; an image cannot hold it",
	"/run":     "is empty at every boot; use a tmpfiles.d file in /etc/tmpfiles.d",
	"/sys":     "is made at every boot; an image cannot hold it",
	"/sysroot": "belongs to the host's deployments; an image cannot hold it",
	"/tmp":     "is empty at every boot; use a tmpfiles.d file in /etc/tmpfiles.d",
	"/usr/etc": "is the host's own copy of /etc; write the path below /etc",
}

// placeOf says where the content of a resolved path can live, and why nowhere.
func placeOf(resolved string) (place, string) {
	for tree, reason := range unreachable {
		if isBelow(resolved, tree) {
			return nowhere, tree + " " + reason
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
	return name == tree || strings.HasPrefix(name, tree+"/")
}

// nodePullConfig is the kubelet's pull secret. On OpenShift it stands in the
// rendered config. A secret does not belong in an image, and nodes have it
// already: it is left out.
const nodePullConfig = "/var/lib/kubelet/config.json"
