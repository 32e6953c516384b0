package osimage

import (
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
)

// text is the part of the node software that is text: units, configuration, scripts.
//
//go:embed all:node
var text embed.FS

// hostBinaries are taken from Options.BinDir into /usr/bin of the image. Container
// runtimes are in a layer of their own.
var hostBinaries = []string{"bootc", "containerd", "containerd-shim-runc-v2", "ctr", "kubernetes"}

// enabledUnits start with the machine. The links stand in /usr, so that the
// image decides, and not the state of a machine's /etc.
var enabledUnits = []string{"containerd.service", "imagemode-node-setup.service", "kubelet.service"}

// maskedUnits would reach for the network, or for disks a machine does not have.
var maskedUnits = []string{
	"apt-daily.timer", "apt-daily-upgrade.timer", "console-getty.service", "dpkg-db-backup.timer",
	"e2scrub_all.timer", "e2scrub_reap.service", "fstrim.timer", "systemd-timesyncd.service",
}

// software is the node software of all streams: one layer, whatever the suite,
// since all of it is static or needs only what every suite has.
type software struct {
	key   string
	files []file
	// once returns the path of the layer, which the first call writes.
	once func() (string, error)
}

// prepareSoftware compiles what is ours, and collects the layer's files.
func prepareSoftware(ctx context.Context, options Options) (software, error) {
	if err := buildStandIn(ctx, options); err != nil {
		return software{}, err
	}
	files, err := textFiles()
	if err != nil {
		return software{}, err
	}
	pause, err := pauseArchive(options.BinDir)
	if err != nil {
		return software{}, fmt.Errorf("sandbox image: %w: compile the cluster's binaries first", err)
	}
	files = append(files, file{path: "usr/share/imagemode-node/pause.tar", mode: 0o644, content: pause})
	for _, name := range hostBinaries {
		content, err := os.ReadFile(filepath.Join(options.BinDir, name))
		if err != nil {
			return software{}, fmt.Errorf("node software: %w: compile the cluster's binaries first", err)
		}
		files = append(files, file{path: "usr/bin/" + name, mode: 0o755, content: content})
	}
	files = append(files, links()...)
	return software{key: keyOf(files), files: files}, nil
}

// textFiles returns the embedded tree. Programs are those under /usr/libexec.
func textFiles() ([]file, error) {
	var files []file
	err := fs.WalkDir(text, "node", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := text.ReadFile(name)
		if err != nil {
			return err
		}
		inImage, mode := strings.TrimPrefix(name, "node/"), int64(0o644)
		if strings.HasPrefix(inImage, "usr/libexec/") {
			mode = 0o755
		}
		files = append(files, file{path: inImage, mode: mode, content: content})
		return nil
	})
	return files, err
}

func links() []file {
	links := []file{
		{path: "usr/bin/kubelet", target: "kubernetes"},
		// The default target would be graphical.target, which adds nothing here.
		{path: "etc/systemd/system/default.target", target: "/usr/lib/systemd/system/multi-user.target"},
	}
	for _, unit := range enabledUnits {
		links = append(links, file{path: path.Join("usr/lib/systemd/system/multi-user.target.wants", unit), target: "../" + unit})
	}
	for _, unit := range maskedUnits {
		links = append(links, file{path: path.Join("etc/systemd/system", unit), target: "/dev/null"})
	}
	return links
}

// keyOf identifies the content of the files.
func keyOf(files []file) string {
	sum := sha256.New()
	for _, entry := range files {
		fmt.Fprintf(sum, "%q %o %q %d\n", entry.path, entry.mode, entry.target, len(entry.content))
		sum.Write(entry.content)
	}
	return hex.EncodeToString(sum.Sum(nil)[:6])
}

// layer writes the layer into the cache unless it is there, and returns its path.
// Layers of earlier software are removed: they are large, quickly made again, and
// would pile up with each change of the stand-in.
func (s software) layer(cache string) (string, error) {
	written := filepath.Join(cache, "node-software-"+s.key+".tar.gz")
	if exists(written) {
		return written, nil
	}
	earlier, err := filepath.Glob(filepath.Join(cache, "node-software-*.tar.gz"))
	if err != nil {
		return "", err
	}
	for _, path := range earlier {
		if err := os.Remove(path); err != nil {
			return "", err
		}
	}
	return written, writeAtomically(written, func(out io.Writer) error { return writeLayer(out, s.files) })
}
