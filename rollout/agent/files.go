package agent

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// maxFileBytes bounds every file that is read from the host.
const maxFileBytes = 1 << 20

// hostPath is where the agent sees a path of the host. The root is a link
// through /proc or "/", so that no path may climb out of it by "..".
func (h *SystemdHost) hostPath(path string) string {
	return filepath.Join(h.root, filepath.Clean("/"+path))
}

// BootID reads the boot id through the host's root: a machine in a container
// has one of its own.
func (h *SystemdHost) BootID() (string, error) {
	content, err := h.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", fmt.Errorf("boot id: %w", err)
	}
	return strings.TrimSpace(string(content)), nil
}

// ReadFile reads a file of at most 1 MiB.
func (h *SystemdHost) ReadFile(path string) ([]byte, error) {
	file, err := os.Open(h.hostPath(path))
	if err != nil {
		return nil, err
	}
	defer file.Close()
	content, err := io.ReadAll(io.LimitReader(file, maxFileBytes+1))
	if err != nil {
		return nil, err
	}
	if len(content) > maxFileBytes {
		return nil, fmt.Errorf("%s is larger than %d bytes", path, maxFileBytes)
	}
	return content, nil
}

// WriteFile writes beside the file, flushes, and renames over it; then the
// directory is flushed, or a power cut could still bring the old name back.
func (h *SystemdHost) WriteFile(path string, content []byte, mode fs.FileMode) (err error) {
	target := h.hostPath(path)
	directory := filepath.Dir(target)
	if err := os.MkdirAll(directory, 0o755); err != nil {
		return err
	}
	temporary, err := os.CreateTemp(directory, "."+filepath.Base(target)+".*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			os.Remove(temporary.Name())
		}
	}()
	if err := fill(temporary, content, mode); err != nil {
		return err
	}
	if err := os.Rename(temporary.Name(), target); err != nil {
		return err
	}
	return syncDirectory(directory)
}

// fill writes, flushes and closes; it closes after an error, too.
func fill(file *os.File, content []byte, mode fs.FileMode) error {
	_, err := file.Write(content)
	return errors.Join(err, file.Chmod(mode), file.Sync(), file.Close())
}

func syncDirectory(path string) error {
	directory, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(directory.Sync(), directory.Close())
}

// RemoveFile removes a file, if it is there, and flushes its directory.
func (h *SystemdHost) RemoveFile(path string) error {
	target := h.hostPath(path)
	err := os.Remove(target)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return errors.Join(err, syncDirectory(filepath.Dir(target)))
}

// readTail reads the end of a file that a command wrote: at most maxFileBytes.
func (h *SystemdHost) readTail(path string) (string, error) {
	file, err := os.Open(h.hostPath(path))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	defer file.Close()
	if info, err := file.Stat(); err == nil && info.Size() > maxFileBytes {
		if _, err := file.Seek(-maxFileBytes, io.SeekEnd); err != nil {
			return "", err
		}
	}
	content, err := io.ReadAll(io.LimitReader(file, maxFileBytes))
	return string(content), err
}
