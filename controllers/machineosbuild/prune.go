package machineosbuild

import (
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

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"

	keys "github.com/imagemode/imagemode/api/machineconfiguration"
	"github.com/imagemode/imagemode/controllers/pullsecret"
	"github.com/imagemode/imagemode/registry"
)

// Repositories may be shared, and deleting an image deletes all its tags. So every
// cluster keeps an image by a tag of its own, used-<cluster id>-<12 of the
// digest>, set when a build has succeeded (hold.go). The pruner takes this
// cluster's tag from an image that nothing here refers to any more, and deletes
// the image when no cluster has such a tag left. Some registries delete no tags:
// there the tag is moved to a marker image instead, which counts as no use.

const (
	// pruneInterval is how often images are looked through. Disk in a registry is
	// cheap; a listing of its tags is not.
	pruneInterval = 30 * time.Minute
	// pruneGrace is how long nothing has to refer to an image before it goes: a
	// node that is switched off says nothing, and an edit may be taken back.
	pruneGrace = 24 * time.Hour
	// holdPrefix begins the tags by which clusters keep images.
	holdPrefix = "used-"
	// maxUnused bounds what is remembered of unused images, in entries.
	maxUnused = 5000
)

// PruneMode says what happens to images that nothing refers to.
type PruneMode string

// The modes.
const (
	// PruneImages deletes them.
	PruneImages PruneMode = "true"
	// KeepImages leaves them in the registry.
	KeepImages PruneMode = "false"
	// ListImages logs what would be deleted.
	ListImages PruneMode = "dry-run"
)

// pruner deletes images, off the path of builds. It runs in the leader only.
type pruner struct {
	client   client.Client
	images   Images
	platform *platform
	events   reporter
	options  Options
	now      func() time.Time
}

// +kubebuilder:rbac:groups="",namespace=openshift-machine-config-operator,resources=configmaps,verbs=get;list;watch;create;patch

// NeedLeaderElection makes it run in the leader only.
func (p *pruner) NeedLeaderElection() bool { return true }

// Start prunes until the context ends.
func (p *pruner) Start(ctx context.Context) error {
	logger := log.FromContext(ctx).WithName("pruner")
	ticker := time.NewTicker(pruneInterval)
	defer ticker.Stop()
	for {
		if err := p.prune(log.IntoContext(ctx, logger)); err != nil && ctx.Err() == nil {
			logger.Error(err, "some images could not be looked through; they are next time")
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

// place is a repository that images were pushed to, and the Secret for it.
type place struct{ repository, secret string }

// prune looks through all repositories once. A repository that does not answer
// does not hold up the others.
func (p *pruner) prune(ctx context.Context) error {
	var builds mcfgv1.MachineOSBuildList
	var configs mcfgv1.MachineOSConfigList
	if err := errors.Join(p.client.List(ctx, &builds), p.client.List(ctx, &configs)); err != nil {
		return err
	}
	left := p.forgetLeftBuilds(ctx, &builds)
	kept, err := keptDigests(ctx, p.client, builds.Items, configs.Items)
	if err != nil {
		return errors.Join(left, err)
	}
	unused, err := p.readUnused(ctx)
	if err != nil {
		return errors.Join(left, err)
	}
	places := placesOf(builds.Items, configs.Items)
	problems := []error{left, p.pruneStepTags(ctx, places)}
	seen := map[string]metav1.Time{}
	for _, place := range places {
		if err := p.pruneRepository(ctx, place, kept, unused, seen); err != nil {
			problems = append(problems, fmt.Errorf("repository %s: %w", place.repository, err))
			p.keepEntries(place, unused, seen)
			p.events.imagesKept(configs.Items, place, err)
		}
	}
	return errors.Join(append(problems, p.writeUnused(ctx, unused, seen))...)
}

// placesOf lists the repositories that builds and MachineOSConfigs name, each
// with a Secret.
func placesOf(builds []mcfgv1.MachineOSBuild, configs []mcfgv1.MachineOSConfig) []place {
	secrets := map[string]string{}
	for i := range builds {
		if secret := builds[i].Annotations[keys.AnnotationPushSecret]; secret != "" && builds[i].Labels[keys.LabelPreBuiltImage] == "" {
			secrets[repositoryOf(builds[i].Spec.RenderedImagePushSpec)] = secret
		}
	}
	for i := range configs {
		secrets[repositoryOf(configs[i].Spec.RenderedImagePushSpec)] = configs[i].Spec.RenderedImagePushSecret.Name
	}
	var places []place
	for _, repository := range slices.Sorted(maps.Keys(secrets)) {
		places = append(places, place{repository, secrets[repository]})
	}
	return places
}

// pruneRepository looks through the images that this cluster keeps in one
// repository, and notes in seen which of them nothing refers to, and since when.
func (p *pruner) pruneRepository(ctx context.Context, place place, kept map[string]bool, unused, seen map[string]metav1.Time) error {
	access, err := p.accessTo(ctx, place)
	if err != nil {
		return err
	}
	tags, err := p.images.Tags(ctx, access, place.repository)
	if err != nil {
		return err
	}
	own := holdTag(p.options.ClusterID, "")
	for _, tag := range tags {
		short, isOurs := strings.CutPrefix(tag, own)
		if !isOurs || isKept(kept, short) {
			continue
		}
		held := place.repository + ":" + tag
		since, known := unused[held]
		if !known {
			since = metav1.NewTime(p.now().Truncate(time.Second))
		}
		seen[held] = since
		if p.now().Sub(since.Time) < pruneGrace {
			continue
		}
		isReleased, err := p.release(ctx, access, place, tag, tags)
		if err != nil {
			return err
		}
		if isReleased {
			delete(seen, held)
		}
	}
	return nil
}

// isKept compares the 12 digits in a tag.
func isKept(kept map[string]bool, short string) bool {
	for digest := range kept {
		if digest != "" && shortDigest(digest) == short {
			return true
		}
	}
	return false
}

// release gives an image up, and deletes it when no other cluster keeps it.
func (p *pruner) release(ctx context.Context, access ImageAccess, place place, tag string, tags []string) (isReleased bool, err error) {
	held := place.repository + ":" + tag
	logger := log.FromContext(ctx).WithValues("image", held)
	found, err := p.images.Read(ctx, access, held)
	if err != nil {
		return false, err
	}
	switch {
	case found.Digest == registry.MarkerDigest():
		// Given up before, in a registry that deletes no tags.
		return false, nil
	case !isHeldBy(tag, found):
		logger.Info("a tag of this cluster names another image; leaving that alone")
		return p.giveUp(ctx, access, held)
	case p.options.Prune == ListImages:
		logger.Info("nothing refers to this image; it would be deleted", "digest", found.Digest)
		return false, nil
	}
	isShared, err := p.othersHold(ctx, access, place, tag, tags)
	switch {
	case err != nil:
		return false, err
	case isShared:
		logger.Info("nothing here refers to this image any more, but another cluster keeps it; giving it up")
		return p.giveUp(ctx, access, held)
	}
	logger.Info("nothing refers to this image any more; deleting it", "digest", found.Digest)
	return true, p.images.Delete(ctx, access, digestSpec(place.repository, found.Digest))
}

// giveUp takes this cluster's tag from an image. Where a registry deletes no tag
// by itself, the tag stays, and leads to an image that nobody uses.
func (p *pruner) giveUp(ctx context.Context, access ImageAccess, held string) (isGone bool, err error) {
	err = p.images.Untag(ctx, access, held)
	if errors.Is(err, registry.ErrCannotUntag) {
		return false, p.images.Mark(ctx, access, held)
	}
	return err == nil, err
}

// isHeldBy reports whether a tag that keeps images still leads to its own.
func isHeldBy(tag string, found ImageFacts) bool {
	return strings.HasSuffix(tag, "-"+shortDigest(found.Digest))
}

// othersHold reports whether another cluster keeps the image that tag is for. A
// tag that leads elsewhere, as one that was given up may, does not count.
func (p *pruner) othersHold(ctx context.Context, access ImageAccess, place place, tag string, tags []string) (bool, error) {
	end := tag[strings.LastIndexByte(tag, '-'):]
	for _, other := range tags {
		if other == tag || !strings.HasPrefix(other, holdPrefix) || !strings.HasSuffix(other, end) {
			continue
		}
		found, err := p.images.Read(ctx, access, place.repository+":"+other)
		if registry.IsGone(err) {
			continue
		}
		if err != nil || isHeldBy(other, found) {
			return true, err
		}
	}
	return false, nil
}

func (p *pruner) accessTo(ctx context.Context, place place) (ImageAccess, error) {
	secret, err := find[corev1.Secret](ctx, p.client, p.options.Namespace, place.secret)
	if err != nil {
		return ImageAccess{}, err
	}
	if secret == nil {
		return ImageAccess{}, fmt.Errorf("secret %q not found in namespace %s; images cannot be deleted without it", place.secret, p.options.Namespace)
	}
	credentials, err := pullsecret.Read(secret)
	if err != nil {
		return ImageAccess{}, fmt.Errorf("secret %q in namespace %s: %w", place.secret, p.options.Namespace, err)
	}
	config, err := credentials.ConfigJSON()
	if err != nil {
		return ImageAccess{}, err
	}
	bundle, err := find[corev1.ConfigMap](ctx, p.client, p.options.Namespace, keys.ConfigMapTrustBundle)
	if err != nil {
		return ImageAccess{}, err
	}
	found, err := p.platform.read(ctx)
	return ImageAccess{Credentials: config, TrustBundle: siteOf(found, bundleIn(bundle)).trustBundle}, err
}

// forgetLeftBuilds deletes the builds that MachineOSConfigs left to a rollout
// which has another image now, and takes them from the list.
func (p *pruner) forgetLeftBuilds(ctx context.Context, builds *mcfgv1.MachineOSBuildList) error {
	used, err := usedDigests(ctx, p.client)
	if err != nil {
		return err
	}
	var problems []error
	builds.Items = slices.DeleteFunc(builds.Items, func(build mcfgv1.MachineOSBuild) bool {
		owner := metav1.GetControllerOf(&build)
		if owner == nil || owner.Kind != "ImageRollout" || used[digestOf(string(build.Status.DigestedImagePushSpec))] {
			return false
		}
		problems = append(problems, client.IgnoreNotFound(p.client.Delete(ctx, &build, uidOf(&build))))
		return true
	})
	return errors.Join(problems...)
}

// keepEntries keeps what is known of a repository that could not be looked
// through.
func (p *pruner) keepEntries(place place, unused, seen map[string]metav1.Time) {
	for held, since := range unused {
		if strings.HasPrefix(held, place.repository+":") {
			seen[held] = since
		}
	}
}

// unusedKey is the key of the ConfigMap with the times.
const unusedKey = "unused.json"

// readUnused reads since when images are unused, by their tag.
func (p *pruner) readUnused(ctx context.Context) (map[string]metav1.Time, error) {
	unused := map[string]metav1.Time{}
	found, err := find[corev1.ConfigMap](ctx, p.client, p.options.Namespace, keys.ConfigMapUnusedImages)
	if err != nil || found == nil {
		return unused, err
	}
	if json.Unmarshal([]byte(found.Data[unusedKey]), &unused) != nil {
		// Damaged by hand: the time of grace begins anew.
		return map[string]metav1.Time{}, nil
	}
	return unused, nil
}

// writeUnused writes it, if it changed.
func (p *pruner) writeUnused(ctx context.Context, before, now map[string]metav1.Time) error {
	if maps.EqualFunc(before, now, func(a, b metav1.Time) bool { return a.Equal(&b) }) {
		return nil
	}
	for held := range now {
		if len(now) <= maxUnused {
			break
		}
		delete(now, held)
	}
	content, err := json.Marshal(now)
	if err != nil {
		return err
	}
	wanted := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: p.options.Namespace, Name: keys.ConfigMapUnusedImages},
		Data:       map[string]string{unusedKey: string(content)},
	}
	existing, err := find[corev1.ConfigMap](ctx, p.client, p.options.Namespace, wanted.Name)
	if err != nil {
		return err
	}
	if existing == nil {
		err = p.client.Create(ctx, wanted)
		if apierrors.IsAlreadyExists(err) {
			return nil // the cache will have it next time
		}
		return err
	}
	changed := existing.DeepCopy()
	changed.Data = wanted.Data
	return p.client.Patch(ctx, changed, client.MergeFrom(existing))
}
