//go:build envtest

package scale

import (
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

// ledger counts the writes that a client makes, by resource and name.
type ledger struct {
	mutex   sync.Mutex
	entries []entry
	last    time.Time
}

// entry is one write. resource is that of the path, with its subresource.
type entry struct {
	resource, name string
	at             time.Time
}

func newLedger() *ledger { return &ledger{last: time.Now()} }

// wrap counts the requests of a transport that write, and succeed.
func (l *ledger) wrap(next http.RoundTripper) http.RoundTripper {
	return counting{next: next, ledger: l}
}

type counting struct {
	next   http.RoundTripper
	ledger *ledger
}

func (c counting) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := c.next.RoundTrip(request)
	if err == nil && request.Method != http.MethodGet && response.StatusCode < 300 {
		c.ledger.note(request.URL.Path)
	}
	return response, err
}

func (l *ledger) note(path string) {
	resource, name := split(path)
	l.mutex.Lock()
	defer l.mutex.Unlock()
	now := time.Now()
	l.entries = append(l.entries, entry{resource, name, now})
	if resource != "events" {
		l.last = now
	}
}

// split takes a path apart: /api/v1/…, or /apis/GROUP/VERSION/…, then
// [namespaces/NAMESPACE/]RESOURCE[/NAME[/SUBRESOURCE]].
func split(path string) (resource, name string) {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	if parts[0] == "api" {
		parts = parts[2:]
	} else {
		parts = parts[3:]
	}
	if parts[0] == "namespaces" && len(parts) > 2 {
		parts = parts[2:]
	}
	resource = parts[0]
	if len(parts) > 1 {
		name = parts[1]
	}
	if len(parts) > 2 {
		resource += "/" + parts[2]
	}
	return resource, name
}

func (l *ledger) lastWrite() time.Time {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	return l.last
}

// since are the entries after a time.
func (l *ledger) since(begin time.Time) []entry {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	var found []entry
	for _, entry := range l.entries {
		if entry.at.After(begin) {
			found = append(found, entry)
		}
	}
	return found
}

// count is how many of the entries are writes of a resource or its subresources.
func count(entries []entry, resources ...string) int {
	number := 0
	for _, entry := range entries {
		bare, _, _ := strings.Cut(entry.resource, "/")
		if slices.Contains(resources, bare) {
			number++
		}
	}
	return number
}

// byResource counts them all.
func byResource(entries []entry) map[string]int {
	counts := map[string]int{}
	for _, entry := range entries {
		counts[entry.resource]++
	}
	return counts
}

// closest is the shortest time between two writes of the same object of a
// resource; 0: there are none.
func closest(entries []entry, resource string) time.Duration {
	last, shortest := map[string]time.Time{}, time.Duration(0)
	for _, entry := range entries {
		if entry.resource != resource {
			continue
		}
		if before, isKnown := last[entry.name]; isKnown {
			if gap := entry.at.Sub(before); shortest == 0 || gap < shortest {
				shortest = gap
			}
		}
		last[entry.name] = entry.at
	}
	return shortest
}
