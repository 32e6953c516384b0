package network

import (
	"context"
	"fmt"
	"os/exec"

	"github.com/imagemode/imagemode/test/cluster/layout"
)

// chain is an iptables chain of our own and the built-in one that jumps to it.
// All rules are in such chains, so that Remove needs to know no rule.
type chain struct {
	table, parent, name string
	rules               [][]string
}

// chains says: packets of pods and machines pass, and those that leave both
// networks take the host's address.
var chains = []chain{
	{table: "filter", parent: "FORWARD", name: "IMAGEMODE-FORWARD", rules: [][]string{
		{"-s", layout.PodNetwork, "-j", "ACCEPT"},
		{"-d", layout.PodNetwork, "-j", "ACCEPT"},
		{"-s", layout.NodeNetwork, "-j", "ACCEPT"},
		{"-d", layout.NodeNetwork, "-j", "ACCEPT"},
	}},
	{table: "nat", parent: "POSTROUTING", name: "IMAGEMODE-POSTROUTING", rules: [][]string{
		{"-d", layout.PodNetwork, "-j", "RETURN"},
		{"-d", layout.NodeNetwork, "-j", "RETURN"},
		{"-d", "224.0.0.0/4", "-j", "RETURN"},
		{"-s", layout.PodNetwork, "-j", "MASQUERADE"},
		{"-s", layout.NodeNetwork, "-j", "MASQUERADE"},
	}},
}

func ensureRules(ctx context.Context) error {
	if rulesPresent(ctx) == nil {
		return nil
	}
	if err := removeRules(ctx); err != nil { // a half-made chain is made anew
		return err
	}
	for _, chain := range chains {
		if err := chain.create(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (c chain) create(ctx context.Context) error {
	if err := run(ctx, "-t", c.table, "-N", c.name); err != nil {
		return err
	}
	for _, rule := range c.rules {
		if err := run(ctx, append([]string{"-t", c.table, "-A", c.name}, rule...)...); err != nil {
			return err
		}
	}
	return run(ctx, "-t", c.table, "-I", c.parent, "1", "-j", c.name)
}

func rulesPresent(ctx context.Context) error {
	for _, chain := range chains {
		if !chain.jumpExists(ctx) {
			return fmt.Errorf("iptables chain %s is missing", chain.name)
		}
		for _, rule := range chain.rules {
			if err := run(ctx, append([]string{"-t", chain.table, "-C", chain.name}, rule...)...); err != nil {
				return fmt.Errorf("iptables chain %s is incomplete", chain.name)
			}
		}
	}
	return nil
}

func (c chain) exists(ctx context.Context) bool {
	return run(ctx, "-t", c.table, "-n", "-L", c.name) == nil
}

func (c chain) jumpExists(ctx context.Context) bool {
	return c.exists(ctx) && run(ctx, "-t", c.table, "-C", c.parent, "-j", c.name) == nil
}

func removeRules(ctx context.Context) error {
	if _, err := exec.LookPath("iptables"); err != nil {
		return nil // without the program none were made
	}
	for _, chain := range chains {
		if err := chain.remove(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (c chain) remove(ctx context.Context) error {
	for c.jumpExists(ctx) {
		if err := run(ctx, "-t", c.table, "-D", c.parent, "-j", c.name); err != nil {
			return err
		}
	}
	if !c.exists(ctx) {
		return nil
	}
	if err := run(ctx, "-t", c.table, "-F", c.name); err != nil {
		return err
	}
	return run(ctx, "-t", c.table, "-X", c.name)
}

// Chains returns the cluster's iptables chains that exist, as table/chain.
func Chains(ctx context.Context) []string {
	var names []string
	for _, chain := range chains {
		if chain.exists(ctx) {
			names = append(names, chain.table+"/"+chain.name)
		}
	}
	return names
}
