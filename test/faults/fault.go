package faults

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"
)

// Outage answers every request with a status for a time, which begins with the
// first upload of a blob: what a registry is asked before is answered.
func Outage(status int, lasts time.Duration) Fault {
	return &outage{status: status, lasts: lasts}
}

type outage struct {
	status int
	lasts  time.Duration
	begun  time.Time
}

func (o *outage) fails(r *http.Request) bool {
	if o.begun.IsZero() && isUpload(r) {
		o.begun = time.Now()
	}
	return !o.begun.IsZero() && time.Since(o.begun) < o.lasts
}

func (o *outage) answer(w http.ResponseWriter) { w.WriteHeader(o.status) }

// BrokenPush ends the connection of the first upload that has sent so many bytes,
// and lets no request get an answer for a time from then on: a registry that
// crashed and is started again.
func BrokenPush(after int64, lasts time.Duration) Fault {
	return &brokenPush{after: after, lasts: lasts}
}

type brokenPush struct {
	after int64
	lasts time.Duration

	// mutex guards begun, which the body of a request sets.
	mutex sync.Mutex
	begun time.Time
}

func (b *brokenPush) fails(r *http.Request) bool {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	if b.begun.IsZero() {
		if isUpload(r) && r.Body != nil {
			r.Body = &brokenBody{ReadCloser: r.Body, fault: b, left: b.after}
		}
		return false
	}
	return time.Since(b.begun) < b.lasts
}

func (b *brokenPush) answer(http.ResponseWriter) { panic(http.ErrAbortHandler) }

// breakOff reports whether an upload that has sent enough is the one to break.
func (b *brokenPush) breakOff() bool {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	if !b.begun.IsZero() {
		return false
	}
	b.begun = time.Now()
	return true
}

// brokenBody is the body of an upload.
type brokenBody struct {
	io.ReadCloser
	fault *brokenPush
	left  int64
}

var errBrokenOff = errors.New("the fault broke the upload off")

func (b *brokenBody) Read(data []byte) (int, error) {
	if b.left <= 0 && b.fault.breakOff() {
		return 0, errBrokenOff
	}
	n, err := b.ReadCloser.Read(data)
	b.left -= int64(n)
	return n, err
}

// isUpload reports whether a request sends a blob, or asks where to.
func isUpload(r *http.Request) bool {
	return r.Method != http.MethodGet && r.Method != http.MethodHead && strings.Contains(r.URL.Path, "/blobs/uploads/")
}
