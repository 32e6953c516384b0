// Package bases makes OS images to measure builds with: layers of files, of which
// a quarter compresses well, and one static program instead of a shell.
package bases

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

// Base is an image to make. The same gives the same digest.
type Base struct {
	// Repository is host:port/repository.
	Repository string
	// Layers of the image, and megabytes of all together, compressed.
	Layers, Megabytes int
	// Program is the file that becomes /bin/tool.
	Program string
}

// Push makes a base and pushes it. Its layers lie in a directory, to be removed
// afterwards. It gives the reference by digest.
func (b Base) Push(directory string, options ...remote.Option) (string, error) {
	image, err := b.make(directory)
	if err != nil {
		return "", err
	}
	tag, err := name.NewTag(b.Repository+":base", name.Insecure)
	if err != nil {
		return "", err
	}
	if err := remote.Write(tag, image, options...); err != nil {
		return "", err
	}
	digest, err := image.Digest()
	return tag.Repository.Name() + "@" + digest.String(), err
}

func (b Base) make(directory string) (v1.Image, error) {
	if err := os.MkdirAll(directory, 0o755); err != nil {
		return nil, err
	}
	paths := make([]string, b.Layers)
	var group errgroup.Group
	group.SetLimit(2)
	for i := range b.Layers {
		paths[i] = filepath.Join(directory, fmt.Sprintf("%d.tar.gz", i))
		group.Go(func() error { return b.writeLayer(paths[i], i) })
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	image := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	for _, path := range paths {
		layer, err := tarball.LayerFromFile(path, tarball.WithMediaType(types.OCILayer))
		if err != nil {
			return nil, err
		}
		if image, err = mutate.AppendLayers(image, layer); err != nil {
			return nil, err
		}
	}
	return mutate.ConfigFile(image, withLabels(image))
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

// writeLayer writes files of one MiB, of which a quarter is zeros. The first layer
// has the program.
func (b Base) writeLayer(path string, number int) error {
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
	for i := range b.Megabytes / b.Layers * 4 / 3 {
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

func (b Base) writeRoot(archive *tar.Writer) error {
	for _, directory := range []string{"bin/", "etc/", "tmp/", "usr/", "usr/share/"} {
		if err := archive.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: directory, Mode: 0o755}); err != nil {
			return err
		}
	}
	program, err := os.ReadFile(filepath.Clean(b.Program))
	if err != nil {
		return err
	}
	if err := archive.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: "bin/tool", Mode: 0o755, Size: int64(len(program))}); err != nil {
		return err
	}
	_, err = archive.Write(program)
	return err
}

type zeros struct{}

func (zeros) Read(data []byte) (int, error) {
	clear(data)
	return len(data), nil
}
