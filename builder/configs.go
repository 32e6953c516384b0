package builder

import (
	"context"

	"github.com/imagemode/imagemode/ignition"
	"github.com/imagemode/imagemode/registry"
)

// runBase reads the base image's manifest and config, and refuses at once what
// could not boot: nothing has been fetched or run yet.
func runBase(ctx context.Context, job *job, _ *registry.Image) (*registry.Image, error) {
	repository, err := registry.Repository(job.request.BaseImage)
	if err != nil {
		return nil, err
	}
	base, err := registry.Inspect(ctx, job.access(repository), job.request.BaseImage)
	if err != nil {
		return nil, err
	}
	if err := checkImage(job, base); err != nil {
		return nil, err
	}
	job.os, job.base = base, base
	return base, nil
}

// runConfigs appends the layer of the MachineConfig in the registry. No layer of
// the image below is fetched, unless the config asks for what only the image
// knows.
func runConfigs(ctx context.Context, job *job, from *registry.Image) (*registry.Image, error) {
	layer, err := configLayer(ctx, job, from)
	if err != nil {
		return nil, err
	}
	configs, transfer, err := registry.Derive(ctx, job.source(from), job.target(), configsChange(layer))
	if err != nil {
		return nil, err
	}
	job.out.printf("  layer of %d files, %d bytes; %s", len(layer.Files), len(layer.Data), transfer)
	return configs, nil
}

// previewConfigs gives the image that runConfigs would push; nil: the layer
// depends on what is in the image below, which is not read for that.
func previewConfigs(_ context.Context, job *job, from *registry.Image) (*registry.Image, error) {
	if job.layer == nil {
		return nil, nil
	}
	return registry.Preview(from, job.repository, configsChange(job.layer))
}

func configsChange(layer *ignition.Layer) registry.Change {
	return registry.Change{Layers: []registry.NewLayer{{
		Data:      layer.Data,
		Digest:    layer.Digest,
		DiffID:    layer.DiffID,
		CreatedBy: "imagemode: configs",
	}}}
}
