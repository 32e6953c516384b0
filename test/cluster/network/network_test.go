package network

import (
	"context"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"

	"github.com/imagemode/imagemode/test/cluster/layout"
)

// isolate moves the test's thread to an empty network namespace. Interfaces,
// iptables and ip_forward are then the namespace's own, and go with the thread.
func isolate(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("needs root: makes network interfaces, in a namespace of its own")
	}
	runtime.LockOSThread() // never unlocked: the thread must not run other tests
	if err := syscall.Unshare(syscall.CLONE_NEWNET); err != nil {
		t.Fatalf("no network namespace can be made here: %v", err)
	}
}

func TestEnsureRepairsAndRemoveLeavesNothing(t *testing.T) {
	isolate(t)
	if err := os.WriteFile(forwarding, []byte("0\n"), 0o644); err != nil { // else it is as on the host
		t.Fatal(err)
	}
	ctx, previous := context.Background(), filepath.Join(t.TempDir(), "ip_forward")
	for range 2 {
		if err := Ensure(ctx, previous); err != nil {
			t.Fatal(err)
		}
	}
	if err := Healthy(ctx); err != nil {
		t.Fatal(err)
	}

	for sentence, breakIt := range map[string]func() error{
		"the bridge was deleted": func() error { return deleteLink(layout.Bridge) },
		"a chain was flushed":    func() error { return run(ctx, "-t", "nat", "-F", chains[1].name) },
		"a jump was deleted": func() error {
			return run(ctx, "-t", "filter", "-D", chains[0].parent, "-j", chains[0].name)
		},
	} {
		t.Log(sentence)
		if err := breakIt(); err != nil {
			t.Fatal(err)
		}
		if Healthy(ctx) == nil {
			t.Errorf("%s: reported as healthy", sentence)
		}
		if err := Ensure(ctx, previous); err != nil {
			t.Fatal(err)
		}
		if err := Healthy(ctx); err != nil {
			t.Errorf("%s: not repaired: %v", sentence, err)
		}
	}

	for range 2 {
		if err := Remove(ctx, previous); err != nil {
			t.Fatal(err)
		}
	}
	names, err := Interfaces()
	if err != nil || len(names) > 0 || len(Chains(ctx)) > 0 {
		t.Errorf("left: interfaces %v, chains %v, %v", names, Chains(ctx), err)
	}
	if value, err := os.ReadFile(forwarding); err != nil || strings.TrimSpace(string(value)) != "0" {
		t.Errorf("ip_forward is %q, was 0 before (%v)", value, err)
	}
}

func TestInterfacesAlsoFindsWhatIsAttachedToTheBridge(t *testing.T) {
	isolate(t)
	if err := ensureBridge(); err != nil {
		t.Fatal(err)
	}
	bridge, err := netlink.LinkByName(layout.Bridge)
	if err != nil {
		t.Fatal(err)
	}
	attributes := netlink.NewLinkAttrs()
	attributes.Name, attributes.MasterIndex = "vb-worker-1", bridge.Attrs().Index
	if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: attributes, PeerName: "host0"}); err != nil {
		t.Fatal(err)
	}
	names, err := Interfaces()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{layout.Bridge, "vb-worker-1"}, names); diff != "" {
		t.Error(diff)
	}
}
