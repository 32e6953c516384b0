// Command containerd is containerd without the runtime of its defaults. A
// configuration adds runtimes to that one, runc, and cannot take it away: an OS
// image without runc would offer it to Kubernetes nevertheless.
package main

import (
	"context"
	"fmt"
	"os"
	"reflect"

	"github.com/containerd/containerd/v2/cmd/containerd/command"
	"github.com/containerd/plugin"
	"github.com/containerd/plugin/registry"

	_ "github.com/containerd/containerd/v2/cmd/containerd/builtins"
)

func main() {
	if err := forgetDefaultRuntimes(); err != nil {
		fmt.Fprintln(os.Stderr, "containerd:", err)
		os.Exit(1)
	}
	if err := command.App().Run(context.Background(), os.Args); err != nil {
		fmt.Fprintln(os.Stderr, "containerd:", err)
		os.Exit(1)
	}
}

// runtimePlugin has the runtimes in its configuration, whose type is internal to
// containerd.
const runtimePlugin = "io.containerd.cri.v1.runtime"

func forgetDefaultRuntimes() error {
	for _, registration := range registry.Graph(func(*plugin.Registration) bool { return false }) {
		if registration.URI() != runtimePlugin {
			continue
		}
		runtimes := reflect.ValueOf(registration.Config).Elem().FieldByName("Runtimes")
		if runtimes.Kind() != reflect.Map {
			break
		}
		runtimes.Set(reflect.MakeMap(runtimes.Type()))
		return nil
	}
	return fmt.Errorf("plugin %s has no runtimes in its configuration", runtimePlugin)
}
