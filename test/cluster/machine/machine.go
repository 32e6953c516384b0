// Package machine runs the cluster's worker nodes: each an OS image, installed
// by the stand-in for bootc and booted by systemd-nspawn with its own systemd as
// PID 1, that can reboot into another image by itself.
//
// A machine's directory holds:
//
//	sysroot/            what the machine sees as /sysroot, see package test/bootc/host
//	console.log         what its console showed, all boots
//	nspawn.pid          the process id of systemd-nspawn while it runs
//	certs.d, policy.json  for the installation only
package machine

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/imagemode/imagemode/test/cluster/cgroup"
	"github.com/imagemode/imagemode/test/cluster/layout"
	"github.com/imagemode/imagemode/test/cluster/process"
)

// Config describes one machine. All fields are required but those that say so.
type Config struct {
	// Name is the hostname and the node's name, at most 12 characters: the kernel
	// takes no longer name for the interface made of it.
	Name string
	// StateDir belongs to this machine alone; it need not exist.
	StateDir string
	// Bootc is the stand-in's program, as osimage.Ensure left it in its BinDir.
	Bootc string
	// IP is the address on the bridge; the network has layout.PrefixLength bits.
	IP, Gateway string
	// Bridge is the host's interface that the machine is connected to.
	Bridge string
	// Image is what a machine without an installation is installed with, by digest.
	Image string
	// AuthFile is a docker config.json with a user who may pull the image. kubelet
	// gets a copy, unless Files has one; bootc on the machine gets none.
	AuthFile string
	// CAFile is the CA of the registry.
	CAFile string
	// PodCIDR is the network of the pods on this machine.
	PodCIDR string
	// APIServer is a URL.
	APIServer string
	// Files are written at each start of the machine, by absolute path, below /etc
	// (where they are local changes, which an update keeps) or /var.
	Files map[string]File
}

// File is the content of a file that root owns.
type File struct {
	Content []byte
	Mode    fs.FileMode
}

// Start installs the machine where it is not installed, writes its files and
// starts a supervisor that outlives this program and boots it again after each
// reboot. A machine that runs is left alone.
func Start(ctx context.Context, config Config) error {
	if Running(config) {
		return nil
	}
	if err := config.validate(); err != nil {
		return err
	}
	// A supervisor that was killed leaves its machine running.
	if err := clear(config); err != nil {
		return err
	}
	if err := install(ctx, config); err != nil {
		return fmt.Errorf("machine %s: installing %s: %w", config.Name, config.Image, err)
	}
	if err := writeFiles(config); err != nil {
		return fmt.Errorf("machine %s: %w", config.Name, err)
	}
	return startSupervisor(ctx, config)
}

func startSupervisor(ctx context.Context, config Config) error {
	program, err := os.Executable()
	if err != nil {
		return err
	}
	system, err := cgroup.Ensure(layout.SystemCgroup)
	if err != nil {
		return err
	}
	_, err = store().Ensure(ctx, process.Spec{
		Name:    config.processName(),
		Args:    []string{program, supervisorName, "--name", config.Name, "--state-dir", config.StateDir, "--bridge", config.Bridge},
		Cgroups: system,
	})
	return err
}

// stopGrace covers an orderly shutdown: ten seconds for services that do not
// stop, and the /etc merge of a staged deployment.
const stopGrace = 40 * time.Second

// Stop powers the machine off and leaves no process, interface or cgroup of it.
// Its disk stays. It succeeds when there is nothing to stop.
func Stop(ctx context.Context, config Config) error {
	err := store().Stop(ctx, config.processName(), stopGrace)
	return errors.Join(err, clear(config))
}

// Running tells whether the machine's supervisor runs, which includes the moment
// between two boots.
func Running(config Config) bool {
	_, running := store().Running(config.processName())
	return running
}

// clear kills what is left of a machine without a supervisor.
func clear(config Config) error {
	pids, err := cgroup.Processes(config.cgroup())
	if err != nil {
		return err
	}
	for _, pid := range pids {
		if handle, err := os.FindProcess(pid); err == nil {
			_ = handle.Kill()
			_ = handle.Release()
		}
	}
	return cgroup.Remove(config.cgroup())
}

// store keeps the supervisor's record and log beside those of the other daemons.
func store() process.Store {
	return process.Store{RecordDir: layout.ProcessDir, LogDir: layout.LogDir}
}

func (c Config) processName() string { return "machine-" + c.Name }

// cgroup is the cgroup, in every hierarchy, that all of the machine lives in.
func (c Config) cgroup() string { return "/" + c.Name }

func (c Config) sysroot() string { return filepath.Join(c.StateDir, "sysroot") }

const longestName = 12

func (c Config) validate() error {
	if c.Name == "" || len(c.Name) > longestName {
		return fmt.Errorf("machine %q: the name must have 1 to %d characters", c.Name, longestName)
	}
	for path := range c.Files {
		if _, err := c.place(path); err != nil {
			return err
		}
	}
	return nil
}

// install unpacks the image as the first deployment.
func install(ctx context.Context, config Config) error {
	if _, err := os.Stat(filepath.Join(config.sysroot(), "boot", "entry")); err == nil {
		return nil
	}
	registry, err := registryOf(config.Image)
	if err != nil {
		return err
	}
	certificates := filepath.Join(config.StateDir, "certs.d")
	if err := os.MkdirAll(filepath.Join(certificates, registry), 0o755); err != nil {
		return err
	}
	authority, err := os.ReadFile(config.CAFile)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(certificates, registry, "ca.crt"), authority, 0o644); err != nil {
		return err
	}
	policy := filepath.Join(config.StateDir, "policy.json")
	if err := os.WriteFile(policy, []byte(`{"default": [{"type": "insecureAcceptAnything"}]}`), 0o644); err != nil {
		return err
	}
	output, err := exec.CommandContext(ctx, config.Bootc, "internals", "install", "--sysroot", config.sysroot(),
		"--authfile", config.AuthFile, "--certs-dir", certificates, "--policy", policy, config.Image).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%w: %s", err, output)
	}
	return nil
}

// machineID is the same for a machine's whole life, and for no other machine.
func (c Config) machineID() string {
	sum := sha256.Sum256([]byte("imagemode local cluster " + c.StateDir))
	return hex.EncodeToString(sum[:16])
}
