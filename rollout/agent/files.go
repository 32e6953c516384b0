package agent

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

const (
	// maxFileBytes bounds every file that is read from the host: the list of the
	// files that an image delivers has some hundred bytes for each.
	maxFileBytes = 8 << 20
	// maxTailBytes bounds what is read of a command's output.
	maxTailBytes = 1 << 20
)

// hostPath is where the agent sees a path of the host. The root is a link
// through /proc or "/", so that no path may climb out of it by "..".
func (h *SystemdHost) hostPath(path string) string {
	return filepath.Join(h.root, filepath.Clean("/"+path))
}

// BootID reads the boot id through the host's root: a machine in a container
// has one of its own.
func (h *SystemdHost) BootID(ctx context.Context) (string, error) {
	content, err := h.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", fmt.Errorf("boot id: %w", err)
	}
	count, err := h.softReboots(ctx)
	if err != nil {
		return "", err
	}
	return joinBootID(strings.TrimSpace(string(content)), count), nil
}

func joinBootID(id string, softReboots int) string {
	if softReboots == 0 {
		return id
	}
	return id + "+" + strconv.Itoa(softReboots)
}

// splitBootID is what the API has in two fields: the kubelet reports the kernel's
// boot id alone.
func splitBootID(joined string) (id string, softReboots int32) {
	id, count, isSoft := strings.Cut(joined, "+")
	if isSoft {
		if parsed, err := strconv.ParseInt(count, 10, 32); err == nil {
			softReboots = int32(parsed)
		}
	}
	return id, softReboots
}

// ReadFile reads a file of at most 8 MiB.
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

// InstallProgram copies the running program, unless the same is there. Where the
// host has SELinux, systemd may not start what is labelled as data of /var: the
// copy is labelled as a program, if that is possible.
func (h *SystemdHost) InstallProgram(path string) error {
	own, err := os.Open("/proc/self/exe")
	if err != nil {
		return err
	}
	defer own.Close()
	target := h.hostPath(path)
	if isSame, err := hasContent(target, own); err != nil || isSame {
		return err
	}
	directory := filepath.Dir(target)
	if err := os.MkdirAll(directory, 0o755); err != nil {
		return err
	}
	temporary, err := os.CreateTemp(directory, "."+filepath.Base(target)+".*")
	if err != nil {
		return err
	}
	defer os.Remove(temporary.Name()) // gone by then, if all went well
	if _, err := io.Copy(temporary, own); err != nil {
		return errors.Join(err, temporary.Close())
	}
	if err := fill(temporary, nil, 0o755); err != nil {
		return err
	}
	_ = unix.Setxattr(temporary.Name(), "security.selinux", []byte("system_u:object_r:bin_t:s0\x00"), 0) // refused where there is no SELinux
	if err := os.Rename(temporary.Name(), target); err != nil {
		return err
	}
	return syncDirectory(directory)
}

// hasContent compares a file with what a reader has, and puts the reader back to
// its beginning.
func hasContent(path string, own io.ReadSeeker) (bool, error) {
	file, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer file.Close()
	there, here := sha256.New(), sha256.New()
	_, thereErr := io.Copy(there, file)
	_, hereErr := io.Copy(here, own)
	_, seekErr := own.Seek(0, io.SeekStart)
	return bytes.Equal(there.Sum(nil), here.Sum(nil)), errors.Join(thereErr, hereErr, seekErr)
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

// readTail reads the end of a file that a command wrote: at most maxTailBytes.
func (h *SystemdHost) readTail(path string) (string, error) {
	file, err := os.Open(h.hostPath(path))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	defer file.Close()
	if info, err := file.Stat(); err == nil && info.Size() > maxTailBytes {
		if _, err := file.Seek(-maxTailBytes, io.SeekEnd); err != nil {
			return "", err
		}
	}
	content, err := io.ReadAll(io.LimitReader(file, maxTailBytes))
	return string(content), err
}
