package main

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/imagemode/imagemode/builder"
	"github.com/imagemode/imagemode/builder/request"
)

func TestTheResultOfABuildThatCouldNotWriteIt(t *testing.T) {
	stopped, stop := context.WithCancel(context.Background())
	stop()
	for name, test := range map[string]struct {
		ctx   context.Context
		exit  builder.ExitError
		class request.FailureClass
	}{
		"killed for its memory":           {context.Background(), builder.ExitError{Signal: unix.SIGKILL}, request.Resources},
		"killed because it did not stop":  {stopped, builder.ExitError{Signal: unix.SIGKILL}, request.Internal},
		"failed and has written a result": {context.Background(), builder.ExitError{Code: 1}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "result")
			if err := reportKilled(test.ctx, buildOptions{result: path}, &test.exit); err == nil {
				t.Error("it is no error")
			}
			message, err := os.ReadFile(path)
			if test.class == "" {
				if !os.IsNotExist(err) {
					t.Errorf("the result was written over: %s", message)
				}
				return
			}
			result, err := request.DecodeResult(message)
			if err != nil || result.Failure.Class != test.class {
				t.Errorf("%s, %v", message, err)
			}
		})
	}
}

// TestTheExitStatusSaysWhetherAnotherPodCouldDoBetter builds what cannot be built.
func TestTheExitStatusSaysWhetherAnotherPodCouldDoBetter(t *testing.T) {
	for sentence, test := range map[string]struct {
		ignition, containerfile string
		status                  int
	}{
		"a config that no image can hold": {`{"ignition":{"version":"3.4.0"},"storage":{"files":[{"path":"/run/a","contents":{"source":"data:,"}}]}}`, "", request.ExitFinal},
		"a text that does not parse":      {`{"ignition":{"version":"3.4.0"}}`, "FROM configs\nRUNN true\n", 1},
	} {
		t.Run(sentence, func(t *testing.T) {
			dir := t.TempDir()
			digest := "sha256:" + strings.Repeat("0", 64)
			packed, err := request.Encode(&request.Request{
				Name: "worker-1", InputsHash: strings.Repeat("0", 64), BaseImage: "registry.example.com/os/base@" + digest, Architecture: "amd64",
				PushSpec: "registry.example.com/os/worker:worker-1", Ignition: []byte(test.ignition), Containerfile: test.containerfile,
			})
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, request.FileRequest), packed, 0o600); err != nil {
				t.Fatal(err)
			}
			options := buildOptions{result: filepath.Join(dir, "result")}
			options.Dir, options.Storage, options.Out = dir, filepath.Join(dir, "storage"), io.Discard
			err = runBuild(t.Context(), options)
			if err == nil || exitStatus(err) != test.status {
				t.Errorf("exit status %d, want %d: %v", exitStatus(err), test.status, err)
			}
		})
	}
}
