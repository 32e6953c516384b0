package lifecycle

import (
	"errors"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/imagemode/imagemode/test/cluster/layout"
)

// foreignDirs are directories outside the cluster's own that its programs make
// and that no option moves. `down` deletes those that were not there before.
var foreignDirs = []string{
	"/var/lib/kubelet",    // device plugins' socket
	"/var/lib/cni",        // results of CNI calls
	"/var/log/containers", // links to the pods' logs
	"/run/containerd",     // shims' sockets
	"/run/systemd/nspawn", // locks and propagated mounts of machines
}

// foreignRecord lists the foreign directories that the cluster made.
const foreignRecord = layout.StateDir + "/made-outside"

// recordForeign notes which foreign directories do not exist yet. A record that
// is there already is from this cluster's first `up` and stays.
func recordForeign() error {
	if _, err := os.Stat(foreignRecord); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	var absent []string
	for _, dir := range foreignDirs {
		if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
			absent = append(absent, dir)
		}
	}
	return os.WriteFile(foreignRecord, []byte(strings.Join(absent, "\n")), 0o600)
}

// removeForeign deletes the recorded directories. Only names from foreignDirs
// are believed.
func removeForeign() error {
	content, err := os.ReadFile(foreignRecord)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, dir := range strings.Fields(string(content)) {
		if !slices.Contains(foreignDirs, dir) {
			continue
		}
		if err := os.RemoveAll(dir); err != nil {
			return err
		}
	}
	return nil
}
