package faults

import (
	"bytes"
	"io"
	"net"
	"testing"
	"time"
)

// newServer sends the content to whoever connects.
func newServer(t *testing.T, content []byte) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer connection.Close()
				_, _ = connection.Write(content)
			}()
		}
	}()
	return listener.Addr().String()
}

func openLine(t *testing.T, content []byte, rate int64) *Line {
	t.Helper()
	line, err := NewLine("127.0.0.1", newServer(t, content), rate)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { line.Close() })
	return line
}

func receive(t *testing.T, line *Line) ([]byte, error) {
	t.Helper()
	connection, err := net.Dial("tcp", line.Address())
	if err != nil {
		return nil, err
	}
	defer connection.Close()
	return io.ReadAll(connection)
}

func TestALineTakesItsTime(t *testing.T) {
	content := bytes.Repeat([]byte("0123456789"), 50_000)
	line := openLine(t, content, 1_000_000)
	began := time.Now()
	got, err := receive(t, line)
	if err != nil || !bytes.Equal(got, content) {
		t.Fatalf("%d bytes (%v), want %d", len(got), err, len(content))
	}
	if took := time.Since(began); took < 450*time.Millisecond {
		t.Errorf("500 kB at 1 MB/s took %s", took)
	}
	if line.Passed() != int64(len(content)) {
		t.Errorf("%d bytes passed", line.Passed())
	}
}

func TestACutLineRefusesUntilItIsOpened(t *testing.T) {
	line := openLine(t, bytes.Repeat([]byte("x"), 1_000_000), 100_000)
	address := line.Address()
	received := make(chan int)
	go func() {
		got, _ := receive(t, line)
		received <- len(got)
	}()
	for line.Passed() == 0 {
		time.Sleep(time.Millisecond)
	}
	if err := line.Close(); err != nil {
		t.Fatal(err)
	}
	if got := <-received; got == 1_000_000 {
		t.Error("a connection survived the cut")
	}
	if _, err := receive(t, line); err == nil {
		t.Error("a line that was cut takes connections")
	}
	if err := line.Open(); err != nil || line.Address() != address {
		t.Fatalf("opened again at %s (%v), want %s", line.Address(), err, address)
	}
	connection, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer connection.Close()
	if _, err := connection.Read(make([]byte, 1)); err != nil {
		t.Errorf("nothing comes: %v", err)
	}
}
