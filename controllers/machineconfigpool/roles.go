package machineconfigpool

import (
	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"

	"github.com/imagemode/imagemode/api/machineconfiguration"
)

// role is what a pool is for. It decides which of several pools that select a
// node has it, and whose MachineConfigs and stream a pool takes over.
type role int

const (
	// custom pools come before all others and take over the worker pool's
	// MachineConfigs and stream.
	custom role = iota
	controlPlane
	worker
)

// workerPool is the name of the pool that custom pools take over from.
const workerPool = "worker"

// roleOf tells a pool's role from its name, else from its node selector.
func roleOf(pool *mcfgv1.MachineConfigPool) role {
	switch {
	case pool.Name == workerPool:
		return worker
	case machineconfiguration.IsControlPlanePool(pool.Name, pool.Spec.NodeSelector):
		return controlPlane
	default:
		return custom
	}
}
