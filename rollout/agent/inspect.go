package agent

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	securejoin "github.com/cyphar/filepath-securejoin"
	"golang.org/x/sys/unix"
)

// resolve is where the agent sees a path of the host whose links are followed as
// the host would: seen from a pod, an absolute link would lead into the pod.
func (h *SystemdHost) resolve(path string, follow bool) (string, error) {
	if follow {
		return securejoin.SecureJoin(h.root, path)
	}
	parent, err := securejoin.SecureJoin(h.root, filepath.Dir(path))
	return filepath.Join(parent, filepath.Base(path)), err
}

// Inspect describes a file of the host. A special file has neither content nor
// target.
func (h *SystemdHost) Inspect(path string, follow bool) (FileState, error) {
	seen, err := h.resolve(path, follow)
	if err != nil {
		return FileState{}, err
	}
	info, err := os.Lstat(seen)
	if errors.Is(err, syscall.ENOTDIR) {
		err = fs.ErrNotExist // a parent is a file
	}
	if err != nil {
		return FileState{}, err
	}
	status, isUnix := info.Sys().(*syscall.Stat_t)
	if !isUnix {
		return FileState{}, fmt.Errorf("%s: no owner known", path)
	}
	state := FileState{Kind: info.Mode().Type(), Mode: status.Mode & 0o7777, UID: int(status.Uid), GID: int(status.Gid)}
	switch state.Kind {
	case 0:
		state.SHA256, err = hashFile(seen)
	case fs.ModeSymlink:
		state.Target, err = os.Readlink(seen)
	}
	return state, err
}

func hashFile(path string) (string, error) {
	file, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer file.Close()
	sum := sha256.New()
	if _, err := io.Copy(sum, file); err != nil {
		return "", err
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

// PutBack replaces a file, its owner and its permissions. A link in its place is
// replaced, not followed; a directory is left alone.
func (h *SystemdHost) PutBack(path string, content []byte, state FileState) error {
	seen, err := h.resolve(path, false)
	if err != nil {
		return err
	}
	if info, err := os.Lstat(seen); err == nil && info.IsDir() {
		return fmt.Errorf("%s is a directory", path)
	}
	directory := filepath.Dir(seen)
	if err := os.MkdirAll(directory, 0o755); err != nil {
		return err
	}
	temporary, err := os.CreateTemp(directory, "."+filepath.Base(seen)+".*")
	if err != nil {
		return err
	}
	defer os.Remove(temporary.Name()) // gone by then, if all went well
	err = temporary.Chown(state.UID, state.GID)
	// After the owner: changing that clears setuid.
	if err := errors.Join(err, fill(temporary, content, 0o600), unix.Chmod(temporary.Name(), state.Mode)); err != nil {
		return err
	}
	if err := os.Rename(temporary.Name(), seen); err != nil {
		return err
	}
	return syncDirectory(directory)
}

// FreeBytes is what root may still write.
func (h *SystemdHost) FreeBytes(path string) (int64, error) {
	seen, err := h.resolve(path, true)
	if err != nil {
		return 0, err
	}
	var status unix.Statfs_t
	if err := unix.Statfs(seen, &status); err != nil {
		return 0, fmt.Errorf("%s: %w", path, err)
	}
	return int64(status.Bfree) * status.Bsize, nil
}

// IsActive asks systemd.
func (h *SystemdHost) IsActive(ctx context.Context, unit string) (bool, error) {
	connection, err := h.connect()
	if err != nil {
		return false, err
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	property, err := connection.GetUnitPropertyContext(ctx, unit, "ActiveState")
	if err != nil {
		return false, fmt.Errorf("unit %s: state unknown: %w", unit, err)
	}
	state, _ := property.Value.Value().(string)
	return state == "active", nil
}
