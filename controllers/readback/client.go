// Package readback keeps a program from deciding on what it has replaced itself: a
// cache shows a write only some milliseconds after it was made.
package readback

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// ErrLate is Get's answer while the cache has an object as it was before this
// program changed it. The event of the change is on its way; whoever waits for it
// writes nothing twice and meets no conflict with itself.
var ErrLate = errors.New("the cache does not show this program's own last write yet")

// New returns a client that remembers which versions its Update and Patch have
// replaced, those of the status included, and returns ErrLate where Get finds one of
// them. List is not looked at: what is found in a list is a hint. It is safe for
// concurrent use.
func New(inner client.Client) client.Client {
	return &readback{Client: inner, memory: &memory{replaced: map[string][]string{}}}
}

type readback struct {
	client.Client
	*memory
}

func (r *readback) Get(ctx context.Context, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
	err := r.Client.Get(ctx, key, object, options...)
	switch {
	case apierrors.IsNotFound(err):
		r.forget(object, key)
	case err == nil && r.isReplaced(object):
		return fmt.Errorf("read %T %s: %w", object, key.Name, ErrLate)
	}
	return err
}

func (r *readback) Update(ctx context.Context, object client.Object, options ...client.UpdateOption) error {
	return r.replace(object, func() error { return r.Client.Update(ctx, object, options...) })
}

func (r *readback) Patch(ctx context.Context, object client.Object, patch client.Patch, options ...client.PatchOption) error {
	return r.replace(object, func() error { return r.Client.Patch(ctx, object, patch, options...) })
}

func (r *readback) Status() client.SubResourceWriter { return status{r.Client.Status(), r.memory} }

type status struct {
	client.SubResourceWriter
	*memory
}

func (s status) Update(ctx context.Context, object client.Object, options ...client.SubResourceUpdateOption) error {
	return s.replace(object, func() error { return s.SubResourceWriter.Update(ctx, object, options...) })
}

func (s status) Patch(ctx context.Context, object client.Object, patch client.Patch, options ...client.SubResourcePatchOption) error {
	return s.replace(object, func() error { return s.SubResourceWriter.Patch(ctx, object, patch, options...) })
}

// memory is what was replaced.
type memory struct {
	mutex sync.Mutex
	// replaced are the versions of an object since it was read last, but the newest.
	replaced map[string][]string
}

// replace does a write and remembers the version that was before it.
func (m *memory) replace(object client.Object, write func() error) error {
	before := object.GetResourceVersion()
	if err := write(); err != nil {
		return err
	}
	if before != "" && before != object.GetResourceVersion() {
		m.mutex.Lock()
		defer m.mutex.Unlock()
		key := keyOf(object, client.ObjectKeyFromObject(object))
		m.replaced[key] = append(m.replaced[key], before)
	}
	return nil
}

// isReplaced says whether an object that was read is an old one.
func (m *memory) isReplaced(object client.Object) bool {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	key := keyOf(object, client.ObjectKeyFromObject(object))
	if slices.Contains(m.replaced[key], object.GetResourceVersion()) {
		return true
	}
	delete(m.replaced, key)
	return false
}

func (m *memory) forget(object client.Object, key client.ObjectKey) {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	delete(m.replaced, keyOf(object, key))
}

func keyOf(object client.Object, key client.ObjectKey) string {
	return fmt.Sprintf("%T %s", object, key)
}
