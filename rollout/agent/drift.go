package agent

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strconv"
	"strings"
)

// manifestPath is the list, made when the image was built, of the files that the
// cluster's configuration puts on a node.
const manifestPath = "/usr/lib/imagemode/files.json"

// pristineEtc is where an image keeps its own /etc: what is in /etc itself is
// merged with the changes of the node at every update, so that a file that was
// edited stays as it is for ever.
const pristineEtc = "/usr/etc"

// deliveredFile is an entry of the manifest.
type deliveredFile struct {
	Path string `json:"path"`
	// Mode is octal; empty for links.
	Mode string `json:"mode"`
	UID  int    `json:"uid"`
	GID  int    `json:"gid"`
	// User and Group are set where only the node knows the number.
	User  string `json:"user"`
	Group string `json:"group"`
	// SHA256 is set for files only, 64 hex.
	SHA256    string `json:"sha256"`
	Target    string `json:"target"`
	Directory bool   `json:"directory"`
}

// checkDrift compares the host with the manifest of the image it runs and says
// which files differ, and how. With correct it puts files below /etc right first,
// and names what it could not. An image without a manifest has nothing to compare.
func checkDrift(host Host, correct bool) ([]string, error) {
	content, err := host.ReadFile(manifestPath)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var files []deliveredFile
	if err := json.Unmarshal(content, &files); err != nil {
		return nil, fmt.Errorf("%s: %w", manifestPath, err)
	}
	var drifted []string
	for _, file := range files {
		difference, err := compare(host, file)
		if err != nil {
			return drifted, err
		}
		if difference != "" && correct {
			difference = putRight(host, file, difference)
		}
		if difference != "" {
			drifted = append(drifted, file.Path+" ("+difference+")")
		}
	}
	return drifted, nil
}

// compare says in a few words how what is on the host differs; empty: not at all.
func compare(host Host, file deliveredFile) (string, error) {
	state, err := host.Inspect(file.Path, file.Target == "")
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "missing", nil
	case err != nil:
		return "", fmt.Errorf("%s: %w", file.Path, err)
	}
	return differenceOf(file, state), nil
}

// differenceOf is pure. Owners that only the node knows by number are not compared.
func differenceOf(file deliveredFile, state FileState) string {
	mode, _ := strconv.ParseUint(file.Mode, 8, 32)
	switch {
	case file.Target != "" && state.Kind != fs.ModeSymlink:
		return "no link"
	case file.Target != "":
		return differs(state.Target != file.Target, "leads to "+state.Target)
	case file.Directory && state.Kind != fs.ModeDir:
		return "no directory"
	case !file.Directory && state.Kind != 0:
		return "no file"
	case !file.Directory && state.SHA256 != file.SHA256:
		return "content"
	case file.Mode != "" && state.Mode != uint32(mode):
		return fmt.Sprintf("mode %04o", state.Mode)
	case file.User == "" && state.UID != file.UID:
		return fmt.Sprintf("owner %d", state.UID)
	case file.Group == "" && state.GID != file.GID:
		return fmt.Sprintf("group %d", state.GID)
	}
	return ""
}

func differs(isDifferent bool, how string) string {
	if isDifferent {
		return how
	}
	return ""
}

// putRight brings back a file below /etc from the image's own copy. It returns
// what is wrong afterwards: nothing, or the difference and why it stays.
func putRight(host Host, file deliveredFile, difference string) string {
	clean := path.Clean(file.Path)
	if file.SHA256 == "" || file.User != "" || file.Group != "" || !strings.HasPrefix(clean, "/etc/") {
		return difference + ", not a file that can be corrected"
	}
	content, err := host.ReadFile(pristineEtc + strings.TrimPrefix(clean, "/etc"))
	if err != nil {
		return difference + ", not corrected: the image's copy below " + pristineEtc + " cannot be read"
	}
	if sumOf(content) != file.SHA256 {
		return difference + ", not corrected: the image's copy below " + pristineEtc + " is another one"
	}
	mode, err := strconv.ParseUint(file.Mode, 8, 32)
	if err == nil {
		err = host.PutBack(clean, content, FileState{Mode: uint32(mode), UID: file.UID, GID: file.GID})
	}
	if err != nil {
		return difference + ", not corrected: " + err.Error()
	}
	return ""
}

// sumOf is a content's SHA-256 in hex.
func sumOf(content []byte) string {
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:])
}
