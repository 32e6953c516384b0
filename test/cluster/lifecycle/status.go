package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/imagemode/imagemode/test/cluster/layout"
	"github.com/imagemode/imagemode/test/cluster/network"
	"github.com/imagemode/imagemode/test/cluster/workers"
)

// ErrNotUp is returned by Status when the cluster does not run completely.
var ErrNotUp = errors.New("the cluster is not (completely) up: run up")

// Status prints every part of the cluster with its state, and fails with
// ErrNotUp when one does not work.
func Status(ctx context.Context, options Options, out io.Writer) error {
	table := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	fmt.Fprintln(table, "PART\tPID\tSTATE")
	complete := printNetwork(ctx, table)
	complete = printDaemons(ctx, options, table) && complete
	complete = printMachines(table) && complete
	complete = printNodes(ctx, table) && complete
	if err := table.Flush(); err != nil {
		return err
	}
	if !complete {
		return ErrNotUp
	}
	fmt.Fprintf(out, "\nKUBECONFIG=%s\n", layout.Kubeconfig)
	return nil
}

func printNetwork(ctx context.Context, out io.Writer) (complete bool) {
	err := network.Healthy(ctx)
	fmt.Fprintf(out, "network\t-\t%s\n", state(err))
	return err == nil
}

// state is one line of text for the result of a check.
func state(err error) string {
	if err == nil {
		return "healthy"
	}
	first, _, _ := strings.Cut(err.Error(), "\n")
	return first
}

func printDaemons(ctx context.Context, options Options, out io.Writer) (complete bool) {
	checks, err := healthChecks(options.BinDir())
	if err != nil {
		fmt.Fprintln(out, "daemons\t-\tnot set up")
		return false
	}
	complete = true
	for _, name := range daemonNames {
		record, running := store.Running(name)
		if !running {
			fmt.Fprintf(out, "%s\t-\tnot running\n", name)
			complete = false
			continue
		}
		probe, cancel := context.WithTimeout(ctx, probeTimeout)
		err := checks[name](probe)
		cancel()
		fmt.Fprintf(out, "%s\t%d\t%s\n", name, record.PID, state(err))
		complete = complete && err == nil
	}
	return complete
}

func printMachines(out io.Writer) (complete bool) {
	complete = true
	for _, worker := range layout.Machines {
		record, running := store.Running(workers.ProcessName(worker))
		if !running {
			fmt.Fprintf(out, "machine %s\t-\tnot running\n", worker.Name)
			complete = false
			continue
		}
		fmt.Fprintf(out, "machine %s\t%d\trunning\n", worker.Name, record.PID)
	}
	return complete
}

// silentTimeout is how long a node may be silent: its kubelet reports every five
// seconds, and the controller manager notices only after most of a minute.
const silentTimeout = 30 * time.Second

func printNodes(ctx context.Context, out io.Writer) (complete bool) {
	if _, err := os.Stat(layout.Kubeconfig); err != nil {
		return false
	}
	client, err := newClient()
	if err != nil {
		fmt.Fprintf(out, "nodes\t-\t%s\n", state(err))
		return false
	}
	complete = true
	for _, name := range nodeNames() {
		node, err := client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
		if err == nil {
			if ready, why := nodeReady(node, time.Now().Add(-silentTimeout)); !ready {
				err = errors.New(why)
			}
		}
		fmt.Fprintf(out, "node %s\t-\t%s\n", name, state(err))
		complete = complete && err == nil
	}
	return complete
}

// nodeNames are the nodes a complete cluster has.
func nodeNames() []string {
	names := []string{layout.ControlPlane}
	for _, machine := range layout.Machines {
		names = append(names, machine.Name)
	}
	return names
}
