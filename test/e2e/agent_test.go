//go:build e2e

package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/imagemode/imagemode/test/e2e/story"
)

// testAgentOnSystemd runs the agent's tests of what it asks of systemd inside a
// machine that runs systemd: this system may have another init.
func testAgentOnSystemd(t *testing.T, told *story.Story, machine string) {
	tags := os.Getenv("TAGS") + ",systemd"
	program := filepath.Join(t.TempDir(), "agent.test")
	compile := exec.CommandContext(t.Context(), "go", "test", "-c", "-tags", tags, "-o", program, "./rollout/agent")
	compile.Dir = told.Cluster.Root
	if said, err := compile.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, said)
	}
	const path = "/var/tmp/agent.test"
	if err := told.Cluster.Install(t.Context(), machine, program, path); err != nil {
		t.Fatal(err)
	}
	said, err := told.Cluster.Exec(t.Context(), machine, path, "-test.v", "-test.run", "^TestSystemd")
	if err != nil {
		t.Fatal(err)
	}
	t.Log(said)
}
