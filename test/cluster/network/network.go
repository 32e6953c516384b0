// Package network connects the host, the machines and the pods: one bridge that
// carries the API server's and the registry's address, routes to the pod
// networks inside the machines, and address translation towards the outside.
package network

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"

	"github.com/vishvananda/netlink"

	"github.com/imagemode/imagemode/test/cluster/layout"
)

// Ensure makes bridge, address, routes and rules where they are missing.
// previousForwarding receives what ip_forward was before, for Remove.
func Ensure(ctx context.Context, previousForwarding string) error {
	if err := ensureBridge(); err != nil {
		return err
	}
	if err := enableForwarding(previousForwarding); err != nil {
		return err
	}
	if err := ensureRules(ctx); err != nil {
		return err
	}
	return ensureRoutes()
}

func ensureBridge() error {
	link, err := netlink.LinkByName(layout.Bridge)
	if isMissing(err) {
		attributes := netlink.NewLinkAttrs()
		attributes.Name = layout.Bridge
		if err := netlink.LinkAdd(&netlink.Bridge{LinkAttrs: attributes}); err != nil {
			return fmt.Errorf("bridge %s cannot be made: %w", layout.Bridge, err)
		}
		link, err = netlink.LinkByName(layout.Bridge)
	}
	if err != nil {
		return err
	}
	address, err := netlink.ParseAddr(fmt.Sprintf("%s/%d", layout.HostIP, layout.PrefixLength))
	if err != nil {
		return err
	}
	if err := netlink.AddrReplace(link, address); err != nil {
		return fmt.Errorf("address %s cannot be given to bridge %s: %w", address, layout.Bridge, err)
	}
	return netlink.LinkSetUp(link)
}

// ensureRoutes sends each machine's pod network to the machine. The routes go
// with the bridge.
func ensureRoutes() error {
	for _, machine := range layout.Machines {
		_, destination, err := net.ParseCIDR(machine.PodCIDR)
		if err != nil {
			return err
		}
		route := &netlink.Route{Dst: destination, Gw: net.ParseIP(machine.IP)}
		if err := netlink.RouteReplace(route); err != nil {
			return fmt.Errorf("route to %s by %s cannot be set: %w", destination, machine.IP, err)
		}
	}
	return nil
}

// Healthy reports what is missing, or nil.
func Healthy(ctx context.Context) error {
	link, err := netlink.LinkByName(layout.Bridge)
	if isMissing(err) {
		return fmt.Errorf("bridge %s is missing", layout.Bridge)
	}
	if err != nil {
		return err
	}
	addresses, err := netlink.AddrList(link, netlink.FAMILY_V4)
	if err != nil {
		return err
	}
	for _, address := range addresses {
		if address.IP.String() == layout.HostIP {
			return rulesPresent(ctx)
		}
	}
	return fmt.Errorf("bridge %s does not have address %s", layout.Bridge, layout.HostIP)
}

// Interfaces returns the cluster's interfaces that exist: its two bridges and
// whatever is attached to them.
func Interfaces() ([]string, error) {
	links, err := netlink.LinkList()
	if err != nil {
		return nil, err
	}
	ours := map[int]bool{}
	var names []string
	for _, link := range links {
		if name := link.Attrs().Name; name == layout.Bridge || name == layout.PodBridge {
			ours[link.Attrs().Index] = true
			names = append(names, name)
		}
	}
	for _, link := range links {
		if ours[link.Attrs().MasterIndex] {
			names = append(names, link.Attrs().Name)
		}
	}
	return names, nil
}

// Remove deletes interfaces and rules and puts ip_forward back to what the file
// previousForwarding says.
func Remove(ctx context.Context, previousForwarding string) error {
	names, err := Interfaces()
	if err != nil {
		return err
	}
	for _, name := range names {
		if err := deleteLink(name); err != nil {
			return err
		}
	}
	if err := removeRules(ctx); err != nil {
		return err
	}
	return restoreForwarding(previousForwarding)
}

func deleteLink(name string) error {
	link, err := netlink.LinkByName(name)
	if isMissing(err) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := netlink.LinkDel(link); err != nil && !errors.Is(err, syscall.ENODEV) {
		return fmt.Errorf("interface %s cannot be removed: %w", name, err)
	}
	return nil
}

func isMissing(err error) bool {
	var missing netlink.LinkNotFoundError
	return errors.As(err, &missing)
}

// forwarding lets the kernel pass packets between the pods' interfaces.
const forwarding = "/proc/sys/net/ipv4/ip_forward"

func enableForwarding(previous string) error {
	current, err := os.ReadFile(forwarding)
	if err != nil {
		return err
	}
	if _, err := os.Stat(previous); err != nil {
		if err := os.WriteFile(previous, current, 0o600); err != nil {
			return err
		}
	}
	return os.WriteFile(forwarding, []byte("1\n"), 0o644)
}

func restoreForwarding(previous string) error {
	value, err := os.ReadFile(previous)
	if err != nil {
		return nil // never changed
	}
	return os.WriteFile(forwarding, value, 0o644)
}

// run executes iptables; -w waits for other users of the tables.
func run(ctx context.Context, args ...string) error {
	output, err := exec.CommandContext(ctx, "iptables", append([]string{"-w", "10"}, args...)...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("iptables %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(string(output)))
	}
	return nil
}
