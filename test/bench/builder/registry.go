package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

const registryConfig = `version: 0.1
log: {level: error, accesslog: {disabled: true}}
storage: {filesystem: {rootdirectory: %s}}
http: {addr: %s}
`

// startRegistry starts the registry on a free port of loopback, and the way to it
// that counts.
func (b *bench) startRegistry() error {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	b.host = listener.Addr().String()
	if err := listener.Close(); err != nil {
		return err
	}
	config := filepath.Join(b.work, "registry.yaml")
	if err := os.WriteFile(config, []byte(fmt.Sprintf(registryConfig, filepath.Join(b.work, "registry"), b.host)), 0o600); err != nil {
		return err
	}
	b.server = exec.Command(b.registry, "serve", config)
	b.server.Env = append(os.Environ(), "OTEL_TRACES_EXPORTER=none")
	// It logs everything that it does not have, which is most of what it is asked.
	var log strings.Builder
	b.server.Stderr = &log
	if err := b.server.Start(); err != nil {
		return err
	}
	for range 100 {
		if answer, err := http.Get("http://" + b.host + "/v2/"); err == nil {
			_ = answer.Body.Close()
			b.counter, b.counted, err = countTo(b.host)
			return err
		}
		time.Sleep(50 * time.Millisecond)
	}
	b.stopRegistry()
	return fmt.Errorf("the registry at %s does not answer: %s", b.host, log.String())
}

func (b *bench) stopRegistry() {
	_ = b.server.Process.Signal(unix.SIGTERM)
	_ = b.server.Wait() // it ends by the signal
}

// counter passes connections on and counts what clients send.
type counter struct{ bytes atomic.Int64 }

func (c *counter) sent() int64 { return c.bytes.Load() }

func countTo(host string) (*counter, string, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, "", err
	}
	c := &counter{}
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			go c.pass(client, host)
		}
	}()
	return c, listener.Addr().String(), nil
}

func (c *counter) pass(client net.Conn, host string) {
	defer client.Close()
	server, err := net.Dial("tcp", host)
	if err != nil {
		return
	}
	defer server.Close()
	go func() {
		_, _ = io.Copy(client, server) // ends with either side
		_ = client.Close()
	}()
	_, _ = io.Copy(server, io.TeeReader(client, c))
}

func (c *counter) Write(data []byte) (int, error) {
	c.bytes.Add(int64(len(data)))
	return len(data), nil
}
