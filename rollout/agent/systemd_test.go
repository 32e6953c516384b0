//go:build systemd

package agent

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// testUnit is none that a real agent uses.
const testUnit = "imagemode-test.service"

// newTestHost is the system that the test runs on: it has to run systemd. The
// end-to-end test runs these tests in a machine of the local cluster.
func newTestHost(t *testing.T) (context.Context, *SystemdHost) {
	t.Helper()
	if _, err := os.Stat("/run/systemd/private"); err != nil || os.Getuid() != 0 {
		t.Fatal("needs root on a system that runs systemd")
	}
	host := NewSystemdHost("/")
	ctx := context.Background()
	t.Cleanup(func() {
		if err := host.Forget(ctx, testUnit); err != nil {
			t.Error(err)
		}
		host.Close()
	})
	return ctx, host
}

func shell(script string) []string { return []string{"/bin/sh", "-c", script} }

func TestSystemdRunsACommandOnTheHost(t *testing.T) {
	ctx, host := newTestHost(t)
	tests := map[string]struct {
		script string
		want   Output
	}{
		"that succeeds":                   {"echo out; echo err >&2", Output{Result: "success", Stdout: "out\n", Stderr: "err\n"}},
		"that fails":                      {"echo bad >&2; exit 3", Output{ExitCode: 3, Result: "exit-code", Stderr: "bad\n"}},
		"that is killed":                  {"kill -9 $$", Output{ExitCode: -1, Result: "signal"}},
		"that prints less than before":    {"echo x", Output{Result: "success", Stdout: "x\n"}},
		"without the mark of a container": {`echo "${container-none}"`, Output{Result: "success", Stdout: "none\n"}},
		"with a path of its own":          {`echo "$PATH"`, Output{Result: "success", Stdout: "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin\n"}},
		"with a word that a shell reads":  {`echo '$(id) "x"'`, Output{Result: "success", Stdout: "$(id) \"x\"\n"}},
		"with a per cent sign":            {`echo %n`, Output{Result: "success", Stdout: "%n\n"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := host.Run(ctx, testUnit, shell(test.script), time.Minute)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("output (-want +got):\n%s", diff)
			}
		})
	}
}

func TestSystemdStopsACommandThatTakesTooLong(t *testing.T) {
	ctx, host := newTestHost(t)
	_, err := host.Run(ctx, testUnit, shell("exec sleep 60"), time.Second)
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error %v, want a deadline exceeded", err)
	}
}

func TestSystemdReportsAProgramThatIsNotThere(t *testing.T) {
	ctx, host := newTestHost(t)
	output, err := host.Run(ctx, testUnit, []string{"/nonexistent", "x"}, time.Minute)
	if err != nil || output.Succeeded() {
		t.Errorf("output %+v, error %v, want a failure in the output", output, err)
	}
}

// TestSystemdFindsACommandAgain: another process, with a connection of its own,
// sees the command run and end, and cannot start a second one beside it.
func TestSystemdFindsACommandAgain(t *testing.T) {
	ctx, host := newTestHost(t)
	arguments := shell("echo begin; sleep $((1 + 1)); echo $$ >/dev/null; echo end")
	if err := host.Start(ctx, testUnit, arguments, time.Minute); err != nil {
		t.Fatal(err)
	}
	host.Close()
	other := NewSystemdHost("/proc/1/root")
	defer other.Close()
	command, err := other.Command(ctx, testUnit)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(arguments, command.Arguments); diff != "" || command.State != CommandRunning {
		t.Errorf("state %q, arguments (-want +got):\n%s", command.State, diff)
	}
	if age := time.Since(command.Started); age < 0 || age > time.Minute {
		t.Errorf("started %s ago", age)
	}
	if err := other.Start(ctx, testUnit, arguments, time.Minute); err == nil || !strings.Contains(err.Error(), testUnit) {
		t.Errorf("a second start: %v, want an error", err)
	}
	command, err = other.await(ctx, testUnit)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(Output{Result: "success", Stdout: "begin\nend\n"}, command.Output); diff != "" || command.State != CommandFinished {
		t.Errorf("state %q, output (-want +got):\n%s", command.State, diff)
	}
	if err := other.Forget(ctx, testUnit); err != nil {
		t.Fatal(err)
	}
	if command, err := other.Command(ctx, testUnit); err != nil || command.State != CommandNone {
		t.Errorf("after Forget: %+v, %v", command, err)
	}
}

// TestSystemdLetsPodsGoFirst: an image is written while they are at work.
func TestSystemdLetsPodsGoFirst(t *testing.T) {
	ctx, host := newTestHost(t)
	if err := host.Start(ctx, testUnit, shell("exec sleep 60"), time.Minute); err != nil {
		t.Fatal(err)
	}
	said, err := exec.Command("systemctl", "show", "--property=IOWeight", "--value", testUnit).CombinedOutput()
	if got := strings.TrimSpace(string(said)); err != nil || got != "20" {
		t.Errorf("IOWeight %s, %v", got, err)
	}
}

func TestSystemdForgetStopsACommand(t *testing.T) {
	ctx, host := newTestHost(t)
	if err := host.Start(ctx, testUnit, shell("exec sleep 60"), time.Minute); err != nil {
		t.Fatal(err)
	}
	if err := host.Forget(ctx, testUnit); err != nil {
		t.Fatal(err)
	}
	if command, err := host.Command(ctx, testUnit); err != nil || command.State != CommandNone {
		t.Errorf("after Forget: %+v, %v", command, err)
	}
}
