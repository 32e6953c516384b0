package builder

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"sync"

	"go.podman.io/image/v5/docker/reference"
	"go.podman.io/image/v5/types"

	"github.com/imagemode/imagemode/registry"
)

// layerCache keeps the layers of single instructions in the repository that is
// pushed to, so that a text with a line more at its end runs that line only.
type layerCache struct {
	// repository is nil where there is no registry to keep them in.
	repository reference.Named
	// salt keeps apart what the library takes for the same: layers of another
	// rebuild, or made with other package repositories.
	salt string

	mutex sync.Mutex
	// tags that were written or found.
	tags []string
}

func newLayerCache(job *job) *layerCache {
	cache := &layerCache{salt: hashOf(runInputsOf(job))}
	if !registry.IsLayout(job.repository) {
		// A repository that does not parse is refused before this.
		cache.repository, _ = reference.ParseNamed(job.repository)
	}
	return cache
}

// repositories is what the library wants.
func (c *layerCache) repositories() []reference.Named {
	if c.repository == nil {
		return nil
	}
	return []reference.Named{c.repository}
}

// place gives the library's reference to a layer, repository:<64 hex>, the tag
// layer-<32 hex>, which says what it is, and differs where the salt does. It is
// asked before a layer is pulled and before one is pushed; what is not found is
// made and pushed, so the build relies on the tag in both cases.
func (c *layerCache) place(ref types.ImageReference) (types.ImageReference, error) {
	tagged, isTagged := ref.DockerReference().(reference.NamedTagged)
	if !isTagged {
		return ref, nil
	}
	sum := sha256.Sum256([]byte(c.salt + " " + tagged.Tag()))
	tag := "layer-" + hex.EncodeToString(sum[:16])
	c.note(tag)
	return registry.PushReference(c.repository.Name(), tag)
}

// forget is called when no layer can be kept.
func (c *layerCache) forget() {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.tags = nil
}

func (c *layerCache) note(tag string) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if !slices.Contains(c.tags, tag) {
		c.tags = append(c.tags, tag)
	}
}
