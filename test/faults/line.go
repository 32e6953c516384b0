package faults

import (
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// chunk is how much is passed on at a time.
const chunk = 64 << 10

// Line leads from an address of its own to a server, and can be cut. All of its
// connections together receive no more bytes per second than its rate. What passes it
// does not read, so that the server's own certificate counts. It is safe for
// concurrent use.
type Line struct {
	target string
	rate   int64
	passed atomic.Int64

	mutex       sync.Mutex
	address     string
	listener    net.Listener
	connections map[net.Conn]bool
	// free is when the line has passed on all that was given to it.
	free time.Time
}

// NewLine opens a line from a free port of the IP address to the target, host:port,
// with a rate in bytes per second; 0: as fast as it goes. Close it after use.
func NewLine(ip, target string, rate int64) (*Line, error) {
	line := &Line{target: target, rate: rate, address: net.JoinHostPort(ip, "0"), connections: map[net.Conn]bool{}}
	return line, line.Open()
}

// Address is where it listens, the same after Close and Open.
func (l *Line) Address() string {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	return l.address
}

// Passed is how many bytes have come from the server so far.
func (l *Line) Passed() int64 { return l.passed.Load() }

// Open lets connections through, again after Close. An open line stays as it is.
func (l *Line) Open() error {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	if l.listener != nil {
		return nil
	}
	listener, err := net.Listen("tcp", l.address)
	if err != nil {
		return fmt.Errorf("line to %s: %w", l.target, err)
	}
	l.listener, l.address = listener, listener.Addr().String()
	go l.accept(listener)
	return nil
}

// Close cuts all connections and refuses new ones.
func (l *Line) Close() error {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	if l.listener == nil {
		return nil
	}
	err := l.listener.Close()
	l.listener = nil
	for connection := range l.connections {
		err = errors.Join(err, connection.Close())
	}
	clear(l.connections)
	return err
}

func (l *Line) accept(listener net.Listener) {
	for {
		client, err := listener.Accept()
		if err != nil {
			return
		}
		go l.serve(listener, client)
	}
}

func (l *Line) serve(listener net.Listener, client net.Conn) {
	defer client.Close()
	server, err := net.Dial("tcp", l.target)
	if err != nil {
		return
	}
	defer server.Close()
	if !l.keep(listener, client, server) {
		return
	}
	defer l.forget(client, server)
	go func() {
		_, _ = io.Copy(server, client)
		_ = server.(*net.TCPConn).CloseWrite()
	}()
	l.pass(client, server)
}

// keep records connections, unless the line was closed in the meantime.
func (l *Line) keep(listener net.Listener, connections ...net.Conn) bool {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	for _, connection := range connections {
		l.connections[connection] = true
	}
	return l.listener == listener
}

func (l *Line) forget(connections ...net.Conn) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	for _, connection := range connections {
		delete(l.connections, connection)
	}
}

// pass copies what the server sends until either side ends.
func (l *Line) pass(client, server net.Conn) {
	buffer := make([]byte, chunk)
	for {
		count, err := server.Read(buffer)
		if count > 0 {
			l.passed.Add(int64(count))
			time.Sleep(l.reserve(count, time.Now()))
			if _, failed := client.Write(buffer[:count]); failed != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// reserve takes the line's time for so many bytes and returns how long to wait
// until they have passed.
func (l *Line) reserve(count int, now time.Time) time.Duration {
	if l.rate <= 0 {
		return 0
	}
	l.mutex.Lock()
	defer l.mutex.Unlock()
	if l.free.Before(now) {
		l.free = now
	}
	l.free = l.free.Add(time.Duration(int64(count) * int64(time.Second) / l.rate))
	return l.free.Sub(now)
}
