package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/imagemode/imagemode/controllers/osimagestream"
)

// newBootstrapCommand makes OSImageStream cluster from manifests, before there
// is an API server. It opens no connection.
func newBootstrapCommand() *cobra.Command {
	var manifests, out string
	command := &cobra.Command{
		Use:   "bootstrap --manifests DIR --out DIR",
		Short: "Make OSImageStream cluster, with its status, from manifests; nothing is read from a network",
		Args:  cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			result, err := osimagestream.Bootstrap(manifests, out)
			if err != nil {
				return err
			}
			for _, problem := range result.Problems {
				fmt.Fprintf(command.ErrOrStderr(), "left out: %s: %s\n", problem.Source, problem.Reason)
			}
			fmt.Fprintln(command.OutOrStdout(), result.File)
			return nil
		},
	}
	command.Flags().StringVar(&manifests, "manifests", "", "directory of manifests (YAML or JSON): the payload's ImageStream, OSImageStream, ControllerConfig")
	command.Flags().StringVar(&out, "out", "", "directory that the OSImageStream is written to")
	for _, flag := range []string{"manifests", "out"} {
		if err := command.MarkFlagRequired(flag); err != nil {
			panic(err) // the flags are those above
		}
	}
	return command
}
