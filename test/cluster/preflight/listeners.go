package preflight

import (
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/imagemode/imagemode/test/cluster/layout"
)

// Listener is a TCP socket that listens.
type Listener struct {
	Address netip.Addr
	Port    int
	// Inode identifies the socket.
	Inode string
	// PID and Program are the process that has the socket; 0 when no process
	// could be found, for example because it is in a container.
	PID     int
	Program string
}

// covers reports whether the listener keeps another from listening on port.
func (l Listener) covers(port Port) bool {
	return l.Port == port.Number && (l.Address.IsUnspecified() || l.Address.Unmap().String() == port.Address)
}

func (l Listener) owner() string {
	if l.PID == 0 {
		return "an unknown process"
	}
	return fmt.Sprintf("process %d (%s)", l.PID, l.Program)
}

func listeners() ([]Listener, error) {
	var found []Listener
	for _, file := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		content, err := os.ReadFile(file)
		if errors.Is(err, fs.ErrNotExist) {
			continue // no IPv6
		}
		if err != nil {
			return nil, err
		}
		sockets, err := parseSockets(string(content))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		found = append(found, sockets...)
	}
	owners := socketOwners(found)
	for i := range found {
		if pid, ok := owners[found[i].Inode]; ok {
			found[i].PID, found[i].Program = pid, programName(pid)
		}
	}
	return found, nil
}

// listening is the state of a listening socket in /proc/net/tcp.
const listening = "0A"

// parseSockets picks the listening sockets out of /proc/net/tcp or tcp6.
func parseSockets(content string) ([]Listener, error) {
	var found []Listener
	for i, line := range slices.Collect(strings.Lines(content)) {
		fields := strings.Fields(line)
		if i == 0 || len(fields) < 10 || fields[3] != listening {
			continue
		}
		address, port, err := parseSocketAddress(fields[1])
		if err != nil {
			return nil, err
		}
		found = append(found, Listener{Address: address, Port: port, Inode: fields[9]})
	}
	return found, nil
}

// parseSocketAddress reads 0100007F:1900: the address in 32 bit words, each with
// its last byte first, then the port.
func parseSocketAddress(text string) (netip.Addr, int, error) {
	hexAddress, hexPort, _ := strings.Cut(text, ":")
	raw, err := hex.DecodeString(hexAddress)
	if err != nil || len(raw)%4 != 0 {
		return netip.Addr{}, 0, fmt.Errorf("%q is no address", text)
	}
	for word := range slices.Chunk(raw, 4) {
		slices.Reverse(word)
	}
	address, ok := netip.AddrFromSlice(raw)
	port, err := strconv.ParseUint(hexPort, 16, 16)
	if !ok || err != nil {
		return netip.Addr{}, 0, fmt.Errorf("%q is no address", text)
	}
	return address, int(port), nil
}

// socketOwners finds the process ids that have one of the sockets open.
func socketOwners(sockets []Listener) map[string]int {
	wanted := map[string]string{}
	for _, socket := range sockets {
		wanted["socket:["+socket.Inode+"]"] = socket.Inode
	}
	owners := map[string]int{}
	descriptors, err := filepath.Glob("/proc/[0-9]*/fd/*")
	if err != nil {
		return owners
	}
	for _, descriptor := range descriptors {
		target, err := os.Readlink(descriptor)
		if err != nil {
			continue
		}
		if inode, ok := wanted[target]; ok {
			if pid, err := strconv.Atoi(strings.Split(descriptor, "/")[2]); err == nil {
				owners[inode] = pid
			}
		}
	}
	return owners
}

func programName(pid int) string {
	name, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(name))
}

// otherAddresses returns the IPv4 addresses of all interfaces that are not the
// cluster's, with the interface's name.
func otherAddresses() (map[netip.Prefix]string, error) {
	interfaces, err := net.Interfaces()
	if err != nil {
		return nil, err
	}
	found := map[netip.Prefix]string{}
	for _, one := range interfaces {
		if one.Name == layout.Bridge || one.Name == layout.PodBridge {
			continue
		}
		addresses, err := one.Addrs()
		if err != nil {
			continue // the interface went away
		}
		for _, address := range addresses {
			if prefix, err := netip.ParsePrefix(address.String()); err == nil && prefix.Addr().Is4() {
				found[prefix] = one.Name
			}
		}
	}
	return found, nil
}
