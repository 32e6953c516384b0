package lifecycle

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/yaml"

	"github.com/imagemode/imagemode/test/cluster/layout"
	"github.com/imagemode/imagemode/test/cluster/osimage"
	"github.com/imagemode/imagemode/test/cluster/pki"
	"github.com/imagemode/imagemode/test/cluster/registry"
	"github.com/imagemode/imagemode/test/cluster/workers"
)

// ensureStreams makes and pushes the OS images and writes streams.yaml.
func ensureStreams(ctx context.Context, options Options) ([]osimage.Stream, error) {
	streams, err := osimage.Ensure(ctx, osimage.Options{
		CacheDir: options.CacheDir,
		BinDir:   options.BinDir(),
		Source:   options.Source,
		Registry: layout.Registry(),
		AuthFile: registry.AuthFile(registry.Push),
		CAFile:   layout.CAFile,
		Log:      options.Log,
	})
	if err != nil {
		return nil, err
	}
	content, err := streamsData(streams)
	if err != nil {
		return nil, err
	}
	return streams, os.WriteFile(layout.StreamsFile, content, 0o644)
}

// streamsData is the data of ConfigMap imagemode-streams: each stream's name
// with both its images.
func streamsData(streams []osimage.Stream) ([]byte, error) {
	data := map[string]map[string]string{}
	for _, stream := range streams {
		data[stream.Name] = map[string]string{"osImage": stream.Image, "osExtensionsImage": stream.ExtensionsImage}
	}
	return yaml.Marshal(data)
}

// ensureWorkers starts the machines that do not run, all with the first stream's
// image, and waits until each is a Ready node.
func ensureWorkers(ctx context.Context, options Options, client kubernetes.Interface, image string) (changed bool, err error) {
	authority, err := pki.Open(layout.PKIDir)
	if err != nil {
		return false, err
	}
	began := time.Now()
	for _, worker := range layout.Machines {
		started, err := workers.Ensure(ctx, authority, options.BinDir(), worker, image)
		if err != nil {
			return changed, err
		}
		if started {
			options.Log("%s: machine started", worker.Name)
		}
		changed = changed || started
	}
	return changed, awaitWorkers(ctx, options, client, began)
}

func awaitWorkers(ctx context.Context, options Options, client kubernetes.Interface, since time.Time) error {
	group, ctx := errgroup.WithContext(ctx)
	for _, worker := range layout.Machines {
		group.Go(func() error {
			if err := awaitNode(ctx, client, worker.Name, workerLabel, since); err != nil {
				return fmt.Errorf("%w and %s", err, filepath.Join(layout.MachineDir, worker.Name, "console.log"))
			}
			options.Log("%s: node is Ready", worker.Name)
			return nil
		})
	}
	return group.Wait()
}
