package builder

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// supervisedVariable makes this test program the parent of an isolated build
// that starts a program with its value as an argument and does not heed SIGTERM.
const supervisedVariable = "IMAGEMODE_TEST_SUPERVISED"

// playIsolated gives the exit status of a process that plays a part in the
// tests below; ok is false in any other.
func playIsolated() (status int, ok bool) {
	marker := os.Getenv(supervisedVariable)
	if marker == "" {
		return 0, false
	}
	if EnterIsolation() {
		return playBuild(marker), true
	}
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGTERM)
	defer stop()
	err := Isolate(ctx)
	var exit *ExitError
	if errors.As(err, &exit) && exit.Signal == unix.SIGKILL {
		return 9, true
	}
	fmt.Fprintln(os.Stderr, err)
	return 1, true
}

// playBuild leaves a program and a mount behind when it is killed.
func playBuild(marker string) int {
	signal.Ignore(unix.SIGTERM)
	if err := unix.Mount("tmpfs", marker, "tmpfs", 0, ""); err != nil {
		fmt.Println("mount:", err)
		return 1
	}
	program := exec.Command("/bin/sh", "-c", "sleep 1000; : "+marker)
	if err := program.Start(); err != nil {
		fmt.Println("sh:", err)
		return 1
	}
	seen, err := filepath.Glob("/proc/[0-9]*")
	fmt.Println("ready", os.Getpid(), len(seen) < 10, err)
	time.Sleep(time.Minute)
	return 0
}

func TestNothingOutlivesAKilledBuild(t *testing.T) {
	for name, test := range map[string]struct {
		signal unix.Signal
		within time.Duration
	}{
		"its parent is killed":                  {unix.SIGKILL, 2 * time.Second},
		"its parent is told to stop, it is not": {unix.SIGTERM, killDelay + 3*time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			marker := t.TempDir()
			parent := exec.Command("/proc/self/exe")
			parent.Env = append(os.Environ(), supervisedVariable+"="+marker)
			parent.Stderr = os.Stderr
			output, err := parent.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := parent.Start(); err != nil {
				t.Fatal(err)
			}
			line, err := bufio.NewReader(output).ReadString('\n')
			if line != "ready 1 true <nil>\n" {
				t.Fatalf("the build said %q, %v", line, err)
			}
			if len(processesOf(t, marker)) == 0 {
				t.Fatal("the program of the build is not running")
			}
			if err := parent.Process.Signal(test.signal); err != nil {
				t.Fatal(err)
			}
			deadline := time.Now().Add(test.within)
			for len(processesOf(t, marker)) > 0 {
				if time.Now().After(deadline) {
					t.Fatalf("still there: %v", processesOf(t, marker))
				}
				time.Sleep(20 * time.Millisecond)
			}
			_ = parent.Wait() // it was told to end with an error
			if test.signal == unix.SIGTERM && parent.ProcessState.ExitCode() != 9 {
				t.Errorf("its parent ended with %s", parent.ProcessState)
			}
			mounts, err := os.ReadFile("/proc/self/mounts")
			if err != nil || strings.Contains(string(mounts), marker) {
				t.Errorf("a mount is left, %v", err)
			}
		})
	}
}

// processesOf gives the command lines with a text in them.
func processesOf(t *testing.T, text string) []string {
	t.Helper()
	paths, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, path := range paths {
		if line, err := os.ReadFile(path); err == nil && strings.Contains(string(line), text) {
			found = append(found, strings.ReplaceAll(string(line), "\x00", " "))
		}
	}
	return found
}
