// Package preflight finds out, before anything is changed, why the cluster
// could not run on this machine. Every problem is one line that says what is
// wrong and what to do.
package preflight

import (
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/imagemode/imagemode/test/cluster/layout"
)

// Machine is what of this machine decides whether the cluster can run. Read
// gathers it; Problems judges it.
type Machine struct {
	// Filesystems are the file system types the kernel knows.
	Filesystems []string
	// Free is the space left, in bytes, by the directory asked about.
	Free map[string]uint64
	// Addresses are those of all interfaces but the cluster's own.
	Addresses map[netip.Prefix]string
	// Listeners are the TCP sockets that listen.
	Listeners []Listener
}

// Requirements is what the cluster wants of the machine.
type Requirements struct {
	// Space is the free space needed, in bytes, by directory.
	Space map[string]uint64
	// Ports lists what the cluster listens on.
	Ports []Port
	// Own are the process ids of the cluster's running daemons: what they
	// listen on is not taken.
	Own []int
	// Stray are process ids below the cluster's cgroups: what of them is not
	// Own was left by a cluster that lost its records.
	Stray []int
}

// Port is an address the cluster listens on, and for what.
type Port struct {
	Address string
	Number  int
	For     string
}

// Ports are all ports the cluster uses on this host.
var Ports = []Port{
	{layout.HostIP, layout.APIServerPort, "kube-apiserver"},
	{layout.HostIP, layout.RegistryPort, "the registry"},
	{layout.HostIP, layout.KubeletPort, "the kubelet"},
	{layout.Loopback, layout.KubeletHealthPort, "the kubelet"},
	{layout.Loopback, layout.EtcdClientPort, "etcd"},
	{layout.Loopback, layout.EtcdPeerPort, "etcd"},
	{layout.Loopback, layout.ControllerManagerPort, "kube-controller-manager"},
	{layout.Loopback, layout.SchedulerPort, "kube-scheduler"},
}

// GiB is 2^30 bytes.
const GiB = 1 << 30

// Check reads this machine and returns the first problem.
func Check(requirements Requirements) error {
	machine, err := Read(requirements)
	if err != nil {
		return err
	}
	if problems := Problems(machine, requirements); len(problems) > 0 {
		return problems[0]
	}
	return nil
}

// RequireRoot comes before everything else: without root most of the machine
// cannot even be read.
func RequireRoot() error {
	if os.Geteuid() != 0 {
		return errNotRoot
	}
	return nil
}

var errNotRoot = errors.New("not root: the local cluster makes network interfaces, mounts and containers; run it as root")

// Problems judges the machine.
func Problems(machine Machine, requirements Requirements) []error {
	var problems []error
	if !slices.Contains(machine.Filesystems, "overlay") {
		problems = append(problems, errors.New("the kernel has no overlay file system: run modprobe overlay, or use a kernel that has it"))
	}
	problems = append(problems, spaceProblems(machine, requirements)...)
	problems = append(problems, addressProblems(machine)...)
	return append(problems, portProblems(machine, requirements)...)
}

func spaceProblems(machine Machine, requirements Requirements) []error {
	var problems []error
	for dir, needed := range requirements.Space {
		if free := machine.Free[dir]; free < needed {
			problems = append(problems, fmt.Errorf("too little disk: %s has %.1f GiB free, the local cluster needs %.0f GiB there; free some or put it on a larger disk",
				dir, float64(free)/GiB, float64(needed)/GiB))
		}
	}
	return problems
}

// addressProblems finds networks of the machine that the cluster's would hide.
func addressProblems(machine Machine) []error {
	var problems []error
	for _, text := range []string{layout.NodeNetwork, layout.PodNetwork} {
		network := netip.MustParsePrefix(text)
		for address, name := range machine.Addresses {
			if network.Overlaps(address) {
				problems = append(problems, fmt.Errorf("interface %s has address %s, inside the local cluster's own network %s: give it another address or take it down",
					name, address, network))
			}
		}
	}
	return problems
}

func portProblems(machine Machine, requirements Requirements) []error {
	var problems []error
	for _, port := range requirements.Ports {
		for _, listener := range machine.Listeners {
			if !listener.covers(port) || slices.Contains(requirements.Own, listener.PID) {
				continue
			}
			advice := "stop that program and try again"
			if slices.Contains(requirements.Stray, listener.PID) {
				advice = "it is left over from an earlier cluster, run down first"
			}
			problems = append(problems, fmt.Errorf("port %d on %s is taken by %s, %s needs it: %s",
				port.Number, port.Address, listener.owner(), port.For, advice))
		}
	}
	return problems
}

// Read gathers the machine's facts.
func Read(requirements Requirements) (Machine, error) {
	machine := Machine{Free: map[string]uint64{}}
	filesystems, err := os.ReadFile("/proc/filesystems")
	if err != nil {
		return Machine{}, err
	}
	machine.Filesystems = strings.Fields(string(filesystems))
	for dir := range requirements.Space {
		if machine.Free[dir], err = freeSpace(dir); err != nil {
			return Machine{}, err
		}
	}
	if machine.Addresses, err = otherAddresses(); err != nil {
		return Machine{}, err
	}
	machine.Listeners, err = listeners()
	return machine, err
}

// freeSpace is what is left for dir, or for the directory it will be made in.
func freeSpace(dir string) (uint64, error) {
	var stat syscall.Statfs_t
	for {
		err := syscall.Statfs(dir, &stat)
		if err == nil {
			return stat.Bavail * uint64(stat.Bsize), nil
		}
		if !errors.Is(err, fs.ErrNotExist) || dir == "/" {
			return 0, fmt.Errorf("free space of %s: %w", dir, err)
		}
		dir = filepath.Dir(dir)
	}
}
