package host

import (
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestStatusJSON holds the document against the required and the nullable fields
// of bootc's schema.
func TestStatusJSON(t *testing.T) {
	f, first := installed(t)
	status, err := f.Status()
	if err != nil {
		t.Fatal(err)
	}
	content, err := json.Marshal(status)
	if err != nil {
		t.Fatal(err)
	}
	var got map[string]any
	if err := json.Unmarshal(content, &got); err != nil {
		t.Fatal(err)
	}
	reference := map[string]any{"image": first, "transport": "registry"}
	booted := map[string]any{
		"image": map[string]any{
			"image": reference, "version": "12", "timestamp": "0001-01-01T00:00:00Z",
			"imageDigest": digestOf(first), "architecture": "amd64",
		},
		"cachedUpdate": nil, "incompatible": false, "pinned": false, "softRebootCapable": false, "downloadOnly": false,
		"store":  "ostreeContainer",
		"ostree": map[string]any{"stateroot": "default", "checksum": (&Deployment{Digest: digestOf(first)}).checksum(), "deploySerial": 0.0},
	}
	want := map[string]any{
		"apiVersion": "org.containers.bootc/v1", "kind": "BootcHost", "metadata": map[string]any{"name": "host"},
		"spec": map[string]any{"image": reference, "bootOrder": "default"},
		"status": map[string]any{
			"staged": nil, "booted": booted, "rollback": nil, "rollbackQueued": false, "type": "bootcHost",
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("status (-want +got):\n%s", diff)
	}
}

func TestOtherHostsAreNotBootcHosts(t *testing.T) {
	f := newFixture(t)
	if _, err := f.Status(); !errors.Is(err, ErrNotBooted) {
		t.Errorf("error is %v, want %v", err, ErrNotBooted)
	}
}

// lines is an output that may be read while it is written.
type lines struct {
	mutex sync.Mutex
	text  strings.Builder
}

func (l *lines) Write(content []byte) (int, error) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	return l.text.Write(content)
}

func (l *lines) String() string {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	return l.text.String()
}

func TestStatusWaitsForTheLockAndSaysSo(t *testing.T) {
	f, _ := installed(t)
	progress := &lines{}
	f.Progress = progress
	unlock, err := f.lock()
	if err != nil {
		t.Fatal(err)
	}
	answered := make(chan error, 1)
	go func() {
		_, err := f.Status()
		answered <- err
	}()
	select {
	case err := <-answered:
		t.Fatalf("status answered (%v) while the lock was held", err)
	case <-time.After(200 * time.Millisecond):
	}
	if got, want := progress.String(), "Waiting for sysroot lock...\n"; got != want {
		t.Errorf("progress is %q, want %q", got, want)
	}
	unlock()
	if err := <-answered; err != nil {
		t.Error(err)
	}
}
