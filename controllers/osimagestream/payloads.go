package osimagestream

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	corev1 "k8s.io/api/core/v1"

	"github.com/imagemode/imagemode/api/machineconfiguration"
	"github.com/imagemode/imagemode/controllers/osimagestream/streams"
)

// Payloads reads the payloads of release images for other controllers, by the
// same way as the streams of the cluster itself. It keeps what it read, and
// takes over what the cluster keeps, but does not write it. Several may be read at
// the same time: one whose registry hangs holds up no other.
type Payloads struct{ r *reconciler }

// NewPayloads returns a reader of payloads. Of options, those for reading images
// count.
func NewPayloads(c client.Client, options Options) *Payloads {
	return &Payloads{r: &reconciler{client: c, options: options.withDefaults(), cache: newImageCache(time.Now)}}
}

// Read returns the payload of a release image. Its errors are *TransientError,
// *PermanentError, and those of reading the cluster's objects.
func (p *Payloads) Read(ctx context.Context, image string) (*streams.Payload, error) {
	if known, isKnown := p.r.cache.payload(image); isKnown {
		return known, nil
	}
	s := &scope{configMaps: map[string]*corev1.ConfigMap{}}
	for _, name := range []string{machineconfiguration.ConfigMapTrustBundle, machineconfiguration.ConfigMapImageLabels} {
		key := types.NamespacedName{Namespace: p.r.options.Namespace, Name: name}
		found, err := read(ctx, p.r.client, key, &corev1.ConfigMap{})
		if err != nil {
			return nil, err
		}
		s.configMaps[name] = found
	}
	var err error
	if s.platform, err = readPlatform(ctx, p.r.client); err != nil {
		return nil, err
	}
	if err := p.r.gatherWayIn(ctx, s); err != nil {
		return nil, err
	}
	access, cleanUp, err := s.wayIn.open()
	if err != nil {
		return nil, err
	}
	defer cleanUp()
	if kept := s.configMaps[machineconfiguration.ConfigMapImageLabels]; kept != nil {
		p.r.cache.load(kept.Data)
	}
	ctx, cancel := context.WithTimeout(ctx, discoveryTimeout)
	defer cancel()
	reader := newInspector(p.r.options.Images(access), p.r.cache, p.r.options.Backoff)
	// What is too much is let go of.
	defer p.r.cache.encode()
	return reader.payload(ctx, image)
}
