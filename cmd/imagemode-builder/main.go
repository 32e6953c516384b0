// Command imagemode-builder makes one OS image from a build request. It runs
// in builder pods, and on a workstation with the same files in a directory.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"

	"github.com/sirupsen/logrus"
	"go.podman.io/buildah"
	"golang.org/x/sys/unix"
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
		fmt.Fprintln(os.Stderr, "imagemode-builder:", err)
		os.Exit(1)
	}
}
