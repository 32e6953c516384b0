// Package binaries compiles the cluster's programs from the modules pinned in
// go.mod and keeps them in a cache outside the checkout, so that they are
// compiled once per version and not once per clone.
package binaries

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/mod/modfile"

	"github.com/imagemode/imagemode/test/cluster/compile"
)

// Options say where the programs come from and where they go.
type Options struct {
	// ModuleDir is the directory of this module's go.mod.
	ModuleDir string
	// BinDir receives the programs, their links and the keys they were built for.
	BinDir string
	// Log takes progress lines.
	Log func(format string, args ...any)
}

// Ensure compiles every program that is missing from the cache or was built
// from other versions or with other flags.
func Ensure(ctx context.Context, options Options) error {
	version, err := kubernetesVersion(options.ModuleDir)
	if err != nil {
		return err
	}
	common, err := commonKey(ctx, options.ModuleDir)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Join(options.BinDir, "keys"), 0o755); err != nil {
		return err
	}
	for _, target := range targets(version) {
		if err := ensureOne(ctx, options, target, common); err != nil {
			return err
		}
	}
	return nil
}

func ensureOne(ctx context.Context, options Options, target target, common string) error {
	key, err := target.key(options.ModuleDir, common)
	if err != nil {
		return err
	}
	keyFile := filepath.Join(options.BinDir, "keys", target.name)
	program := filepath.Join(options.BinDir, target.name)
	if cached, err := os.ReadFile(keyFile); err != nil || string(cached) != key || !exists(program) {
		options.Log("%s: compiling (about %s the first time)", target.name, target.estimate)
		started := time.Now()
		if err := build(ctx, options, target); err != nil {
			return err
		}
		if err := os.WriteFile(keyFile, []byte(key), 0o644); err != nil {
			return err
		}
		options.Log("%s: compiled in %s", target.name, time.Since(started).Round(time.Second))
	}
	for _, link := range target.links {
		if err := ensureLink(target.name, filepath.Join(options.BinDir, link)); err != nil {
			return err
		}
	}
	return nil
}

// build compiles beside the cached program and renames: the cached one may be
// running, and an interrupted compile must not look like a finished one.
func build(ctx context.Context, options Options, target target) error {
	program := filepath.Join(options.BinDir, target.name)
	if err := compile.Build(ctx, target.program(options.ModuleDir, program+".new")); err != nil {
		return err
	}
	return os.Rename(program+".new", program)
}

func ensureLink(target, link string) error {
	if current, err := os.Readlink(link); err == nil && current == target {
		return nil
	}
	if err := os.Remove(link); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return os.Symlink(target, link)
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// commonKey is over what all programs depend on: the pinned versions and the
// compiler.
func commonKey(ctx context.Context, moduleDir string) (string, error) {
	command := exec.CommandContext(ctx, "go", "env", "GOVERSION", "GOOS", "GOARCH")
	command.Dir = moduleDir
	toolchain, err := command.Output()
	if errors.Is(err, exec.ErrNotFound) {
		return "", compile.ErrNoGo
	}
	if err != nil {
		return "", fmt.Errorf("go env failed: %w", err)
	}
	hash := sha256.New()
	hash.Write(toolchain)
	return sumFiles(hash, moduleDir, "go.mod", "go.sum")
}

func (t target) key(moduleDir, common string) (string, error) {
	hash := sha256.New()
	fmt.Fprintf(hash, "%s %q %q %t\n", common, t.path, t.program(moduleDir, "").Flags(), t.cgo)
	return sumFiles(hash, moduleDir, t.sources...)
}

// sumFiles adds the files' names and content to hash and returns the sum in
// hexadecimal digits.
func sumFiles(hash interface {
	io.Writer
	Sum([]byte) []byte
}, dir string, names ...string) (string, error) {
	for _, name := range names {
		content, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			return "", err
		}
		fmt.Fprintf(hash, "%s %d\n%s\n", name, len(content), content)
	}
	return hex.EncodeToString(hash.Sum(nil)), nil
}

// kubernetesVersion reads the version of k8s.io/kubernetes, as in v1.37.2, from
// go.mod, so that it is written down once.
func kubernetesVersion(moduleDir string) (string, error) {
	path := filepath.Join(moduleDir, "go.mod")
	content, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	file, err := modfile.Parse(path, content, nil)
	if err != nil {
		return "", err
	}
	for _, require := range file.Require {
		if require.Mod.Path == "k8s.io/kubernetes" {
			return require.Mod.Version, nil
		}
	}
	return "", fmt.Errorf("%s does not require k8s.io/kubernetes", strings.TrimSuffix(path, "/go.mod"))
}
