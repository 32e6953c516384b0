package osimagestream

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/imagemode/imagemode/controllers/osimagestream/streams"
)

// Bounds of the cache: an object holds a mebibyte. An image's labels take a
// quarter of a kilobyte, a payload two kilobytes. There is room for all that can be
// in use at a time: the images of two payloads, of the ConfigMap's streams and of
// MachineConfigs.
const (
	maxCacheEntries = 800
	maxCacheBytes   = 512 << 10
)

// cacheVersion tells entries of another version of this program, which may have
// looked for other labels or tags: they are read anew.
const cacheVersion = 1

// imageCache keeps what was read of images. An image by digest never changes,
// so an entry is never wrong; images by tag are not kept. The entries used last
// stay when there are too many.
type imageCache struct {
	mutex   sync.Mutex
	entries map[string]cacheEntry
	now     func() time.Time
}

// cacheEntry is one image.
type cacheEntry struct {
	// Version of the entry: cacheVersion.
	Version int `json:"version"`
	// Labels of the image; nil: not read.
	Labels map[string]string `json:"labels,omitempty"`
	// HasLabels tells an image without labels from one that was not asked.
	HasLabels bool `json:"hasLabels,omitempty"`
	// Payload of a release image; nil: not read.
	Payload *streams.Payload `json:"payload,omitempty"`
	// Used is when the entry was last used, to the second.
	Used time.Time `json:"used"`
}

func newImageCache(now func() time.Time) *imageCache {
	return &imageCache{entries: map[string]cacheEntry{}, now: now}
}

// cacheKey is the key of an image: its digest in the form that a ConfigMap takes.
// Empty: the image has no digest.
func cacheKey(image string) string {
	_, digest, _ := strings.Cut(image, "@")
	return strings.ReplaceAll(digest, ":", "-")
}

func (c *imageCache) labels(image string) (map[string]string, bool) {
	entry, found := c.use(image)
	return entry.Labels, found && entry.HasLabels
}

func (c *imageCache) payload(image string) (*streams.Payload, bool) {
	entry, found := c.use(image)
	return entry.Payload, found && entry.Payload != nil
}

func (c *imageCache) putLabels(image string, labels map[string]string) {
	c.change(image, func(entry *cacheEntry) { entry.Labels, entry.HasLabels = labels, true })
}

func (c *imageCache) putPayload(image string, payload *streams.Payload) {
	c.change(image, func(entry *cacheEntry) { entry.Payload = payload })
}

func (c *imageCache) use(image string) (cacheEntry, bool) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	key := cacheKey(image)
	entry, found := c.entries[key]
	if found {
		entry.Used = c.now().UTC().Truncate(time.Second)
		c.entries[key] = entry
	}
	return entry, found
}

func (c *imageCache) change(image string, set func(*cacheEntry)) {
	key := cacheKey(image)
	if key == "" {
		return
	}
	c.mutex.Lock()
	defer c.mutex.Unlock()
	entry := c.entries[key]
	set(&entry)
	entry.Version = cacheVersion
	entry.Used = c.now().UTC().Truncate(time.Second)
	c.entries[key] = entry
}

// load takes over entries from the ConfigMap's data that are not known. What
// does not parse, or is of another version, is left out: it is read anew from a
// registry.
func (c *imageCache) load(data map[string]string) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	for key, text := range data {
		var entry cacheEntry
		if _, isKnown := c.entries[key]; isKnown || json.Unmarshal([]byte(text), &entry) != nil || entry.Version != cacheVersion {
			continue
		}
		c.entries[key] = entry
	}
}

// encode evicts what is too much and gives the data for the ConfigMap.
func (c *imageCache) encode() map[string]string {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	lastFirst := slices.SortedFunc(maps.Keys(c.entries), func(a, b string) int {
		if order := c.entries[b].Used.Compare(c.entries[a].Used); order != 0 {
			return order
		}
		return strings.Compare(a, b)
	})
	data := map[string]string{}
	size := 0
	for _, key := range lastFirst {
		text, err := json.Marshal(c.entries[key])
		if err != nil {
			panic(err) // strings and times always marshal
		}
		size += len(key) + len(text)
		if len(data) == maxCacheEntries || size > maxCacheBytes {
			delete(c.entries, key)
			continue
		}
		data[key] = string(text)
	}
	return data
}

// isKept reports whether data, of the ConfigMap, has every entry with its
// content. When an entry was used last does not count: a use alone is no reason
// to write.
func isKept(want, data map[string]string) bool {
	if len(want) != len(data) {
		return false
	}
	for key, text := range want {
		var wanted, kept cacheEntry
		if json.Unmarshal([]byte(text), &wanted) != nil || json.Unmarshal([]byte(data[key]), &kept) != nil {
			return false
		}
		if wanted.Version != kept.Version || wanted.HasLabels != kept.HasLabels || (wanted.Payload == nil) != (kept.Payload == nil) {
			return false
		}
	}
	return true
}
