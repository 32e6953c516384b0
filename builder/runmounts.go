package builder

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/imagemode/imagemode/builder/request"
)

// runMount is a directory of which every RUN sees a copy.
type runMount struct {
	// from is a directory of the build; its files may be links.
	from string
	// to is where a RUN sees it.
	to string
}

// runMounts are what a RUN sees besides the image.
type runMounts struct {
	directories []runMount
	// repositories is a hash of those that decide what is installed; empty: none.
	repositories string
}

// Bounds on what is given to a RUN: a Secret has at most 1 MiB.
const (
	maxMountFiles = 1000
	maxMountSize  = 8 << 20
)

// mountPlaces are the directories that a build may have, and where a RUN sees
// them. What decides which packages are installed is part of the step's key.
var mountPlaces = []struct {
	name, to     string
	isRepository bool
}{
	{request.DirEntitlement, "/etc/pki/entitlement", false},
	{request.DirYumRepos, "/etc/yum.repos.d", true},
	{request.DirGPGKeys, "/etc/pki/rpm-gpg", true},
}

// findRunMounts looks for the directories of mountPlaces. An empty one counts as
// missing: a volume of an optional Secret is a directory, too.
func findRunMounts(options Options) (*runMounts, error) {
	mounts := &runMounts{}
	hashes := map[string]map[string]string{}
	for _, place := range mountPlaces {
		directory := options.file(place.name)
		if directory == "" {
			continue
		}
		found := map[string]string{}
		err := eachFile(directory, func(name string, content io.Reader) error {
			hash, err := hashOfReader(content)
			found[name] = hash
			return err
		})
		if err != nil {
			return nil, err
		}
		if len(found) == 0 {
			continue
		}
		mounts.directories = append(mounts.directories, runMount{directory, place.to})
		if place.isRepository {
			hashes[place.name] = found
		}
	}
	if len(hashes) > 0 {
		mounts.repositories = hashOf(hashes)
	}
	return mounts, nil
}

// eachFile visits the files of a directory and of those below, by their path in
// it. Names that begin with ".." are left out: Kubernetes keeps the content
// that a mounted Secret's files are links to under them.
func eachFile(directory string, visit func(name string, content io.Reader) error) error {
	files, size := 0, int64(0)
	err := filepath.WalkDir(directory, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if strings.HasPrefix(entry.Name(), "..") {
			if entry.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		info, err := os.Stat(path)
		if err != nil || !info.Mode().IsRegular() {
			return err
		}
		if files++; files > maxMountFiles {
			return fmt.Errorf("more than %d files", maxMountFiles)
		}
		if size += info.Size(); size > maxMountSize {
			return fmt.Errorf("more than %d bytes", maxMountSize)
		}
		file, err := os.Open(path)
		if err != nil {
			return err
		}
		defer file.Close()
		name, err := filepath.Rel(directory, path)
		if err != nil {
			return err
		}
		return visit(name, io.LimitReader(file, maxMountSize))
	})
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("files for RUN in %s: %w", directory, err)
	}
	return nil
}

// copyTo copies the directories below scratch and gives them in the form of
// buildah's transient mounts. A RUN may write to its copy.
func (m *runMounts) copyTo(scratch string) ([]string, error) {
	var volumes []string
	for _, mount := range m.directories {
		target := filepath.Join(scratch, "run", filepath.Base(mount.from))
		if err := os.MkdirAll(target, 0o755); err != nil {
			return nil, err
		}
		err := eachFile(mount.from, func(name string, content io.Reader) error {
			return copyFile(filepath.Join(target, name), content)
		})
		if err != nil {
			return nil, err
		}
		volumes = append(volumes, target+":"+mount.to+":rw")
	}
	return volumes, nil
}

func copyFile(path string, content io.Reader) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	file, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o644)
	if err != nil {
		return err
	}
	_, err = io.Copy(file, content)
	return errors.Join(err, file.Close())
}
