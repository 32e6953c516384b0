package etc

import (
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// Copy makes target a copy of the tree at source with the modes and owners; it
// is how the /etc that an image brought is remembered. Sockets, pipes and device
// nodes are left out: they are no configuration.
func Copy(source, target string) error {
	info, err := os.Lstat(source)
	if err != nil {
		return err
	}
	if err := os.Mkdir(target, 0o755); err != nil {
		return err
	}
	root, err := os.OpenRoot(target)
	if err != nil {
		return err
	}
	defer root.Close()
	err = filepath.WalkDir(source, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || path == source {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(source, path)
		if err != nil {
			return err
		}
		return place(root, path, relative, info)
	})
	if err != nil {
		return err
	}
	return own(root, ".", info)
}

// place creates one entry in root as it is at source. A directory may exist.
func place(root *os.Root, source, path string, info fs.FileInfo) error {
	switch {
	case info.IsDir():
		if err := root.MkdirAll(path, 0o755); err != nil {
			return err
		}
	case info.Mode()&fs.ModeSymlink != 0:
		target, err := os.Readlink(source)
		if err != nil {
			return err
		}
		if err := root.Symlink(target, path); err != nil {
			return err
		}
	case info.Mode().IsRegular():
		if err := copyContent(root, source, path); err != nil {
			return err
		}
	default:
		return nil
	}
	return own(root, path, info)
}

// own sets owner and mode, in this order: a change of owner clears setuid.
func own(root *os.Root, path string, info fs.FileInfo) error {
	owner := owner(info)
	if err := root.Lchown(path, owner.uid, owner.gid); err != nil {
		return err
	}
	if info.Mode()&fs.ModeSymlink != 0 {
		return nil
	}
	return root.Chmod(path, info.Mode())
}

func copyContent(root *os.Root, source, path string) error {
	in, err := os.Open(source)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := root.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	if _, err := io.Copy(out, in); err != nil {
		out.Close()
		return err
	}
	return out.Close()
}
