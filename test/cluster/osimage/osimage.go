// Package osimage makes the OS images of the local cluster's machines, and the
// extensions image that belongs to each, from Debian packages: what a stream of
// a real cluster gets from its vendor. The result is laid out as a bootc host,
// carries the labels by which streams are recognised, and is pushed to a
// registry by digest.
//
// An OS image has three layers: the packages, the node software (kubelet and
// containerd as compiled for this cluster, since Debian 12's are too old, with
// their units and the bootc stand-in), and the container runtimes, in which
// streams differ. All are kept in a cache keyed by what went into them, so that
// only a first run needs the Debian mirror.
package osimage

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/sync/errgroup"
)

// Options say where things are. All fields are required that do not say what their zero value means.
type Options struct {
	// CacheDir keeps layers between runs. It may be deleted at any time.
	CacheDir string
	// BinDir holds the compiled containerd, containerd-shim-runc-v2, ctr, runc and
	// kubernetes and pause. The stand-in for bootc is compiled into it.
	BinDir string
	// Source is the checkout; when empty, the one the working directory is in.
	Source string
	// Registry is host:port of the registry to push to, over TLS.
	Registry string
	// AuthFile is a docker config.json with a user who may push; empty for none.
	AuthFile string
	// CAFile is the PEM file with the registry's CA; empty for the system's.
	CAFile string
	// Streams are the names of the streams to make; DefaultStreams when empty.
	Streams []string
	// Log takes progress, one line a call; nil drops it.
	Log func(format string, arguments ...any)
}

// Stream is one published stream, both images as registry/repository@sha256:….
type Stream struct {
	Name            string
	Image           string
	ExtensionsImage string
}

// Ensure makes and pushes what is missing and returns the streams in the order
// asked for. It needs root (for the package installation of a first run). Errors
// name the stream and the step.
func Ensure(ctx context.Context, options Options) ([]Stream, error) {
	if options.Log == nil {
		options.Log = func(string, ...any) {}
	}
	selected, err := selectRecipes(options.Streams)
	if err != nil {
		return nil, err
	}
	software, err := prepareSoftware(ctx, options)
	if err != nil {
		return nil, err
	}
	// Written once for all streams, and only when one of them needs it.
	software.once = sync.OnceValues(func() (string, error) {
		return software.layer(filepath.Join(options.CacheDir, "osimage"))
	})
	destination, err := newPublisher(options)
	if err != nil {
		return nil, err
	}
	streams := make([]Stream, len(selected))
	group, ctx := errgroup.WithContext(ctx)
	for i, selected := range selected {
		group.Go(func() error {
			stream, err := ensureStream(ctx, options, selected, software, destination)
			if err != nil {
				return fmt.Errorf("OS stream %s: %w", selected.Name, err)
			}
			streams[i] = stream
			return nil
		})
	}
	return streams, group.Wait()
}

// ensureStream makes one stream's images. The answer of the last run is taken
// when the same inputs gave it and the registry still has both digests.
func ensureStream(ctx context.Context, options Options, recipe recipe, software software, destination *publisher) (Stream, error) {
	directory := filepath.Join(options.CacheDir, "osimage", recipe.Name)
	if err := os.MkdirAll(directory, 0o755); err != nil {
		return Stream{}, err
	}
	runtimes, err := recipe.runtimeFiles(options.BinDir)
	if err != nil {
		return Stream{}, err
	}
	published := filepath.Join(directory, "published-"+recipe.key()+"-"+software.key+"-"+keyOf(runtimes))
	if stream, ok := destination.stillHas(ctx, published); ok {
		options.Log("%s: already in the registry", recipe.Name)
		return stream, nil
	}
	layers, err := bootstrap(ctx, options, recipe, directory)
	if err != nil {
		return Stream{}, err
	}
	if layers.software, err = software.once(); err != nil {
		return Stream{}, err
	}
	if layers.runtimes, err = runtimesLayer(directory, runtimes); err != nil {
		return Stream{}, err
	}
	options.Log("%s: pushing to %s", recipe.Name, options.Registry)
	return destination.publish(ctx, recipe, layers, published)
}
