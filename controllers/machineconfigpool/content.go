package machineconfigpool

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/coreos/ignition/v2/config/v3_6/types"
	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"

	"github.com/imagemode/imagemode/ignition"
)

// part is the Ignition config of one MachineConfig.
type part struct {
	source string
	config types.Config
}

// mergeIgnition merges the Ignition configs of sources, in their order, and
// returns the result, and it as canonical JSON. It fails with the MachineConfig, the
// path and the reason where one does not parse, where two do not go together,
// and where they ask for what an image cannot hold.
func mergeIgnition(sources []*mcfgv1.MachineConfig) (types.Config, []byte, error) {
	merged, err := ignition.Parse(nil)
	if err != nil {
		return merged, nil, fmt.Errorf("make an empty Ignition config: %w", err)
	}
	var parts []part
	for _, source := range sources {
		config, err := ignition.Parse(source.Spec.Config.Raw)
		if err != nil {
			return merged, nil, &renderError{
				reason:  reasonInvalidConfig,
				message: fmt.Sprintf("MachineConfig %s: spec.config: %v", source.Name, err),
			}
		}
		parts = append(parts, part{source: source.Name, config: config})
		merged = ignition.Merge(merged, config)
	}
	if err := refuse(merged, parts); err != nil {
		return merged, nil, err
	}
	return encode(merged, parts)
}

// refuse fails with everything in the merged config that an image cannot hold.
// What a later MachineConfig replaced does no harm and is not looked at.
func refuse(merged types.Config, parts []part) error {
	var lines []string
	for _, problem := range ignition.Refused(merged) {
		lines = append(lines, fmt.Sprintf("%s: %s", culprit(problem, parts), problem))
	}
	if len(lines) == 0 {
		return nil
	}
	return &renderError{reason: reasonRefusedConfig, message: strings.Join(lines, "; ")}
}

// culprit names the last MachineConfig that brings a problem or, where only the
// merger does, those that have a part in it.
func culprit(problem ignition.Problem, parts []part) string {
	for _, part := range slices.Backward(parts) {
		if slices.Contains(ignition.Refused(part.config), problem) {
			return "MachineConfig " + part.source
		}
	}
	bring := slices.DeleteFunc(slices.Clone(parts), func(p part) bool { return !ignition.Brings(p.config, problem) })
	if len(bring) > 1 {
		return together(bring)
	}
	return together(parts)
}

func together(parts []part) string {
	names := make([]string, 0, len(parts))
	for _, part := range parts {
		names = append(names, part.source)
	}
	return "MachineConfigs " + strings.Join(names, ", ") + " together"
}

// encode writes the merged config and reads it back: two valid configs can
// merge into one that is not.
func encode(merged types.Config, parts []part) (types.Config, []byte, error) {
	encoded, err := json.Marshal(merged)
	if err != nil {
		return merged, nil, fmt.Errorf("encode the merged Ignition config: %w", err)
	}
	read, err := ignition.Parse(encoded)
	if err != nil {
		return merged, nil, &renderError{reason: reasonInvalidConfig, message: together(parts) + ": " + err.Error()}
	}
	return read, encoded, nil
}
