package ignition

import (
	"archive/tar"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
)

// FilesPath is where the list of delivered files is in the image: JSON, a list
// of DeliveredFile by path. The drift check of the agent reads it.
const FilesPath = "/usr/lib/imagemode/files.json"

// DeliveredFile is one thing that the config puts on a node.
type DeliveredFile struct {
	// Path as the config has it. Where it is below /var, the node may have a link
	// there to what the image keeps: Mode, owner and SHA256 are those of what it
	// leads to.
	Path string `json:"path"`
	// Mode is octal with four digits; empty for links.
	Mode string `json:"mode,omitempty"`
	UID  int    `json:"uid"`
	GID  int    `json:"gid"`
	// User and Group are owners that only the node knows the number of; UID and
	// GID say nothing then.
	User  string `json:"user,omitempty"`
	Group string `json:"group,omitempty"`
	// SHA256 of the content, 64 hex; files only.
	SHA256 string `json:"sha256,omitempty"`
	// Target of a link.
	Target string `json:"target,omitempty"`
	// Directory is true for a directory.
	Directory bool `json:"directory,omitempty"`
}

func (e *entry) delivered(path string) DeliveredFile {
	file := DeliveredFile{
		Path: path, UID: e.owner.uid, GID: e.owner.gid, User: e.owner.user, Group: e.owner.group,
		Target: e.target, Directory: e.kind == tar.TypeDir,
	}
	if e.kind != tar.TypeSymlink {
		file.Mode = octal(e.mode)
	}
	if e.kind == tar.TypeReg {
		sum := sha256.Sum256(e.data)
		file.SHA256 = hex.EncodeToString(sum[:])
	}
	return file
}

// octal writes a mode with four digits.
func octal(mode int64) string {
	digits := [4]byte{}
	for i := range digits {
		digits[i] = byte('0' + mode>>(9-3*i)&7)
	}
	return string(digits[:])
}

// encodeFiles writes the list by path.
func encodeFiles(files []DeliveredFile) ([]byte, error) {
	slices.SortFunc(files, func(a, b DeliveredFile) int { return cmp.Compare(a.Path, b.Path) })
	if files == nil {
		files = []DeliveredFile{}
	}
	list, err := json.MarshalIndent(files, "", " ")
	if err != nil {
		return nil, fmt.Errorf("listing the delivered files: %w", err)
	}
	return append(list, '\n'), nil
}
