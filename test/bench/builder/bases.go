package main

import (
	"archive/tar"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/klauspost/compress/gzip"
	"golang.org/x/sync/errgroup"
)

// makeBases makes the bases and pushes them.
func (b *bench) makeBases() (err error) {
	if b.large, err = b.makeBase("large", b.layers, b.megabytes); err != nil {
		return err
	}
	b.small, err = b.makeBase("small", 1, 1)
	return err
}

func (b *bench) makeBase(repository string, layers, megabytes int) (string, error) {
	paths := make([]string, layers)
	var group errgroup.Group
	group.SetLimit(2)
	for i := range layers {
		paths[i] = b.path("layer.tar.gz")
		group.Go(func() error { return b.writeLayer(paths[i], i, megabytes/layers) })
	}
	if err := group.Wait(); err != nil {
		return "", err
	}
	image := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	for _, path := range paths {
		layer, err := tarball.LayerFromFile(path, tarball.WithMediaType(types.OCILayer))
		if err != nil {
			return "", err
		}
		if image, err = mutate.AppendLayers(image, layer); err != nil {
			return "", err
		}
	}
	image, err := mutate.ConfigFile(image, withLabels(image))
	if err != nil {
		return "", err
	}
	tag, err := name.NewTag(b.host+"/os/"+repository+":base", name.Insecure)
	if err != nil {
		return "", err
	}
	if err := remote.Write(tag, image); err != nil {
		return "", err
	}
	digest, err := image.Digest()
	return tag.Repository.Name() + "@" + digest.String(), err
}

func withLabels(image v1.Image) *v1.ConfigFile {
	config, err := image.ConfigFile()
	if err != nil {
		panic(err) // it was made here
	}
	config = config.DeepCopy()
	config.OS, config.Architecture = "linux", "amd64"
	config.Config.Labels = map[string]string{"containers.bootc": "1", "org.opencontainers.image.version": "1"}
	return config
}

// writeLayer writes a layer of about so many megabytes, compressed: files of one
// MiB, of which a quarter is zeros. The first layer has the program.
func (b *bench) writeLayer(path string, number, megabytes int) error {
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	defer file.Close()
	packer, err := gzip.NewWriterLevel(file, gzip.BestSpeed)
	if err != nil {
		return err
	}
	archive := tar.NewWriter(packer)
	if number == 0 {
		if err := b.writeRoot(archive); err != nil {
			return err
		}
	}
	source := rand.NewChaCha8([32]byte{byte(number)})
	for i := range megabytes * 4 / 3 {
		header := &tar.Header{Typeflag: tar.TypeReg, Name: fmt.Sprintf("usr/lib/bench/%d/%d", number, i), Mode: 0o644, Size: 1 << 20}
		if err := archive.WriteHeader(header); err != nil {
			return err
		}
		content := io.MultiReader(io.LimitReader(source, 3<<18), io.LimitReader(zeros{}, 1<<18))
		if _, err := io.Copy(archive, content); err != nil {
			return err
		}
	}
	if err := archive.Close(); err != nil {
		return err
	}
	return packer.Close()
}

func (b *bench) writeRoot(archive *tar.Writer) error {
	for _, directory := range []string{"bin/", "etc/", "tmp/", "usr/", "usr/share/"} {
		if err := archive.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: directory, Mode: 0o755}); err != nil {
			return err
		}
	}
	tool, err := os.ReadFile(filepath.Clean(b.tool))
	if err != nil {
		return err
	}
	if err := archive.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: "bin/tool", Mode: 0o755, Size: int64(len(tool))}); err != nil {
		return err
	}
	_, err = archive.Write(tool)
	return err
}

type zeros struct{}

func (zeros) Read(data []byte) (int, error) {
	clear(data)
	return len(data), nil
}
