//go:build e2e

// Package e2e tests imagemode on the local cluster. "make e2e" starts the
// cluster, runs the tests and stops it.
package e2e

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/imagemode/imagemode/test/e2e/local"
	"github.com/imagemode/imagemode/test/e2e/story"
)

// maxWorkersOut is how many workers may be out of service at the same time:
// the pool leaves maxUnavailable at its default.
const maxWorkersOut = 1

// TestSlice is the main job: from an empty cluster to two machines that run an
// image the cluster built, checked from inside the machines.
func TestSlice(t *testing.T) {
	told := begin(t)
	run(t, told, told.Reset())
	run(t, told, told.Install()...)
	t.Run("bad input", func(t *testing.T) { testBadInput(t, told) })
	t.Run("the agent on systemd", func(t *testing.T) { testAgentOnSystemd(t, told, told.Workers.Names()[0]) })
	run(t, told, told.Build()...)
	run(t, told, told.Release()...)

	for _, machine := range told.Workers.Names() {
		t.Run(machine, func(t *testing.T) { testMachine(t, told, machine) })
	}
	if out := told.Workers.MaxUnavailable(); out > maxWorkersOut {
		t.Errorf("%d workers were out of service at the same time, want at most %d", out, maxWorkersOut)
	}
	for machine, reboots := range told.Workers.Reboots() {
		if reboots != 1 {
			t.Errorf("%s rebooted %d times, want once", machine, reboots)
		}
	}
	if available := told.Workload.Minimum(); available < 1 {
		t.Errorf("%d pods of the workload were available at the same time, want its budget's minimum, 1", available)
	}
	told.Summary()

	t.Run("a build that fails four times, and heals", func(t *testing.T) { testFailingBuild(t, told) })
	t.Run("a build that is disturbed", func(t *testing.T) { testInterruption(t, told) })
	t.Run("a MachineOSConfig made again under pause", func(t *testing.T) { testRecreation(t, told) })
	t.Run("a deleted MachineOSConfig", func(t *testing.T) { testDeletion(t, told) })
}

// begin connects to the running cluster. When the test fails, it prints a
// diagnosis before anything is taken down.
func begin(t *testing.T) *story.Story {
	t.Helper()
	cluster, err := local.Find(t.Output())
	if err != nil {
		t.Fatal(err)
	}
	told := &story.Story{
		Cluster: cluster,
		Log:     story.NewLog(t.Output()),
		Text:    "written by the end-to-end test at " + time.Now().Format(time.RFC3339Nano) + "\n",
	}
	if err := told.Begin(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			told.Diagnose()
		}
	})
	return told
}

func run(t *testing.T, told *story.Story, phases ...story.Phase) {
	t.Helper()
	if err := told.Log.Run(t.Context(), phases...); err != nil {
		t.Fatal(err)
	}
}

// testMachine looks at a machine from the inside.
func testMachine(t *testing.T, told *story.Story, machine string) {
	if got := inMachine(t, told, machine, "cat", story.ConfigFile); got+"\n" != told.Text {
		t.Errorf("%s holds %q, want the MachineConfig's %q", story.ConfigFile, got, told.Text)
	}
	if got := inMachine(t, told, machine, "systemctl", "is-active", story.Unit); got != "active" {
		t.Errorf("unit %s is %s, want active", story.Unit, got)
	}
	if got := inMachine(t, told, machine, story.Program, "ok"); strings.TrimSpace(got) == "" {
		t.Errorf("%s, which the Containerfile installs, prints nothing", story.Program)
	}
	if got := bootedDigest(t, told, machine); !strings.HasSuffix(told.Image, "@"+got) {
		t.Errorf("bootc says that %s is booted, want MachineOSConfig.status.currentImagePullSpec, %s", got, told.Image)
	}
	image, err := told.NodeImage(t.Context(), machine)
	if err != nil {
		t.Fatal(err)
	}
	if image.Status.Booted == nil || !strings.HasSuffix(told.Image, "@"+image.Status.Booted.Digest) {
		t.Errorf("NodeImage says that %+v is booted, want %s", image.Status.Booted, told.Image)
	}
}

func inMachine(t *testing.T, told *story.Story, machine string, command ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	output, err := told.Cluster.Exec(ctx, machine, command...)
	if err != nil {
		t.Fatal(err)
	}
	return output
}

// bootedDigest asks bootc in the machine.
func bootedDigest(t *testing.T, told *story.Story, machine string) string {
	t.Helper()
	output := inMachine(t, told, machine, "bootc", "status", "--json", "--format-version=1")
	var host struct {
		Status struct {
			Booted struct {
				Image struct {
					ImageDigest string `json:"imageDigest"`
				} `json:"image"`
			} `json:"booted"`
		} `json:"status"`
	}
	if err := json.Unmarshal([]byte(output), &host); err != nil {
		t.Fatalf("bootc status on %s: %v in %s", machine, err, output)
	}
	return host.Status.Booted.Image.ImageDigest
}
