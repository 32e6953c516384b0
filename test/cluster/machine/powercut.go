package machine

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/imagemode/imagemode/test/cluster/layout"
)

// PowerCutCommand takes the power off a machine of the cluster and gives it back:
// nothing in the machine is told, and what was in memory is gone.
func PowerCutCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "power-cut MACHINE",
		Short: "End all of a machine at once, and boot it again",
		Args:  cobra.ExactArgs(1),
		RunE: func(command *cobra.Command, arguments []string) error {
			return cutPower(command.Context(), Config{
				Name: arguments[0], StateDir: filepath.Join(layout.MachineDir, arguments[0]), Bridge: layout.Bridge,
			})
		},
	}
}

// cutPower kills the machine's processes. Its supervisor ends by itself then, as
// the machine neither rebooted nor powered off; another boots it.
func cutPower(ctx context.Context, config Config) error {
	if !Running(config) {
		return fmt.Errorf("machine %s does not run", config.Name)
	}
	if err := clear(config); err != nil {
		return err
	}
	if err := store().Stop(ctx, config.processName(), stopGrace); err != nil {
		return err
	}
	if err := clear(config); err != nil {
		return err
	}
	return startSupervisor(ctx, config)
}
