package osimagestream

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/imagemode/imagemode/builder/request"
	"github.com/imagemode/imagemode/controllers/osimagestream/streams"
	"github.com/imagemode/imagemode/registry"
)

const (
	// parallelInspections is how many images are asked for at once: enough to
	// hide the network, few enough for a registry that limits its clients.
	parallelInspections = 5
	// attemptTimeout ends one attempt at one image. A healthy registry takes a
	// second; through a slow proxy it may be ten.
	attemptTimeout = 20 * time.Second
	// payloadTimeout ends one attempt at the payload of a release image: layers
	// are fetched until its file is found, and the last one mostly has it.
	payloadTimeout = time.Minute
	// discoveryTimeout ends all attempts of one reconcile: what was found by
	// then is published, and the rest is tried again later.
	discoveryTimeout = 2 * time.Minute
	// traitsTimeout ends the look at what images can do, which a change of the streams
	// has to wait for: one attempt at an image that hangs, and half of another. What
	// was read by then is kept, and the rest is read the next time.
	traitsTimeout = 30 * time.Second
)

// attemptBackoff are the waits between attempts at one image: about half a
// second, one and two. It bridges a registry's restart or a lost packet.
var attemptBackoff = wait.Backoff{Duration: 500 * time.Millisecond, Factor: 2, Jitter: 0.5, Steps: 4}

// TransientError says that an image could not be read now, and may be later
// without anybody doing anything.
type TransientError struct {
	Image string
	Err   error
}

func (e *TransientError) Error() string {
	return fmt.Sprintf("image %s cannot be read now: %v", e.Image, e.Err)
}
func (e *TransientError) Unwrap() error { return e.Err }

// PermanentError says that an image cannot be read until somebody mends it:
// Class tells who.
type PermanentError struct {
	Image string
	Class request.FailureClass
	Err   error
}

func (e *PermanentError) Error() string {
	return fmt.Sprintf("image %s cannot be read: %v", e.Image, e.Err)
}
func (e *PermanentError) Unwrap() error { return e.Err }

// Remedy says for the user what is wrong and what to do. It stays the same as long
// as the reason does.
func (e *PermanentError) Remedy() string {
	return fmt.Sprintf("image %s cannot be read: %s", e.Image, remedy(e))
}

// typed makes a *TransientError or a *PermanentError of err.
func typed(image string, err error) error {
	isTimeout := errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
	if isTimeout || registry.IsPassing(err) {
		return &TransientError{Image: image, Err: err}
	}
	return &PermanentError{Image: image, Class: registry.Classify(err), Err: err}
}

// inspector reads images through a cache.
type inspector struct {
	images  ImageReader
	cache   *imageCache
	backoff wait.Backoff
	// slots bounds what is asked at once by everybody who uses the inspector; nil: by
	// each.
	slots chan struct{}
}

// newInspector returns one that asks for at most parallelInspections images at once.
func newInspector(images ImageReader, cache *imageCache, backoff wait.Backoff) *inspector {
	return &inspector{images: images, cache: cache, backoff: backoff, slots: make(chan struct{}, parallelInspections)}
}

// occupy waits for a slot, and gives what lets it go again.
func (i *inspector) occupy(ctx context.Context) (leave func()) {
	if i.slots == nil {
		return func() {}
	}
	select {
	case i.slots <- struct{}{}:
		return func() { <-i.slots }
	case <-ctx.Done():
		return func() {}
	}
}

// inspection is what came of one image: labels, or a *TransientError or
// *PermanentError.
type inspection struct {
	labels map[string]string
	err    error
}

// labels reads the labels of images, each once, in the order given: those that
// matter most come first, so that images which do not answer take the time of none
// of them. The answer has all.
func (i *inspector) labels(ctx context.Context, images []string) map[string]inspection {
	results := map[string]inspection{}
	var unknown []string
	for _, image := range unique(images) {
		if known, isKnown := i.cache.labels(image); isKnown {
			results[image] = inspection{labels: known}
		} else {
			unknown = append(unknown, image)
		}
	}
	var mutex sync.Mutex
	var group errgroup.Group
	group.SetLimit(parallelInspections)
	for _, image := range unknown {
		group.Go(func() error {
			labels, err := attempts(ctx, i.backoff, attemptTimeout, image, func(ctx context.Context) (map[string]string, error) {
				defer i.occupy(ctx)()
				return i.images.Labels(ctx, image)
			})
			if err == nil {
				i.cache.putLabels(image, labels)
			}
			mutex.Lock()
			defer mutex.Unlock()
			results[image] = inspection{labels: labels, err: err}
			return nil
		})
	}
	_ = group.Wait() // errors are in the results
	return results
}

// payloadFile is where a release image has its ImageStream.
const payloadFile = "release-manifests/image-references"

// payload reads the ImageStream out of a release image.
func (i *inspector) payload(ctx context.Context, image string) (*streams.Payload, error) {
	if known, isKnown := i.cache.payload(image); isKnown {
		return known, nil
	}
	raw, err := attempts(ctx, i.backoff, payloadTimeout, image, func(ctx context.Context) ([]byte, error) {
		defer i.occupy(ctx)()
		return i.images.File(ctx, image, payloadFile, streams.MaxPayloadSize)
	})
	if err != nil {
		return nil, err
	}
	payload, err := streams.ParsePayload(raw)
	if err != nil {
		return nil, &PermanentError{Image: image, Class: request.Image, Err: fmt.Errorf("its file /%s: %w", payloadFile, err)}
	}
	i.cache.putPayload(image, payload)
	return payload, nil
}

// attempts tries, each time for timeout at most, until it works, the failure is
// permanent, the attempts are used up or the context ends.
func attempts[T any](ctx context.Context, backoff wait.Backoff, timeout time.Duration, image string, read func(context.Context) (T, error)) (T, error) {
	for {
		value, err := attempt(ctx, timeout, read)
		if err == nil {
			return value, nil
		}
		err = typed(image, err)
		log.FromContext(ctx).V(1).Info("image not read", "image", image, "error", err.Error(), "attemptsLeft", backoff.Steps-1)
		var transient *TransientError
		if !errors.As(err, &transient) || backoff.Steps <= 1 {
			return value, err
		}
		select {
		case <-ctx.Done():
			return value, err
		case <-time.After(backoff.Step()):
		}
	}
}

func attempt[T any](ctx context.Context, timeout time.Duration, read func(context.Context) (T, error)) (T, error) {
	if err := ctx.Err(); err != nil {
		var none T
		return none, err
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	return read(ctx)
}
