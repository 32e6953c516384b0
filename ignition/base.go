package ignition

import (
	"archive/tar"
	"errors"
)

// Base is what the conversion asks of the image that a layer goes on. Names are
// absolute and clean, and no link is followed: neither at the end of a name nor
// above it.
type Base interface {
	// Find gives what is at a name; nil: there is nothing.
	Find(name string) (*Found, error)
	// Read gives the content of the regular file at a name. Files of more than
	// MaxFileSize bytes are an error.
	Read(name string) ([]byte, error)
	// List gives the names in the directory at a name, sorted; none where there is
	// no directory.
	List(name string) ([]string, error)
}

// ErrBaseUnread is what a Base answers that does not know. NewLayer fails with
// it when a config cannot be converted without a look into the image.
var ErrBaseUnread = errors.New("it takes a look into the base image, which has not been read")

// Found is one thing in the base image.
type Found struct {
	// Kind is a type flag of archive/tar: TypeReg, TypeDir, TypeSymlink or
	// another. A hard link is what it links to.
	Kind byte
	// Mode holds the permission bits, set-user-id, set-group-id and sticky.
	Mode int64
	UID  int
	GID  int
	// Target of a symbolic link, as the image has it.
	Target string
}

// table is a Base that knows some links and directories, and nothing else.
type table map[string]*Found

func (t table) Find(name string) (*Found, error) {
	if found, known := t[name]; known {
		return found, nil
	}
	return nil, ErrBaseUnread
}

func (t table) Read(string) ([]byte, error) { return nil, ErrBaseUnread }

func (t table) List(string) ([]string, error) { return nil, ErrBaseUnread }

// DefaultBase describes the base images of the ostree family, and what is laid
// out like them: where their links near the root lead, and the directories of
// /etc that are closed to others. About everything else it answers
// ErrBaseUnread.
func DefaultBase() Base { return ostreeBase }

var ostreeBase = func() table {
	known := table{}
	for name, target := range map[string]string{
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
	} {
		known[name] = &Found{Kind: tar.TypeSymlink, Mode: 0o777, Target: target}
	}
	for name, mode := range map[string]int64{
		"/etc/audit":                             0o750,
		"/etc/audit/rules.d":                     0o750,
		"/etc/firewalld":                         0o750,
		"/etc/ipsec.d":                           0o700,
		"/etc/NetworkManager/system-connections": 0o700,
		"/etc/sudoers.d":                         0o750,
	} {
		known[name] = &Found{Kind: tar.TypeDir, Mode: mode}
	}
	return known
}()

// oddDirectories belong to others than root on hosts of the ostree family, with
// numbers that differ from image to image. A layer names the directories above
// its files: of these the image itself has to be asked, or their services could
// not read them any more.
var oddDirectories = []string{
	"/etc/cups", "/etc/dirsrv", "/etc/frr", "/etc/named", "/etc/openvswitch", "/etc/polkit-1",
	"/etc/rabbitmq", "/etc/sssd", "/etc/tang", "/etc/unbound",
}

// findDirectory is Find for a directory that a layer names; nil: there is none,
// or it is an ordinary one as far as is known.
func findDirectory(base Base, name string) (*Found, error) {
	for _, odd := range oddDirectories {
		if isBelow(name, odd) {
			return base.Find(name)
		}
	}
	return findKnown(base, name)
}

// findKnown is Find for a question that an image not read need not answer: then
// there is nothing.
func findKnown(base Base, name string) (*Found, error) {
	found, err := base.Find(name)
	if errors.Is(err, ErrBaseUnread) {
		return nil, nil
	}
	return found, err
}

func (f *Found) isFile() bool { return f != nil && f.Kind == tar.TypeReg }

func (f *Found) isLinkTo(target string) bool {
	return f != nil && f.Kind == tar.TypeSymlink && f.Target == target
}
