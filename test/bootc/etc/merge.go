// Package etc keeps a machine's own changes to /etc over an update of its
// image: the three-way merge a bootc host does at shutdown, per whole file.
package etc

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"syscall"
)

// Changes are paths relative to /etc, sorted.
type Changes struct {
	// Kept were added or changed on the machine and now stand in the new /etc.
	Kept []string
	// Deleted were deleted on the machine and now lack in the new /etc.
	Deleted []string
}

// Merge applies to target, the /etc of the new image, what differs in current
// from pristine, the /etc as the running image brought it. A file counts as
// changed when its content, type, mode or owner differs; times do not matter.
// It fails, naming the path, where a changed file meets a directory or the other
// way round: no answer to that would be right.
func Merge(pristine, current, target string) (Changes, error) {
	before, err := tree(pristine)
	if err != nil {
		return Changes{}, err
	}
	now, err := tree(current)
	if err != nil {
		return Changes{}, err
	}
	root, err := os.OpenRoot(target)
	if err != nil {
		return Changes{}, err
	}
	defer root.Close()
	var changes Changes
	for _, path := range slices.Sorted(maps.Keys(now)) {
		same, err := isSame(pristine, before[path], current, now[path], path)
		if err != nil {
			return changes, err
		}
		if same {
			continue
		}
		if err := keep(root, current, path, now[path]); err != nil {
			return changes, fmt.Errorf("merging /etc/%s: %w", path, err)
		}
		changes.Kept = append(changes.Kept, path)
	}
	for _, path := range slices.Sorted(maps.Keys(before)) {
		if _, exists := now[path]; exists {
			continue
		}
		if err := root.RemoveAll(path); err != nil {
			return changes, fmt.Errorf("merging /etc/%s, which was deleted: %w", path, err)
		}
		changes.Deleted = append(changes.Deleted, path)
	}
	return changes, nil
}

// keep puts one changed entry of the machine into the new /etc.
func keep(root *os.Root, current, path string, info fs.FileInfo) error {
	existing, err := root.Lstat(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if existing != nil && existing.IsDir() != info.IsDir() {
		return fmt.Errorf("it is %s on this machine and %s in the new image", kind(info), kind(existing))
	}
	if err := root.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	if existing != nil && !info.IsDir() {
		if err := root.Remove(path); err != nil {
			return err
		}
	}
	return place(root, filepath.Join(current, path), path, info)
}

func kind(info fs.FileInfo) string {
	if info.IsDir() {
		return "a directory"
	}
	return "a file"
}

// tree lists everything below a directory by relative path.
func tree(directory string) (map[string]fs.FileInfo, error) {
	found := map[string]fs.FileInfo{}
	err := filepath.WalkDir(directory, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || path == directory {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(directory, path)
		found[relative] = info
		return err
	})
	return found, err
}

// isSame compares one entry of two trees; a nil FileInfo is an absent one.
func isSame(oneRoot string, one fs.FileInfo, otherRoot string, other fs.FileInfo, path string) (bool, error) {
	if one == nil || other == nil {
		return one == nil && other == nil, nil
	}
	oneOwner, otherOwner := owner(one), owner(other)
	if one.Mode() != other.Mode() || oneOwner != otherOwner {
		return false, nil
	}
	switch {
	case one.Mode().IsRegular():
		if one.Size() != other.Size() {
			return false, nil
		}
		return sameBy(os.ReadFile, bytes.Equal, filepath.Join(oneRoot, path), filepath.Join(otherRoot, path))
	case one.Mode()&fs.ModeSymlink != 0:
		return sameBy(os.Readlink, func(a, b string) bool { return a == b }, filepath.Join(oneRoot, path), filepath.Join(otherRoot, path))
	default:
		return true, nil
	}
}

func sameBy[T any](read func(string) (T, error), equal func(T, T) bool, one, other string) (bool, error) {
	a, err := read(one)
	if err != nil {
		return false, err
	}
	b, err := read(other)
	return err == nil && equal(a, b), err
}

type ids struct{ uid, gid int }

func owner(info fs.FileInfo) ids {
	stat := info.Sys().(*syscall.Stat_t)
	return ids{uid: int(stat.Uid), gid: int(stat.Gid)}
}
