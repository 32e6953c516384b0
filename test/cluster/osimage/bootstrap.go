package osimage

import (
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/klauspost/compress/gzip"
)

// sourceDate is the time of every file that has no older one and of the images:
// with it, the same packages give the same bytes. 2026-01-01T00:00:00Z.
const sourceDate = 1767225600

//go:embed layout.sh
var layoutScript []byte

// layerFiles are the compressed tars that images of one stream are made from.
type layerFiles struct {
	packages   string
	software   string
	runtimes   string
	extensions string
}

// key identifies what the package layers are made from. A newer package in the
// archive does not change it: delete the cache to take up new packages.
func (r recipe) key() string {
	description, err := json.Marshal([]any{r, installOptions, layoutScript})
	if err != nil {
		panic(err) // strings and bytes
	}
	sum := sha256.Sum256(description)
	return hex.EncodeToString(sum[:6])
}

// bootstrap installs the stream's packages into a new root and writes it, and
// the extensions' packages, as layers. Nothing is done when both are cached.
func bootstrap(ctx context.Context, options Options, recipe recipe, directory string) (layerFiles, error) {
	layers := layerFiles{
		packages:   filepath.Join(directory, "packages-"+recipe.key()+".tar.gz"),
		extensions: filepath.Join(directory, "extensions-"+recipe.key()+".tar.gz"),
	}
	if exists(layers.packages) && exists(layers.extensions) {
		return layers, nil
	}
	options.Log("%s: installing Debian packages of suite %s", recipe.Name, recipe.Suite)
	work, err := os.MkdirTemp(directory, "bootstrap-")
	if err != nil {
		return layers, err
	}
	defer os.RemoveAll(work)
	debs := filepath.Join(work, "debs")
	if err := os.MkdirAll(filepath.Join(debs, "partial"), 0o755); err != nil {
		return layers, err
	}
	layout := filepath.Join(work, "layout.sh")
	if err := os.WriteFile(layout, layoutScript, 0o755); err != nil {
		return layers, err
	}
	err = writeAtomically(layers.packages, func(file io.Writer) error {
		return debootstrap(ctx, recipe, debs, layout, file)
	})
	if err != nil {
		return layers, err
	}
	return layers, writeAtomically(layers.extensions, func(file io.Writer) error {
		return writeExtensions(ctx, debs, file)
	})
}

// installOptions are the same for every stream. Documentation that nobody reads
// on a node is left out, now and in builds on the image. Without force-unsafe-io
// dpkg waits for the disk after each file, for a root that is thrown away.
var installOptions = []string{
	"--quiet", "--mode=root", "--variant=minbase", "--format=tar",
	"--dpkgopt=path-exclude=/usr/share/doc/*", "--dpkgopt=path-include=/usr/share/doc/*/copyright",
	"--dpkgopt=path-exclude=/usr/share/man/*", "--dpkgopt=path-exclude=/usr/share/locale/*",
	"--dpkgopt=force-unsafe-io",
}

// debootstrap runs mmdebstrap and compresses the tar it prints. Its two hooks
// run when all packages are installed: the first, still with apt's lists, fetches
// the extensions with the dependencies that the root lacks; the second changes
// the layout.
func debootstrap(ctx context.Context, recipe recipe, debs, layout string, out io.Writer) error {
	fetch := fmt.Sprintf(`APT_CONFIG="$MMDEBSTRAP_APT_CONFIG" apt-get --yes --download-only --no-install-recommends -o Dir::Cache::archives=%q install %s`,
		debs, strings.Join(recipe.Extensions, " "))
	command := exec.CommandContext(ctx, "mmdebstrap", slices.Concat(installOptions, []string{
		"--include=" + strings.Join(recipe.Packages, ","),
		"--customize-hook=" + fetch, "--customize-hook=" + layout,
		recipe.Suite, "-",
	})...)
	if mirror := os.Getenv("IMAGEMODE_DEBIAN_MIRROR"); mirror != "" {
		command.Args = append(command.Args, mirror)
	}
	command.Env = append(os.Environ(), fmt.Sprintf("SOURCE_DATE_EPOCH=%d", sourceDate))
	var problems strings.Builder
	command.Stderr = &problems
	compressed, err := gzip.NewWriterLevel(out, gzip.BestSpeed)
	if err != nil {
		return err
	}
	command.Stdout = compressed
	if err := command.Run(); err != nil {
		return fmt.Errorf("mmdebstrap of suite %s: %w: %s (is the Debian mirror reachable? set IMAGEMODE_DEBIAN_MIRROR to use another)",
			recipe.Suite, err, lastLines(problems.String(), 6))
	}
	return compressed.Close()
}

// writeAtomically gives the file its name only when write has succeeded, so that
// a cached layer is always whole.
func writeAtomically(path string, write func(io.Writer) error) error {
	file, err := os.CreateTemp(filepath.Dir(path), ".new-")
	if err != nil {
		return err
	}
	defer os.Remove(file.Name())
	defer file.Close()
	if err := write(file); err != nil {
		return err
	}
	if err := file.Close(); err != nil {
		return err
	}
	return os.Rename(file.Name(), path)
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
