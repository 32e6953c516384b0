package machineosbuild

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"

	"github.com/imagemode/imagemode/builder/request"
)

// existingImage is what the registry answered about a build's inputs.
type existingImage struct {
	// tag by which the image was looked for.
	tag string
	// digest of the image, sha256:<64 hex>; empty: there is none, or the registry
	// does not say.
	digest string
}

// inputsTag is the tag by which the image of some inputs is found, in a push
// repository. The builder sets it.
func inputsTag(build *mcfgv1.MachineOSBuild) string {
	return repositoryOf(build.Spec.RenderedImagePushSpec) + ":" + request.InputsTag(inputsHashOf(build))
}

// askPause is how long a registry that did not have an image is not asked again
// for the same build, which may wait for its turn meanwhile.
const askPause = time.Minute

// absence remembers for which builds, by UID, there was no image.
type absence struct {
	mutex sync.Mutex
	since map[types.UID]time.Time
}

func (a *absence) isKnown(build types.UID, now time.Time) bool {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	since, known := a.since[build]
	return known && now.Sub(since) < askPause
}

func (a *absence) forget(build types.UID) {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	delete(a.since, build)
}

func (a *absence) note(build types.UID, now time.Time) {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	if a.since == nil {
		a.since = map[types.UID]time.Time{}
	}
	maps.DeleteFunc(a.since, func(_ types.UID, since time.Time) bool { return now.Sub(since) >= askPause })
	a.since[build] = now
}

// ask looks into the registry for an image of the build's inputs. A registry
// that gives no answer is no reason to wait: the build asks it again.
func (r *buildReconciler) ask(ctx context.Context, s *buildScope) {
	s.existing = &existingImage{tag: inputsTag(s.build)}
	if r.absent.isKnown(s.build.UID, s.now) {
		return
	}
	access, err := s.owner.accessWith(s.owner.pushSecretRef())
	if err != nil {
		return
	}
	found, err := r.images.Read(ctx, access, s.existing.tag)
	if err != nil || found.InputsHash != inputsHashOf(s.build) {
		r.absent.note(s.build.UID, s.now)
		return
	}
	s.existing.digest = found.Digest
}

// reuse gives the image that exists the build's own tag. Where that does not
// work the build runs, and says what is in the way.
func (r *buildReconciler) reuse(ctx context.Context, s *buildScope, next *step) (*mcfgv1.MachineOSBuildStatus, error) {
	access, err := s.owner.accessWith(s.owner.pushSecretRef())
	if err == nil {
		image := digestSpec(repositoryOf(s.build.Spec.RenderedImagePushSpec), next.state.digest)
		err = r.images.Tag(ctx, access, image, imageTag(s.build.Name))
	}
	if err != nil {
		log.FromContext(ctx).Info("an image of the same inputs cannot be tagged, building it", "tag", s.existing.tag, "error", err.Error())
		return nil, r.start(ctx, s, next)
	}
	return r.statusWith(s, *next.state), nil
}

// gatherTwin looks for another build of the same image that runs, or is about
// to. One that waits for anything itself is no reason to wait.
func (r *buildReconciler) gatherTwin(ctx context.Context, s *buildScope) error {
	var list mcfgv1.MachineOSBuildList
	if err := r.client.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("list MachineOSBuilds: %w", err)
	}
	for i := range list.Items {
		other := &list.Items[i]
		if isTwin(s.build, other) && (other.Status.Builder != nil || r.queue.isGranted(other.Name)) {
			s.twin = other
			r.absent.forget(s.build.UID) // the registry has the image as soon as that has ended
			return nil
		}
	}
	return nil
}

// isTwin reports whether other makes the image of build.
func isTwin(build, other *mcfgv1.MachineOSBuild) bool {
	return other.UID != build.UID && other.DeletionTimestamp == nil &&
		inputsHashOf(build) != "" && inputsTag(other) == inputsTag(build) &&
		!isTerminal(other) && !isSuperseded(other)
}
