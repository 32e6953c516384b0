package story

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/imagemode/imagemode/test/builders"
)

func booted(bootID string) func(*corev1.Node) {
	return func(node *corev1.Node) { node.Status.NodeInfo.BootID = bootID }
}

// observation is a state of a node at a second.
type observation struct {
	second  int
	name    string
	options []func(*corev1.Node)
}

func TestWorkersRecordWhatHappensToNodes(t *testing.T) {
	up := func(second int, name string, options ...func(*corev1.Node)) observation {
		return observation{second, name, options}
	}
	tests := map[string]struct {
		observations   []observation
		maxUnavailable int
		disturbances   int
		outage         []time.Duration // of node a
	}{
		"nothing happened": {
			observations: []observation{up(0, "a"), up(0, "b"), up(9, "a")},
		},
		"a node that is cordoned, reboots and is uncordoned was out of service in between": {
			observations:   []observation{up(0, "a"), up(0, "b"), up(1, "a", builders.Cordoned), up(20, "a", builders.Cordoned, booted("boot-2")), up(31, "a", booted("boot-2"))},
			maxUnavailable: 1, disturbances: 2, outage: []time.Duration{30 * time.Second},
		},
		"a node that reboots between two looks is noticed by its boot id": {
			observations: []observation{up(0, "a"), up(9, "a", booted("boot-2"))},
			disturbances: 1,
		},
		"one node not ready and another cordoned are two at the same time": {
			observations:   []observation{up(0, "a"), up(0, "b"), up(1, "a", builders.Cordoned), up(2, "b", builders.NotReady)},
			maxUnavailable: 2, disturbances: 1,
		},
		"one after the other is one at a time": {
			observations:   []observation{up(0, "a"), up(0, "b"), up(1, "a", builders.Cordoned), up(2, "a"), up(3, "b", builders.Cordoned), up(4, "b")},
			maxUnavailable: 1, disturbances: 2, outage: []time.Duration{time.Second},
		},
		"a node out of service from the beginning counts": {
			observations:   []observation{up(0, "a", builders.NotReady)},
			maxUnavailable: 1,
		},
	}
	for sentence, test := range tests {
		t.Run(sentence, func(t *testing.T) {
			start := time.Now()
			workers := newWorkers(func(format string, arguments ...any) { t.Log(fmt.Sprintf(format, arguments...)) })
			for _, seen := range test.observations {
				workers.observe(builders.Node(seen.name, "worker", seen.options...), start.Add(time.Duration(seen.second)*time.Second))
			}
			if got := workers.MaxUnavailable(); got != test.maxUnavailable {
				t.Errorf("at most %d were unavailable, want %d", got, test.maxUnavailable)
			}
			if got := workers.Disturbances(); len(got) != test.disturbances {
				t.Errorf("disturbances: %v, want %d", got, test.disturbances)
			}
			if diff := cmp.Diff(test.outage, workers.Outages()["a"]); diff != "" {
				t.Errorf("outages of node a (-want +got):\n%s", diff)
			}
		})
	}
}
