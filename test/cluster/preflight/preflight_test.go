package preflight

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// suitable is a machine the cluster can run on.
func suitable() Machine {
	return Machine{
		Filesystems: []string{"nodev", "proc", "nodev", "overlay"},
		Free:        map[string]uint64{"/state": 20 * GiB},
		Addresses:   map[netip.Prefix]string{netip.MustParsePrefix("192.0.2.2/24"): "eth0"},
	}
}

var requirements = Requirements{
	Space: map[string]uint64{"/state": 15 * GiB},
	Ports: []Port{{"10.89.0.1", 6443, "kube-apiserver"}, {"127.0.0.1", 2379, "etcd"}},
	Own:   []int{77},
	Stray: []int{77, 78},
}

func listener(address string, port, pid int) Listener {
	return Listener{Address: netip.MustParseAddr(address), Port: port, PID: pid, Program: "nginx"}
}

func TestProblems(t *testing.T) {
	for sentence, test := range map[string]struct {
		change func(*Machine)
		want   string // part of the one problem; empty for none
	}{
		"a suitable machine": {change: func(*Machine) {}},
		"a port taken on the very address": {
			change: func(m *Machine) { m.Listeners = []Listener{listener("127.0.0.1", 2379, 12)} },
			want:   "port 2379 on 127.0.0.1 is taken by process 12 (nginx), etcd needs it",
		},
		"a port taken on all addresses": {
			change: func(m *Machine) { m.Listeners = []Listener{listener("0.0.0.0", 6443, 12)} },
			want:   "port 6443 on 10.89.0.1",
		},
		"a port taken on all addresses of IPv6, which takes IPv4 too": {
			change: func(m *Machine) { m.Listeners = []Listener{listener("::", 6443, 12)} },
			want:   "port 6443 on 10.89.0.1",
		},
		"a port taken by a process that cannot be seen": {
			change: func(m *Machine) { m.Listeners = []Listener{listener("::", 6443, 0)} },
			want:   "an unknown process",
		},
		"a port used on another address": {
			change: func(m *Machine) { m.Listeners = []Listener{listener("192.0.2.2", 6443, 12)} },
		},
		"a port used by the cluster itself": {
			change: func(m *Machine) { m.Listeners = []Listener{listener("10.89.0.1", 6443, 77)} },
		},
		"a port taken by what a broken cluster left": {
			change: func(m *Machine) { m.Listeners = []Listener{listener("127.0.0.1", 2379, 78)} },
			want:   "left over from an earlier cluster, run down first",
		},
		"too little disk": {
			change: func(m *Machine) { m.Free["/state"] = 3 * GiB },
			want:   "/state has 3.0 GiB free, the local cluster needs 15 GiB",
		},
		"an interface inside the node network": {
			change: func(m *Machine) { m.Addresses[netip.MustParsePrefix("10.89.0.200/16")] = "eth1" },
			want:   "interface eth1 has address 10.89.0.200/16",
		},
		"no overlay file system": {
			change: func(m *Machine) { m.Filesystems = []string{"ext4"} },
			want:   "modprobe overlay",
		},
	} {
		t.Run(sentence, func(t *testing.T) {
			machine := suitable()
			test.change(&machine)
			problems := Problems(machine, requirements)
			if test.want == "" {
				if len(problems) > 0 {
					t.Fatalf("problems: %v", problems)
				}
				return
			}
			if len(problems) != 1 || !strings.Contains(problems[0].Error(), test.want) {
				t.Fatalf("problems %v, want one with %q", problems, test.want)
			}
			if strings.Contains(problems[0].Error(), "\n") {
				t.Error("more than one line")
			}
		})
	}
}

func TestParseSockets(t *testing.T) {
	const header = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
	for sentence, test := range map[string]struct {
		content string
		want    []Listener
	}{
		"IPv4, one listening and one connected": {
			content: header +
				"   0: 0100007F:094B 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4242 1\n" +
				"   1: 0100007F:094B 0100007F:9999 01 00000000:00000000 00:00000000 00000000     0        0 4243 1\n",
			want: []Listener{{Address: netip.MustParseAddr("127.0.0.1"), Port: 2379, Inode: "4242"}},
		},
		"IPv6, all addresses": {
			content: header +
				"   0: 00000000000000000000000000000000:192B 00000000000000000000000000000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 7 1\n",
			want: []Listener{{Address: netip.MustParseAddr("::"), Port: 6443, Inode: "7"}},
		},
		"IPv4 in IPv6": {
			content: header +
				"   0: 0000000000000000FFFF00000100590A:192B 00000000000000000000000000000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 7 1\n",
			want: []Listener{{Address: netip.MustParseAddr("::ffff:10.89.0.1"), Port: 6443, Inode: "7"}},
		},
		"no socket": {content: header},
	} {
		t.Run(sentence, func(t *testing.T) {
			got, err := parseSockets(test.content)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, got, cmpopts.EquateComparable(netip.Addr{})); diff != "" {
				t.Error(diff)
			}
		})
	}
}
