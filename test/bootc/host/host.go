// Package host is the disk of a stand-in bootc host: its deployments, which one
// is booted, which one boots next, and what is staged.
//
//	/sysroot/boot/entry                    which deployment boots next, and the rollback
//	/sysroot/deployments/ID/deployment.json  what it is
//	/sysroot/deployments/ID/root           its root, with its own /usr and /etc, and the image's /etc in /usr/etc
//	/sysroot/deployments/ID/etc.pristine   its /etc as the image brought it
//	/sysroot/blobs/sha256/HEX              layers as fetched
//	/sysroot/var                           /var of every deployment
//	/run/bootc/staged.json                 what is staged: gone after a power cut
package host

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"go.podman.io/image/v5/types"
)

// Host is a machine by its directories, so that tests can give it others.
type Host struct {
	// Sysroot is /sysroot, Run is /run and Root is / on a real machine.
	Sysroot, Run, Root string
	// System is how registries are reached; its AuthFilePath is filled in from
	// bootc's own places when it is empty.
	System types.SystemContext
	// Out takes what a command says it did, Progress what it is doing meanwhile.
	Out, Progress io.Writer
	// Execute runs a program of the host, for systemd.
	Execute func(name string, arguments ...string) error
	// Park waits for the shutdown after a reboot was asked for.
	Park func() error
}

// Deployment is one unpacked image.
type Deployment struct {
	ID string `json:"id"`
	// Image is the name it was asked for by, in canonical form.
	Image     string `json:"image"`
	Transport string `json:"transport"`
	// Digest is the platform manifest's.
	Digest       string     `json:"digest"`
	Architecture string     `json:"architecture"`
	Version      string     `json:"version,omitempty"`
	Timestamp    *time.Time `json:"timestamp,omitempty"`
	Serial       int        `json:"serial"`
	// Layers are the digests of its layers, lowest first.
	Layers []string `json:"layers"`
	// Finalized is true once a machine's /etc was merged into it.
	Finalized bool `json:"finalized"`
}

func (d *Deployment) checksum() string {
	sum := sha256.Sum256([]byte(d.Digest))
	return hex.EncodeToString(sum[:])
}

// BootEntry decides what boots: the content of /sysroot/boot/entry.
type bootEntry struct {
	Default  string `json:"default"`
	Rollback string `json:"rollback,omitempty"`
}

// stagedRecord is the content of /run/bootc/staged.json.
type stagedRecord struct {
	Deployment string `json:"deployment"`
	// Locked stages are not applied at reboot (downloadOnly in the status).
	Locked bool `json:"locked"`
}

// ErrNotBooted is what bootc says on other hosts.
var ErrNotBooted = errors.New("System not booted via bootc")

func (h *Host) entryFile() string       { return filepath.Join(h.Sysroot, "boot", "entry") }
func (h *Host) blobs() string           { return filepath.Join(h.Sysroot, "blobs") }
func (h *Host) deployments() string     { return filepath.Join(h.Sysroot, "deployments") }
func (h *Host) stagedFile() string      { return filepath.Join(h.Run, "bootc", "staged.json") }
func (h *Host) path(id string) string   { return filepath.Join(h.deployments(), id) }
func (h *Host) rootOf(id string) string { return filepath.Join(h.path(id), "root") }
func (h *Host) pristineOf(id string) string {
	return filepath.Join(h.path(id), "etc.pristine")
}

// IsBootcHost tells whether this is a machine that boots deployments.
func (h *Host) IsBootcHost() bool {
	_, err := os.Stat(h.entryFile())
	return err == nil
}

// say reports a result, which is part of the command line's contract.
func (h *Host) say(format string, arguments ...any) {
	fmt.Fprintf(h.Out, format+"\n", arguments...)
}

func (h *Host) progress(format string, arguments ...any) {
	fmt.Fprintf(h.Progress, format+"\n", arguments...)
}

// deployment reads one deployment; nil when there is none of that ID.
func (h *Host) deployment(id string) (*Deployment, error) {
	if id == "" {
		return nil, nil
	}
	var found Deployment
	err := readJSON(filepath.Join(h.path(id), "deployment.json"), &found)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return &found, err
}

func (h *Host) writeDeployment(deployment *Deployment) error {
	return writeJSON(filepath.Join(h.path(deployment.ID), "deployment.json"), deployment)
}

// all lists the complete deployments.
func (h *Host) all() ([]*Deployment, error) {
	entries, err := os.ReadDir(h.deployments())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var found []*Deployment
	for _, entry := range entries {
		deployment, err := h.deployment(entry.Name())
		if err != nil {
			return nil, err
		}
		if deployment != nil {
			found = append(found, deployment)
		}
	}
	return found, nil
}

func readJSON(path string, into any) error {
	content, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(content, into); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

// writeJSON replaces a file so that a crash leaves the old or the new content.
func writeJSON(path string, value any) error {
	content, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	file, err := os.CreateTemp(filepath.Dir(path), ".new-")
	if err != nil {
		return err
	}
	defer os.Remove(file.Name())
	defer file.Close()
	if _, err := file.Write(append(content, '\n')); err != nil {
		return err
	}
	if err := file.Sync(); err != nil {
		return err
	}
	if err := os.Rename(file.Name(), path); err != nil {
		return err
	}
	return syncDirectory(filepath.Dir(path))
}

func syncDirectory(path string) error {
	directory, err := os.Open(path)
	if err != nil {
		return err
	}
	defer directory.Close()
	return directory.Sync()
}
