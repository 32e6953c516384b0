package osimage

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"github.com/imagemode/imagemode/test/cluster/compile"
	"github.com/imagemode/imagemode/test/cluster/minimalimage"
	"github.com/imagemode/imagemode/test/cluster/node"
	"github.com/imagemode/imagemode/test/cluster/source"
)

// pauseArchive is the sandbox image in the form `ctr images import` reads. A
// machine imports it at boot, since there is nowhere to pull it from.
func pauseArchive(binDir string) ([]byte, error) {
	image, err := minimalimage.New(minimalimage.Program{File: filepath.Join(binDir, "pause"), Name: "pause", Architecture: architecture})
	if err != nil {
		return nil, err
	}
	tag, err := name.NewTag(node.PauseImage)
	if err != nil {
		return nil, err
	}
	var archive bytes.Buffer
	err = tarball.Write(tag, image, &archive)
	return archive.Bytes(), err
}

// buildStandIn compiles the stand-in for bootc into Options.BinDir. Go's own
// cache makes it a matter of a second when nothing has changed.
func buildStandIn(ctx context.Context, options Options) error {
	root, err := sourceRoot(options)
	if err != nil {
		return err
	}
	return compile.Build(ctx, compile.Program{
		Dir: root, Package: "./test/bootc", Output: filepath.Join(options.BinDir, "bootc"),
		Tags: source.Tags,
	})
}

// sourceRoot is the checkout that the stand-in is compiled from.
func sourceRoot(options Options) (string, error) {
	if options.Source != "" {
		return options.Source, nil
	}
	directory, err := os.Getwd()
	if err != nil {
		return "", err
	}
	return source.Find(directory)
}

// lastLines joins the last lines of a program's output into one.
func lastLines(text string, count int) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(lines[max(0, len(lines)-count):], "; ")
}
