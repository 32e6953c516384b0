package agent

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

func TestFilesOfTheHost(t *testing.T) {
	root := t.TempDir()
	host := NewSystemdHost(root)
	if _, err := host.ReadFile("/run/ostree/auth.json"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a file that is not there: %v", err)
	}
	for _, content := range []string{"first", "2"} {
		if err := host.WriteFile("/run/ostree/auth.json", []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := host.ReadFile("/run/ostree/auth.json")
		if err != nil || string(got) != content {
			t.Errorf("read %q, %v; want %q", got, err, content)
		}
	}
	info, err := os.Stat(filepath.Join(root, "run/ostree/auth.json"))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	entries, err := os.ReadDir(filepath.Join(root, "run/ostree"))
	if err != nil || len(entries) != 1 {
		t.Errorf("beside the file: %v, %v", entries, err)
	}
	for range 2 {
		if err := host.RemoveFile("/run/ostree/auth.json"); err != nil {
			t.Error(err)
		}
	}
}

func TestFilesStayBelowTheRoot(t *testing.T) {
	if got, want := NewSystemdHost("/proc/1/root").hostPath("../../etc/shadow"), "/proc/1/root/etc/shadow"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestFilesLongerThanSensibleAreRefused(t *testing.T) {
	host := NewSystemdHost(t.TempDir())
	if err := host.WriteFile("/x", make([]byte, maxFileBytes+1), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := host.ReadFile("/x"); err == nil {
		t.Error("read")
	}
	if tail, err := host.readTail("/x"); err != nil || len(tail) != maxTailBytes {
		t.Errorf("tail of %d bytes, %v", len(tail), err)
	}
}

func TestPullSecretIsReadByRollout(t *testing.T) {
	directory := t.TempDir()
	if err := os.WriteFile(filepath.Join(directory, "worker"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	tests := map[string]struct {
		rollout, want string
		ok            bool
	}{
		"the rollout's key":       {"worker", "x", true},
		"a key that is not there": {"other", "", true},
		"a path":                  {"../worker", "", false},
		"the directory above":     {"..", "", false},
		"no name":                 {"", "", false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := readPullSecret(directory, test.rollout)
			if string(got) != test.want || (err == nil) != test.ok {
				t.Errorf("got %q, %v", string(got), err)
			}
		})
	}
}
