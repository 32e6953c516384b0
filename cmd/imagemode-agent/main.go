// imagemode-agent brings its node to the OS image that its NodeImage names, by
// bootc on the host, and reports what the node has.
package main

import (
	"fmt"
	"os"

	ctrl "sigs.k8s.io/controller-runtime"
)

func main() {
	if err := newCommand().ExecuteContext(ctrl.SetupSignalHandler()); err != nil {
		fmt.Fprintln(os.Stderr, "imagemode-agent:", err)
		os.Exit(1)
	}
}
