package machineosbuild

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"sync"
	"time"

	"github.com/imagemode/imagemode/builder/request"
	"github.com/imagemode/imagemode/registry"
)

const (
	// watchInterval is how often the current image of a MachineOSConfig is looked
	// up: a lost image is noticed before the next node needs it, and a registry
	// gets a request of a few hundred bytes.
	watchInterval = 10 * time.Minute
	// registryDelay is how long a registry that refuses or does not answer is left
	// alone. An image is gone when it is gone twice, this far apart.
	registryDelay = time.Minute
)

// readability says whether the nodes can pull an image. It has three answers: a
// registry that is down must not look like one that refuses.
type readability string

const (
	readable   readability = "readable"
	unreadable readability = "unreadable"
	// unknown keeps the answer given before.
	unknown readability = "unknown"
	// unchecked: it is not known what the nodes pull with.
	unchecked readability = "unchecked"
)

// pullCheck is the answer for one image.
type pullCheck struct {
	readability readability
	// message says why, for unreadable and unknown.
	message string
	// isGone is true when the registry said twice that it has no such image.
	isGone bool
	// again is when to ask the next time.
	again time.Duration
}

// imageWatch asks whether the current images exist and whether nodes can pull
// them, and remembers the answers for a time: one answer is one request less on
// every reconcile.
type imageWatch struct {
	images Images
	now    func() time.Time

	mutex sync.Mutex
	// seen is what was found out last, by name of the MachineOSConfig.
	seen map[string]sighting
}

// sighting is one answer.
type sighting struct {
	// key holds image and credentials; with others it is another question.
	key  string
	at   time.Time
	pull pullCheck
	// goneSince is when the image was first said to be gone; zero: it is there.
	goneSince time.Time
}

// check asks for the image of a MachineOSConfig.
func (w *imageWatch) check(ctx context.Context, s *scope, image string) pullCheck {
	ref := s.nodePullSecretRef()
	access, err := s.accessWith(ref)
	if ref.name != "" && err != nil {
		return pullCheck{readability: unreadable, message: err.Error(), again: registryDelay}
	}
	key := hashOf("image watch", []string{image, ref.name, string(access.Credentials), s.site.trustBundle})
	before := w.last(s.config.Name)
	if before.key != key {
		before = sighting{key: key}
	}
	if due := before.at.Add(before.pull.again); before.pull.again > 0 && w.now().Before(due) {
		// An answer that was no is asked for again with every change.
		if answer := before.pull; answer.readability == readable || answer.readability == unchecked {
			answer.again = due.Sub(w.now())
			return answer
		}
	}
	seen := w.look(ctx, s, ref, access, image, before)
	w.remember(s.config.Name, seen)
	return seen.pull
}

// look asks the registry.
func (w *imageWatch) look(ctx context.Context, s *scope, ref secretRef, access ImageAccess, image string, before sighting) sighting {
	seen := sighting{key: before.key, at: w.now(), pull: pullCheck{readability: unchecked, again: watchInterval}}
	if ref.name != "" {
		seen.pull = w.pull(ctx, s, ref, access, image)
		if seen.pull.readability == readable {
			return seen
		}
	}
	// Only whoever pushes can tell that an image is gone: to others a registry may
	// say so of what it does not show them.
	pushAccess, err := s.accessWith(s.pushSecretRef())
	if err != nil {
		return seen
	}
	if existence, _ := w.images.Exists(ctx, pushAccess, image); existence != registry.Gone {
		return seen
	}
	seen.goneSince = before.goneSince
	if seen.goneSince.IsZero() {
		seen.goneSince = w.now()
	}
	seen.pull = pullCheck{
		readability: unreadable, again: registryDelay, message: "the registry does not have it any more",
		isGone: w.now().Sub(seen.goneSince) >= registryDelay,
	}
	return seen
}

// pull asks with what the nodes pull with.
func (w *imageWatch) pull(ctx context.Context, s *scope, ref secretRef, access ImageAccess, image string) pullCheck {
	if _, err := w.images.Read(ctx, access, image); err != nil {
		return s.judge(err, ref, image)
	}
	return pullCheck{readability: readable, again: watchInterval}
}

// judge tells a refusal from an outage.
func (s *scope) judge(err error, ref secretRef, image string) pullCheck {
	var failure *registry.Error
	if errors.As(err, &failure) && (failure.Class == request.Authentication || failure.Class == request.Image) {
		return pullCheck{readability: unreadable, again: registryDelay, message: fmt.Sprintf("with %s%s: %v", ref, s.entryIn(ref, image), err)}
	}
	return pullCheck{readability: unknown, again: registryDelay, message: localAddress.ReplaceAllString(err.Error(), "")}
}

// localAddress is this side of a connection in the text of a network error. Its
// port is another one each time: a condition with it would never be at rest.
var localAddress = regexp.MustCompile(`[0-9a-fA-F.:\[\]]+->`)

func (w *imageWatch) last(config string) sighting {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	return w.seen[config]
}

func (w *imageWatch) remember(config string, seen sighting) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	if w.seen == nil {
		w.seen = map[string]sighting{}
	}
	w.seen[config] = seen
}

// forget is for a MachineOSConfig that is gone.
func (w *imageWatch) forget(config string) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	delete(w.seen, config)
}
