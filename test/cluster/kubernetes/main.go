// Command kubernetes is the local cluster's control plane, kubelet and kubectl
// in one binary: it runs the component it was called as (through a link of that
// name) or the one its first argument names. One binary links once, where six
// would link six times.
package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	kubectl "k8s.io/kubectl/pkg/cmd"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"

	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
)

// components are the programs in this binary, by the name they are known by.
var components = map[string]func() *cobra.Command{
	"kube-apiserver":          apiserver.NewAPIServerCommand,
	"kube-controller-manager": controllermanager.NewControllerManagerCommand,
	"kube-scheduler":          func() *cobra.Command { return scheduler.NewSchedulerCommand() },
	"kubelet":                 func() *cobra.Command { return kubelet.NewKubeletCommand(context.Background()) },
	"kubectl":                 kubectl.NewDefaultKubectlCommand,
}

func main() {
	os.Args[0] = filepath.Base(os.Args[0])
	if os.Args[0] == "kubernetes" && len(os.Args) > 1 {
		os.Args = os.Args[1:]
	}
	if os.Args[0] == "etcd" {
		etcdmain.Main(os.Args)
		return
	}
	newCommand, ok := components[os.Args[0]]
	if !ok {
		fmt.Fprintf(os.Stderr, "unknown component %q: call this binary as etcd, kube-apiserver, kube-controller-manager, kube-scheduler, kubelet or kubectl\n", os.Args[0])
		os.Exit(2)
	}
	os.Exit(cli.Run(newCommand()))
}
