package main

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// What --controllers switches. On a cluster with a machine-config-operator, each
// part that the operator does is switched off here.
const (
	switchStreams            = "osimagestream"
	switchRender             = "render"
	switchPoolStatus         = "pool-status"
	switchMembership         = "membership"
	switchMachineConfigNodes = "machineconfignode"
	switchNodeAnnotations    = "node-annotations"
	switchHandOff            = "hand-off"
	switchBuilds             = "machineosbuild"
	switchNodePools          = "nodepool"
	switchRollout            = "rollout"

	// groupPools stands for everything that is done for pools.
	groupPools = "machineconfigpool"
)

// switches, in the order of the flow, with what does not happen without them.
var switches = []struct{ name, does string }{
	{switchStreams, "discovers OS streams and keeps OSImageStream cluster"},
	{switchRender, "renders MachineConfigs and writes spec.configuration of pools"},
	{switchPoolStatus, "writes the status of pools (off: only the condition ImageBuildDegraded is put into it)"},
	{switchMembership, "labels Nodes with the pool that they belong to"},
	{switchMachineConfigNodes, "keeps a MachineConfigNode for each Node"},
	{switchNodeAnnotations, "writes machineconfiguration.openshift.io annotations of Nodes"},
	{switchHandOff, "gives a pool's finished image to its ImageRollout"},
	{switchBuilds, "builds images"},
	{switchNodePools, "resolves the OS stream of hosted node pools"},
	{switchRollout, "takes the image of each ImageRollout to its nodes"},
}

var poolSwitches = []string{
	switchRender, switchPoolStatus, switchMembership, switchMachineConfigNodes, switchNodeAnnotations, switchHandOff,
}

func switchNames() []string {
	var names []string
	for _, each := range switches {
		names = append(names, each.name)
	}
	return names
}

func controllersUsage() string {
	var usage strings.Builder
	usage.WriteString("what runs: * for everything, NAME to switch on, -NAME to switch off; a list of -NAMEs alone leaves the rest on. " +
		groupPools + " stands for all from " + poolSwitches[0] + " to " + poolSwitches[len(poolSwitches)-1] + ". Names:")
	for _, each := range switches {
		fmt.Fprintf(&usage, "\n%s: %s", each.name, each.does)
	}
	usage.WriteString("\n")
	return usage.String()
}

// checkControllers refuses names that switch nothing.
func checkControllers(entries []string) error {
	var problems []error
	for _, entry := range entries {
		name := strings.TrimPrefix(entry, "-")
		if entry == "*" || name == groupPools || slices.Contains(switchNames(), name) {
			continue
		}
		problems = append(problems, fmt.Errorf("--controllers: %q is no controller; there are %s, and %s for what concerns pools",
			name, strings.Join(switchNames(), ", "), groupPools))
	}
	return errors.Join(problems...)
}

// runs reports whether something is switched on: by its feature gate, and by
// --controllers. There, what speaks of it by name counts, the last such entry
// first, then what speaks of its group, then "*".
func (o *Options) runs(name string) bool {
	return o.FeatureGates.allow(name) && o.isSelected(name)
}

func (o *Options) isSelected(name string) bool {
	names := []string{name}
	if slices.Contains(poolSwitches, name) {
		names = append(names, groupPools)
	}
	for _, spoken := range names {
		for _, entry := range slices.Backward(o.Controllers) {
			if strings.TrimPrefix(entry, "-") == spoken {
				return entry == spoken
			}
		}
	}
	isSubtraction := !slices.ContainsFunc(o.Controllers, func(entry string) bool { return !strings.HasPrefix(entry, "-") })
	return isSubtraction || slices.Contains(o.Controllers, "*")
}

// Feature gates.
const (
	gateStreams       = "OSStreams"
	gateBootc         = "BootcNodeManagement"
	gateDefaultBuilds = "DefaultBuilds"
)

// gate switches a feature, whatever parts it has.
type gate struct {
	name      string
	isDefault bool
	switches  []string
	does      string
}

// gates, with their defaults and what they switch.
var gates = []gate{
	{gateStreams, true, []string{switchStreams, switchNodePools},
		"base images come from OS streams; without it a pool takes its OS image from a MachineConfig's osImageURL alone"},
	{gateBootc, true, []string{switchHandOff, switchRollout},
		"nodes are moved to their images by bootc; without it images are only built"},
	{gateDefaultBuilds, true, nil,
		"with --default-push-repository, pools without a MachineOSConfig get one"},
}

// featureGates are those that were set, by name.
type featureGates map[string]bool

func gatesUsage() string {
	var usage strings.Builder
	usage.WriteString("NAME=true or NAME=false, separated by commas. Gates:")
	for _, gate := range gates {
		fmt.Fprintf(&usage, "\n%s (default %t): %s", gate.name, gate.isDefault, gate.does)
	}
	usage.WriteString("\n")
	return usage.String()
}

// on reports whether a gate is open.
func (g featureGates) on(name string) bool {
	if value, isSet := g[name]; isSet {
		return value
	}
	return slices.ContainsFunc(gates, func(gate gate) bool { return gate.name == name && gate.isDefault })
}

// allow reports whether no closed gate keeps a switch off.
func (g featureGates) allow(name string) bool {
	for _, gate := range gates {
		if slices.Contains(gate.switches, name) && !g.on(gate.name) {
			return false
		}
	}
	return true
}

func (g *featureGates) Type() string { return "gates" }

func (g *featureGates) String() string {
	var set []string
	for name, value := range *g {
		set = append(set, fmt.Sprintf("%s=%t", name, value))
	}
	slices.Sort(set)
	return strings.Join(set, ",")
}

// Set reads NAME=true,NAME=false and adds it to what was set before.
func (g *featureGates) Set(text string) error {
	if *g == nil {
		*g = featureGates{}
	}
	for _, entry := range strings.Split(text, ",") {
		name, value, _ := strings.Cut(strings.TrimSpace(entry), "=")
		isOn, err := strconv.ParseBool(value)
		if err != nil {
			return fmt.Errorf("%q: write NAME=true or NAME=false", entry)
		}
		if !slices.Contains(gateNames(), name) {
			return fmt.Errorf("%q is no feature gate; there are %s", name, strings.Join(gateNames(), ", "))
		}
		(*g)[name] = isOn
	}
	return nil
}

func gateNames() []string {
	var names []string
	for _, gate := range gates {
		names = append(names, gate.name)
	}
	return names
}
