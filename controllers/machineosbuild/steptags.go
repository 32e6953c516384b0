package machineosbuild

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	keys "github.com/imagemode/imagemode/api/machineconfiguration"
	"github.com/imagemode/imagemode/registry"
)

// A builder keeps the results of its steps, and the layers of a Containerfile, by
// tags in the push repository. They save time and mean nothing, so they may go
// when no build has named them for a while. Which they are is only known from the
// builds' results: a ConfigMap keeps the list.

const (
	// stepTagsKey is the key of the ConfigMap.
	stepTagsKey = "tags.json"
	// stepTagsKept is how long a tag is kept that no build has named.
	stepTagsKept = 14 * 24 * time.Hour
	// stepTagsFresh is how old an entry has to be before another build's mention of
	// it is written down: not every build is worth a write.
	stepTagsFresh = 24 * time.Hour
	// maxStepTags bounds the list; what was named longest ago is forgotten first,
	// and stays in its registry.
	maxStepTags = 4000
)

// stepTags are the tags, host/repository:tag, with when a build named them last.
type stepTags map[string]metav1.Time

func decodeStepTags(found *corev1.ConfigMap) stepTags {
	tags := stepTags{}
	if found == nil || json.Unmarshal([]byte(found.Data[stepTagsKey]), &tags) != nil {
		// Damaged by hand: the tags stay in their registries.
		return stepTags{}
	}
	return tags
}

// note adds tags of a repository, and reports whether the list is worth writing.
func (s stepTags) note(repository string, tags []string, now time.Time) (isChanged bool) {
	for _, tag := range tags {
		name := repository + ":" + tag
		if last, known := s[name]; !known || now.Sub(last.Time) >= stepTagsFresh {
			s[name], isChanged = metav1.NewTime(now.Truncate(time.Second)), true
		}
	}
	s.bound()
	return isChanged
}

func (s stepTags) bound() {
	if len(s) <= maxStepTags {
		return
	}
	byAge := slices.SortedFunc(maps.Keys(s), func(a, b string) int {
		return cmp.Or(s[a].Compare(s[b].Time), strings.Compare(a, b))
	})
	for _, name := range byAge[:len(s)-maxStepTags] {
		delete(s, name)
	}
}

// outdated are the tags that no build has named for long, in order.
func (s stepTags) outdated(now time.Time) []string {
	var names []string
	for name, last := range s {
		if now.Sub(last.Time) >= stepTagsKept {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// recordTags writes down the tags that a build's result names.
func (r *buildReconciler) recordTags(ctx context.Context, s *buildScope) error {
	result, found := resultOf(s.pods)
	if !found || len(result.Tags()) == 0 {
		return nil
	}
	listed, err := find[corev1.ConfigMap](ctx, r.client, r.options.Namespace, keys.ConfigMapStepTags)
	if err != nil {
		return err
	}
	tags := decodeStepTags(listed)
	if !tags.note(repositoryOf(s.build.Spec.RenderedImagePushSpec), result.Tags(), s.now) {
		return nil
	}
	return writeStepTags(ctx, r.client, r.options.Namespace, listed, tags)
}

// writeStepTags writes the list over the one that was read. Of two that write at
// the same time one tries again.
func writeStepTags(ctx context.Context, writer client.Client, namespace string, before *corev1.ConfigMap, tags stepTags) error {
	content, err := json.Marshal(tags)
	if err != nil {
		return err
	}
	data := map[string]string{stepTagsKey: string(content)}
	if before == nil {
		wanted := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: keys.ConfigMapStepTags}, Data: data}
		if err = writer.Create(ctx, wanted); apierrors.IsAlreadyExists(err) {
			return errLeftover
		}
	} else {
		changed := before.DeepCopy()
		changed.Data = data
		err = writer.Patch(ctx, changed, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
	}
	if err != nil {
		return fmt.Errorf("write ConfigMap %s: %w", keys.ConfigMapStepTags, err)
	}
	return nil
}

// pruneStepTags deletes the tags that are outdated, and takes them from the list.
func (p *pruner) pruneStepTags(ctx context.Context, places []place) error {
	listed, err := find[corev1.ConfigMap](ctx, p.client, p.options.Namespace, keys.ConfigMapStepTags)
	if err != nil || listed == nil {
		return err
	}
	tags := decodeStepTags(listed)
	known := len(tags)
	var problems []error
	for _, name := range tags.outdated(p.now()) {
		if p.options.Prune == ListImages {
			log.FromContext(ctx).Info("no build has named this step for long; it would be deleted", "image", name)
			continue
		}
		if err := p.untag(ctx, places, name); err != nil {
			problems = append(problems, err)
			continue
		}
		delete(tags, name)
	}
	if len(tags) != known {
		problems = append(problems, writeStepTags(ctx, p.client, p.options.Namespace, listed, tags))
	}
	return errors.Join(problems...)
}

// untag deletes one tag. In a repository that nothing names any more, or whose
// registry deletes no tag by itself, it stays.
func (p *pruner) untag(ctx context.Context, places []place, name string) error {
	repository := name[:strings.LastIndexByte(name, ':')]
	at := slices.IndexFunc(places, func(place place) bool { return place.repository == repository })
	if at < 0 {
		return nil
	}
	access, err := p.accessTo(ctx, places[at])
	if err != nil {
		return err
	}
	if err = p.images.Untag(ctx, access, name); errors.Is(err, registry.ErrCannotUntag) {
		return nil
	}
	return err
}
