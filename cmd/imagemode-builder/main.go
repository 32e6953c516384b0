// Command imagemode-builder makes one OS image from a build request. It runs
// in builder pods, and on a workstation with the same files in a directory.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"

	"github.com/sirupsen/logrus"
	"go.podman.io/buildah"
	"golang.org/x/sys/unix"

	"github.com/imagemode/imagemode/builder"
	"github.com/imagemode/imagemode/builder/request"
)

func main() {
	// The build runs this program again for work inside a container's root; it
	// has to be asked before anything else happens.
	if buildah.InitReexec() {
		return
	}
	logrus.SetLevel(logrus.WarnLevel) // else a line for each RUN
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGINT, unix.SIGTERM)
	defer stop()
	if err := newCommand().ExecuteContext(ctx); err != nil {
		var failed *builder.ExitError
		if errors.As(err, &failed) && failed.Signal == 0 {
			os.Exit(failed.Code) // the process that built has said why
		}
		fmt.Fprintln(os.Stderr, "imagemode-builder:", err)
		os.Exit(exitStatus(err))
	}
}

// exitStatus tells a Job whether another pod could do better.
func exitStatus(err error) int {
	var final *finalError
	if errors.As(err, &final) {
		return request.ExitFinal
	}
	return 1
}
