package osimage

import (
	"bytes"
	_ "embed"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/template"
)

// runc is the runtime that is compiled for this cluster.
const runc = "runc"

//go:embed containerd.toml
var containerdConfig string

var containerdTemplate = template.Must(template.New("containerd.toml").Parse(containerdConfig))

// runtimesLabel is the value of the label dev.imagemode.runtimes.
func (r recipe) runtimesLabel() string {
	return strings.Join(slices.Sorted(slices.Values(r.Runtimes)), ",")
}

// runtimeFiles are what makes a stream's container runtimes: the compiled one,
// where it is among them, and the configuration that offers each as a handler.
func (r recipe) runtimeFiles(binDir string) ([]file, error) {
	var config bytes.Buffer
	if err := containerdTemplate.Execute(&config, r); err != nil {
		return nil, fmt.Errorf("configuration of containerd: %w", err)
	}
	files := []file{{path: "etc/containerd/config.toml", mode: 0o644, content: config.Bytes()}}
	if !slices.Contains(r.Runtimes, runc) {
		return files, nil
	}
	content, err := os.ReadFile(filepath.Join(binDir, runc))
	if err != nil {
		return nil, fmt.Errorf("container runtime: %w: compile the cluster's binaries first", err)
	}
	return append(files, file{path: "usr/bin/" + runc, mode: 0o755, content: content}), nil
}

// runtimesLayer writes the layer into the stream's cache unless it is there, in
// the place of an earlier one, and returns its path.
func runtimesLayer(directory string, files []file) (string, error) {
	written := filepath.Join(directory, "runtimes-"+keyOf(files)+".tar.gz")
	if exists(written) {
		return written, nil
	}
	earlier, err := filepath.Glob(filepath.Join(directory, "runtimes-*.tar.gz"))
	if err != nil {
		return "", err
	}
	for _, path := range earlier {
		if err := os.Remove(path); err != nil {
			return "", err
		}
	}
	return written, writeAtomically(written, func(out io.Writer) error { return writeLayer(out, files) })
}
