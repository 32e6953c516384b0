// Command imagemode-controller runs the controllers of a cluster: OS streams,
// rendered configs and pools, builds, and rollouts.
package main

import (
	"fmt"
	"os"

	ctrl "sigs.k8s.io/controller-runtime"
)

func main() {
	if err := newCommand(Run).ExecuteContext(ctrl.SetupSignalHandler()); err != nil {
		fmt.Fprintln(os.Stderr, "imagemode-controller:", err)
		os.Exit(1)
	}
}
