package osimage

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	"github.com/klauspost/compress/gzip"
)

// extensionsList is the apt source of a Containerfile that binds the extensions
// image at /run/extensions. OS images made here have the same line in
// /etc/apt/sources.list.d, so that there
//
//	RUN --mount=type=bind,from=extensions,target=/run/extensions \
//	    apt-get update && apt-get install --yes figlet && apt-get clean
//
// installs without a network. Where an image has other sources too, add
// -o Dir::Etc::sourcelist=/run/extensions/extensions.list -o Dir::Etc::sourceparts=/dev/null
// to both calls.
const extensionsList = "deb [trusted=yes] file:/run/extensions ./\n"

// writeExtensions writes the layer of an extensions image: a flat apt repository
// of the .deb files in the directory.
func writeExtensions(ctx context.Context, debs string, out io.Writer) error {
	paths, err := filepath.Glob(filepath.Join(debs, "*.deb"))
	if err != nil {
		return err
	}
	if len(paths) == 0 {
		return fmt.Errorf("no extension package was fetched into %s", debs)
	}
	slices.Sort(paths)
	files := make([]file, 0, len(paths)+2)
	var index bytes.Buffer
	for _, path := range paths {
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if err := describePackage(ctx, &index, path, content); err != nil {
			return err
		}
		files = append(files, file{path: filepath.Base(path), mode: 0o644, content: content})
	}
	files = append(files,
		file{path: "Packages", mode: 0o644, content: index.Bytes()},
		file{path: "extensions.list", mode: 0o644, content: []byte(extensionsList)})
	return writeLayer(out, files)
}

// describePackage appends the stanza of one package to an apt index: the control
// fields of the package and what apt needs to find and check the file.
func describePackage(ctx context.Context, index *bytes.Buffer, path string, content []byte) error {
	fields, err := exec.CommandContext(ctx, "dpkg-deb", "--field", path).Output()
	if err != nil {
		return fmt.Errorf("reading the control fields of %s: %w", filepath.Base(path), err)
	}
	index.Write(bytes.TrimSpace(fields))
	fmt.Fprintf(index, "\nFilename: ./%s\nSize: %d\nSHA256: %x\n\n", filepath.Base(path), len(content), sha256.Sum256(content))
	return nil
}

// file is one entry of a layer: a regular file, or a link where target is set.
type file struct {
	path    string
	mode    int64
	content []byte
	target  string
}

// writeLayer writes a compressed tar of the files, and of the directories above
// them, in the order of their paths, all owned by root and of one time.
func writeLayer(out io.Writer, files []file) error {
	compressed, err := gzip.NewWriterLevel(out, gzip.BestSpeed)
	if err != nil {
		return err
	}
	archive := tar.NewWriter(compressed)
	slices.SortFunc(files, func(a, b file) int { return bytes.Compare([]byte(a.path), []byte(b.path)) })
	made := map[string]bool{".": true}
	for _, entry := range files {
		if err := writeParents(archive, filepath.Dir(entry.path), made); err != nil {
			return err
		}
		if err := writeEntry(archive, entry); err != nil {
			return fmt.Errorf("%s: %w", entry.path, err)
		}
	}
	if err := archive.Close(); err != nil {
		return err
	}
	return compressed.Close()
}

func writeParents(archive *tar.Writer, directory string, made map[string]bool) error {
	if made[directory] {
		return nil
	}
	if err := writeParents(archive, filepath.Dir(directory), made); err != nil {
		return err
	}
	made[directory] = true
	return archive.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: directory + "/", Mode: 0o755, ModTime: time.Unix(sourceDate, 0)})
}

func writeEntry(archive *tar.Writer, entry file) error {
	header := &tar.Header{Typeflag: tar.TypeReg, Name: entry.path, Mode: entry.mode, Size: int64(len(entry.content)), ModTime: time.Unix(sourceDate, 0)}
	if entry.target != "" {
		header.Typeflag, header.Linkname, header.Mode = tar.TypeSymlink, entry.target, 0o777
	}
	if err := archive.WriteHeader(header); err != nil {
		return err
	}
	_, err := archive.Write(entry.content)
	return err
}
