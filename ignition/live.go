package ignition

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/coreos/ignition/v2/config/v3_6/types"
)

// liveTrees are what a node takes over while it runs, without a new image.
var liveTrees = []string{
	"/etc/containers/certs.d",
	"/etc/docker/certs.d",
	"/etc/pki/ca-trust/source/anchors",
	"/var/usrlocal/share/ca-certificates",
}

// nodePullConfig is the kubelet's pull secret. On OpenShift it stands in the
// rendered config. A secret belongs neither in an image nor in an object that
// every node may read, and nodes have it already: it is left out of both.
const nodePullConfig = "/var/lib/kubelet/config.json"

// destination is who delivers a path.
type destination int

const (
	toImage destination = iota
	toNode
	toNobody
)

// destinationOf looks at a path as DefaultBase leads it, so that what is live
// does not depend on the image.
func destinationOf(name string) destination {
	resolved, err := resolve(ostreeBase, name)
	if err != nil {
		return toImage // it is refused there
	}
	switch {
	case resolved == nodePullConfig:
		return toNobody
	case slices.ContainsFunc(liveTrees, func(tree string) bool { return isBelow(resolved, tree) }):
		return toNode
	}
	return toImage
}

// Split parts a config into what goes into the image and what a running node
// takes over without one: SSH authorized keys, and everything below
// /etc/containers/certs.d, /etc/docker/certs.d, /etc/pki/ca-trust/source/anchors
// and /usr/local/share/ca-certificates. The kubelet's pull secret,
// /var/lib/kubelet/config.json, is in neither. config is not changed; the parts
// share its content.
func Split(config types.Config) (image, live types.Config) {
	image, live = config, empty()
	image.Ignition.Version = types.MaxVersion.String()
	image.Storage.Files, live.Storage.Files = splitNodes(config.Storage.Files, func(f types.File) string { return f.Path })
	image.Storage.Directories, live.Storage.Directories = splitNodes(config.Storage.Directories, func(d types.Directory) string { return d.Path })
	image.Storage.Links, live.Storage.Links = splitNodes(config.Storage.Links, func(l types.Link) string { return l.Path })
	image.Passwd.Users, live.Passwd.Users = splitUsers(config.Passwd.Users)
	return image, live
}

func splitNodes[T any](nodes []T, pathOf func(T) string) (image, live []T) {
	for _, node := range nodes {
		switch destinationOf(pathOf(node)) {
		case toImage:
			image = append(image, node)
		case toNode:
			live = append(live, node)
		}
	}
	return image, live
}

func splitUsers(users []types.PasswdUser) (image, live []types.PasswdUser) {
	for _, user := range users {
		if len(user.SSHAuthorizedKeys) > 0 {
			live = append(live, types.PasswdUser{Name: user.Name, SSHAuthorizedKeys: user.SSHAuthorizedKeys})
		}
		user.SSHAuthorizedKeys = nil
		if isAccount(user) || user.PasswordHash != nil {
			image = append(image, user)
		}
	}
	return image, live
}

// ForImage gives the part of a config that goes into the image as canonical
// JSON, for the image inputs hash and for the request to the builder: configs
// that differ only in what is live, in the order of files, units and users, or
// in fields without meaning for an image, give the same text. nil: the config
// asks for nothing in the image.
func ForImage(config types.Config) ([]byte, error) {
	image, _ := Split(config)
	return canonical(image)
}

// ForNode gives the live part of a config (see Split) as canonical JSON; nil:
// there is none.
func ForNode(config types.Config) ([]byte, error) {
	_, live := Split(config)
	return canonical(live)
}

// canonical writes a config in one way only; nil where it says nothing.
func canonical(config types.Config) ([]byte, error) {
	// What Ignition needs to fetch things has no meaning: nothing is fetched.
	config.Ignition = types.Ignition{Version: types.MaxVersion.String(), Config: config.Ignition.Config}
	config.Storage.Files = sortedBy(config.Storage.Files, func(f types.File) string { return f.Path })
	for i := range config.Storage.Files {
		config.Storage.Files[i].Overwrite = nil // everything in an image is overwritten
	}
	config.Storage.Directories = sortedBy(config.Storage.Directories, func(d types.Directory) string { return d.Path })
	for i := range config.Storage.Directories {
		config.Storage.Directories[i].Overwrite = nil
	}
	config.Storage.Links = sortedBy(config.Storage.Links, func(l types.Link) string { return l.Path })
	for i := range config.Storage.Links {
		config.Storage.Links[i].Overwrite = nil
	}
	config.Systemd.Units = sortedBy(config.Systemd.Units, func(u types.Unit) string { return u.Name })
	for i, u := range config.Systemd.Units {
		config.Systemd.Units[i].Dropins = sortedBy(u.Dropins, func(d types.Dropin) string { return d.Name })
	}
	config.Passwd.Users = sortedBy(config.Passwd.Users, func(u types.PasswdUser) string { return u.Name })
	config.Passwd.Groups = sortedBy(config.Passwd.Groups, func(g types.PasswdGroup) string { return g.Name })
	return encodeUnlessEmpty(config)
}

// sortedBy gives a sorted copy; nil for an empty list.
func sortedBy[T any](list []T, key func(T) string) []T {
	if len(list) == 0 {
		return nil
	}
	sorted := slices.Clone(list)
	slices.SortStableFunc(sorted, func(a, b T) int { return cmp.Compare(key(a), key(b)) })
	return sorted
}

func encodeUnlessEmpty(config types.Config) ([]byte, error) {
	nothing, err := json.Marshal(empty())
	if err != nil {
		return nil, fmt.Errorf("encode an empty Ignition config: %w", err)
	}
	encoded, err := json.Marshal(config)
	if err != nil {
		return nil, fmt.Errorf("encode the Ignition config: %w", err)
	}
	if bytes.Equal(encoded, nothing) {
		return nil, nil
	}
	return encoded, nil
}

// LiveFile is a file of the live part of a config, with its content.
type LiveFile struct {
	Path    string
	Content []byte
	// Mode is nil where the config gives none.
	Mode *int
}

// LiveFiles are the files of the live part of a config (see Split), decoded.
// Directories and links of it are left out: what is live are files. The error is
// about a source that cannot be read.
func LiveFiles(config types.Config) ([]LiveFile, error) {
	_, live := Split(config)
	var files []LiveFile
	for _, file := range live.Storage.Files {
		content, err := readContents("storage.files "+file.Path, file.Contents)
		if err != nil {
			return nil, err
		}
		files = append(files, LiveFile{Path: file.Path, Content: content, Mode: file.Mode})
	}
	return files, nil
}
