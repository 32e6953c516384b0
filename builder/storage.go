package builder

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// lockStorage makes the storage directory and keeps other builds out of it until
// the file is closed, which the end of the process does, too: a build clears up
// what an earlier one left there.
func lockStorage(directory string) (*os.File, error) {
	if err := os.MkdirAll(directory, 0o711); err != nil {
		return nil, fmt.Errorf("storage: %w", err)
	}
	file, err := os.OpenFile(filepath.Join(directory, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("storage: %w", err)
	}
	err = unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		err = fmt.Errorf("storage: another build uses %s; wait for it or choose another directory", directory)
	}
	if err != nil {
		_ = file.Close() // nothing was written
		return nil, err
	}
	return file, nil
}
