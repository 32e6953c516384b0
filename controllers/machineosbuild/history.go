package machineosbuild

import (
	"context"
	"encoding/json"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"

	keys "github.com/imagemode/imagemode/api/machineconfiguration"
)

// HistoryLimits are how many builds of a MachineOSConfig are kept that are not
// its current one and whose image no node and no rollout has.
type HistoryLimits struct {
	Succeeded, Unsuccessful int
}

// forgetOldBuilds deletes the builds over the limits. Their images are the
// pruner's matter.
func (r *configReconciler) forgetOldBuilds(ctx context.Context, s *scope, chosen plan) error {
	limits := r.options.History
	if chosen.build == nil || len(s.builds) <= min(limits.Succeeded, limits.Unsuccessful)+1 {
		return nil
	}
	used, err := usedDigests(ctx, r.client)
	if err != nil {
		return err
	}
	for _, build := range surplus(s.builds, chosen, *limits, used) {
		if err := r.client.Delete(ctx, build, uidOf(build)); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("delete MachineOSBuild %s, over the limit of builds kept: %w", build.Name, err)
		}
	}
	return nil
}

// surplus are the builds to delete. builds are oldest first; used are the digests
// that nodes and rollouts have.
func surplus(builds []mcfgv1.MachineOSBuild, chosen plan, limits HistoryLimits, used map[string]bool) []*mcfgv1.MachineOSBuild {
	var over []*mcfgv1.MachineOSBuild
	succeeded, unsuccessful := 0, 0
	for i := len(builds) - 1; i >= 0; i-- {
		build := &builds[i]
		switch {
		case build.Name == chosen.build.Name || !isTerminal(build) || isRecentAttempt(build, chosen):
			continue
		case hasSucceeded(build):
			if used[digestOf(string(build.Status.DigestedImagePushSpec))] {
				continue
			}
			if succeeded++; succeeded > limits.Succeeded {
				over = append(over, build)
			}
		default:
			if unsuccessful++; unsuccessful > limits.Unsuccessful {
				over = append(over, build)
			}
		}
	}
	return over
}

// isRecentAttempt keeps the last attempts at the wanted build: how often its Job
// vanished is counted from them.
func isRecentAttempt(build *mcfgv1.MachineOSBuild, chosen plan) bool {
	var inputs buildInputs
	if json.Unmarshal([]byte(build.Annotations[keys.AnnotationBuildInputs]), &inputs) != nil {
		return false
	}
	wanted := chosen.blueprint.inputs
	return inputs.identity() == wanted.identity() && inputs.Attempt >= wanted.Attempt-maxVanished
}
