package main

import (
	"context"
	"os"
	"path/filepath"
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
