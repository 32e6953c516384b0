// Package lock keeps two commands from changing the cluster at once.
package lock

import (
	"errors"
	"fmt"
	"net"
	"syscall"
)

// address is a socket in the abstract namespace: the kernel frees it when its
// holder ends, however it ends, and it leaves no file.
const address = "@imagemode-cluster"

// Acquire takes the machine-wide lock until release is called or the process
// ends.
func Acquire() (release func(), err error) {
	listener, err := net.Listen("unix", address)
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, errors.New("another up or down of the local cluster is running on this machine: wait for it to end")
	}
	if err != nil {
		return nil, fmt.Errorf("the lock of the local cluster cannot be taken: %w", err)
	}
	return func() { listener.Close() }, nil
}
