package main

import (
	"encoding/json"
	"fmt"
	"io"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/imagemode/imagemode/test/bootc/host"
)

type statusOptions struct {
	format        string
	json          bool
	formatVersion int
	booted        bool
}

func newStatus(h *host.Host) *cobra.Command {
	var options statusOptions
	command := &cobra.Command{
		Use:   "status",
		Short: "Display status",
		Args:  usage(cobra.NoArgs),
		RunE: func(command *cobra.Command, _ []string) error {
			return printStatus(h, options, command.OutOrStdout())
		},
	}
	flags := command.Flags()
	flags.StringVar(&options.format, "format", "yaml", "The output format: humanreadable, yaml, json")
	flags.BoolVar(&options.json, "json", false, "Output in JSON format")
	flags.IntVar(&options.formatVersion, "format-version", 1, "The desired format version: 0 or 1, which are the same")
	flags.BoolVar(&options.booted, "booted", false, "Only display status for the booted deployment")
	_ = flags.MarkHidden("json")
	return command
}

func printStatus(h *host.Host, options statusOptions, out io.Writer) error {
	if options.formatVersion != 0 && options.formatVersion != 1 {
		return fmt.Errorf("Unsupported format version: %d", options.formatVersion)
	}
	if err := h.FailOnPurpose("status"); err != nil {
		return err
	}
	status := host.ContainerStatus()
	if !host.IsContainer(h.Root) && h.IsBootcHost() {
		var err error
		if status, err = h.Status(); err != nil {
			return fmt.Errorf("Status: %w", err)
		}
	}
	if options.booted {
		status.Status.Staged, status.Status.Rollback = nil, nil
	}
	if options.json {
		options.format = "json"
	}
	return encode(status, options.format, out)
}

func encode(status host.Status, format string, out io.Writer) error {
	var content []byte
	var err error
	switch format {
	case "json":
		content, err = json.Marshal(status)
	case "yaml":
		content, err = yaml.Marshal(status)
	case "humanreadable":
		content = describe(status)
	default:
		return usageError{fmt.Errorf("invalid value '%s' for '--format': possible values are humanreadable, yaml, json", format)}
	}
	if err != nil {
		return err
	}
	if content[len(content)-1] != '\n' {
		content = append(content, '\n')
	}
	_, err = out.Write(content)
	return err
}

func describe(status host.Status) []byte {
	if status.Status.Booted == nil {
		return []byte("System is not deployed via bootc.\n")
	}
	var text []byte
	for _, line := range []struct {
		name  string
		entry *host.BootEntry
	}{
		{"Staged", status.Status.Staged}, {"Booted", status.Status.Booted}, {"Rollback", status.Status.Rollback},
	} {
		if line.entry == nil {
			continue
		}
		image := line.entry.Image
		text = fmt.Appendf(text, "%s image: %s\n        Digest: %s (%s)\n", line.name, image.Image.Image, image.ImageDigest, image.Architecture)
		if line.entry.DownloadOnly {
			text = append(text, "  Download-only: yes\n"...)
		}
	}
	return text
}
