// Package debian installs the Debian packages the local cluster needs.
package debian

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
)

// Packages lists what the cluster uses, each with what for.
var Packages = []string{
	"gcc",                         // runc is compiled with cgo
	"libc6-dev",                   // "
	"libseccomp-dev",              // runc applies pods' seccomp profiles
	"pkg-config",                  // finds libseccomp
	"containernetworking-plugins", // pod networks
	"iptables",                    // address translation for pods and machines
	"iproute2",                    // machines' network
	"kmod",                        // containerd loads overlay where it is a module
	"mmdebstrap",                  // OS images
	"systemd-container",           // machines: systemd-nspawn
	"uidmap",                      // user namespaces of pods
}

// Missing returns those of names that are not installed.
func Missing(ctx context.Context, names []string) ([]string, error) {
	query := append([]string{"--show", "--showformat", "${Package} ${db:Status-Status}\\n"}, names...)
	command := exec.CommandContext(ctx, "dpkg-query", query...)
	output, err := command.Output() // fails when a package is unknown, and still lists the others
	if errors.Is(err, exec.ErrNotFound) {
		return nil, errors.New("dpkg-query is missing: the local cluster needs a Debian 12 machine")
	}
	return missing(names, output), nil
}

// missing picks the names that output, lines of "PACKAGE STATUS", does not call
// installed.
func missing(names []string, output []byte) []string {
	installed := map[string]bool{}
	for line := range strings.Lines(string(output)) {
		if fields := strings.Fields(line); len(fields) == 2 && fields[1] == "installed" {
			installed[fields[0]] = true
		}
	}
	var absent []string
	for _, name := range names {
		if !installed[name] {
			absent = append(absent, name)
		}
	}
	return absent
}

// Install installs the packages with apt-get.
func Install(ctx context.Context, names []string) error {
	if err := aptGet(ctx, "update"); err != nil {
		return fmt.Errorf("the package lists cannot be fetched, and %s must be installed: check the network and /etc/apt/sources.list (%w)",
			strings.Join(names, ", "), err)
	}
	args := append([]string{"install", "--yes", "--no-install-recommends"}, names...)
	if err := aptGet(ctx, args...); err != nil {
		return fmt.Errorf("packages %s cannot be installed: run apt-get install for them yourself to see more (%w)",
			strings.Join(names, ", "), err)
	}
	return nil
}

// aptGet runs apt-get without questions. `update` succeeds even when no source
// could be reached unless Error-Mode says otherwise.
func aptGet(ctx context.Context, args ...string) error {
	options := []string{
		"-o", "APT::Update::Error-Mode=any", "-o", "Acquire::Retries=2", "-o", "Acquire::http::Timeout=20",
		"-o", "DPkg::Lock::Timeout=120", "--quiet=2",
	}
	command := exec.CommandContext(ctx, "apt-get", append(options, args...)...)
	command.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive", "LC_ALL=C")
	output, err := command.CombinedOutput()
	if err == nil {
		return nil
	}
	if line := firstError(output); line != "" {
		return errors.New(line)
	}
	return err
}

// firstError is the first line of apt-get's output that reports an error.
func firstError(output []byte) string {
	for line := range bytes.Lines(output) {
		if bytes.HasPrefix(line, []byte("E: ")) || bytes.HasPrefix(line, []byte("Err:")) {
			return strings.TrimSpace(string(line))
		}
	}
	return ""
}
