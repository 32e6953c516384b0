package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/imagemode/imagemode/test/bootc/host"
)

func TestExitCodes(t *testing.T) {
	t.Setenv("container", "oci")
	tests := map[string]struct {
		arguments []string
		want      int
	}{
		"help":                               {[]string{"--help"}, 0},
		"no verb":                            {nil, 2},
		"an unknown verb":                    {[]string{"frobnicate"}, 2},
		"an unknown verb of container":       {[]string{"container", "frobnicate"}, 2},
		"an unknown flag":                    {[]string{"switch", "--frobnicate", "x"}, 2},
		"a switch without a target":          {[]string{"switch"}, 2},
		"an upgrade with a target":           {[]string{"upgrade", "x"}, 2},
		"check and apply":                    {[]string{"upgrade", "--check", "--apply"}, 2},
		"download only and apply":            {[]string{"upgrade", "--download-only", "--apply"}, 2},
		"from downloaded and download only":  {[]string{"upgrade", "--from-downloaded", "--download-only"}, 2},
		"a switch to a locked stage, now":    {[]string{"switch", "--download-only", "--apply", "x"}, 2},
		"a format that is none":              {[]string{"status", "--format", "xml"}, 2},
		"a format version that is none":      {[]string{"status", "--format-version", "2"}, 1},
		"a switch in a container":            {[]string{"switch", "x"}, 1},
		"an upgrade in a container":          {[]string{"upgrade"}, 1},
		"status in a container succeeds":     {[]string{"status", "--json"}, 0},
		"lint of a root that does not exist": {[]string{"container", "lint", "--rootfs", "/does/not/exist"}, 1},
		"the list of lints":                  {[]string{"container", "lint", "--list"}, 0},
	}
	for sentence, test := range tests {
		t.Run(sentence, func(t *testing.T) {
			h := &host.Host{Sysroot: t.TempDir(), Run: t.TempDir(), Root: t.TempDir(), Out: io.Discard, Progress: io.Discard}
			if got := run(context.Background(), h, test.arguments); got != test.want {
				t.Errorf("exit code is %d, want %d", got, test.want)
			}
		})
	}
}

func TestStatusInAContainerIsAllNull(t *testing.T) {
	t.Setenv("container", "oci")
	var out bytes.Buffer
	h := &host.Host{Sysroot: t.TempDir(), Run: t.TempDir(), Root: t.TempDir()}
	if err := printStatus(h, statusOptions{json: true, formatVersion: 1}, &out); err != nil {
		t.Fatal(err)
	}
	var got map[string]any
	if err := json.Unmarshal(out.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	want := map[string]any{
		"apiVersion": "org.containers.bootc/v1", "kind": "BootcHost", "metadata": map[string]any{"name": "host"},
		"spec":   map[string]any{"image": nil, "bootOrder": "default"},
		"status": map[string]any{"staged": nil, "booted": nil, "rollback": nil, "rollbackQueued": false, "type": nil},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("status (-want +got):\n%s", diff)
	}
}

func TestAnOlderBootcDoesNotKnowAFlag(t *testing.T) {
	t.Setenv("container", "oci")
	h := &host.Host{Sysroot: t.TempDir(), Run: t.TempDir(), Root: t.TempDir(), Out: io.Discard, Progress: io.Discard}
	if got := run(context.Background(), h, []string{"switch", "--download-only", "--help"}); got != 0 {
		t.Fatalf("exit code %d", got)
	}
	faults := []byte(`{"without":["switch --download-only"]}`)
	if err := os.WriteFile(filepath.Join(h.Sysroot, "faults.json"), faults, 0o644); err != nil {
		t.Fatal(err)
	}
	if got := run(context.Background(), h, []string{"switch", "--download-only", "x"}); got != 2 {
		t.Errorf("exit code %d, want 2", got)
	}
	if got := run(context.Background(), h, []string{"switch", "--quiet", "--help"}); got != 0 {
		t.Errorf("another flag: exit code %d, want 0", got)
	}
}
