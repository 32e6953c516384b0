package machineosbuild

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"

	keys "github.com/imagemode/imagemode/api/machineconfiguration"
	imagemodev1alpha1 "github.com/imagemode/imagemode/api/v1alpha1"
	"github.com/imagemode/imagemode/controllers/rivals"
)

// scope is everything that decisions about one MachineOSConfig depend on, as
// it was read at the start of a reconcile. A pointer is nil, and a map lacks the
// entry, when the object does not exist.
type scope struct {
	config   *mcfgv1.MachineOSConfig
	pool     *mcfgv1.MachineConfigPool
	rendered *mcfgv1.MachineConfig
	// sources are the MachineConfigs that the rendered one was made of, as they are
	// now. They are the cache's own and must not be changed.
	sources []*mcfgv1.MachineConfig
	// builds are those that this very MachineOSConfig (by UID) owns, oldest first,
	// without those being deleted.
	builds []mcfgv1.MachineOSBuild
	// left are builds of the same name's former MachineOSConfigs, which the rollout
	// keeps. The wanted one may be among them.
	left []mcfgv1.MachineOSBuild
	// secrets are those that secretRefs names, by name.
	secrets      map[string]*corev1.Secret
	site         site
	repositories repositories
	// rollout is the pool's ImageRollout.
	rollout *imagemodev1alpha1.ImageRollout
	// onlyNode is the one node of a cluster that has no other, if it is its control
	// plane; else empty.
	onlyNode string
	// rivals are other updaters; isRollingOut says whether this program takes nodes
	// to their images.
	rivals       rivals.Found
	isRollingOut bool
	// now is when the scope was read.
	now time.Time
	// namespace, architecture, agentImage, nodePullSecret and globalPullSecret are
	// Options'.
	namespace        string
	agentImage       string
	architecture     string
	nodePullSecret   string
	globalPullSecret string
}

// secretRef is one Secret that a MachineOSConfig needs, and what says so.
type secretRef struct {
	name string
	// source is the field, annotation or flag that names the Secret.
	source string
}

// pushSecretRef is the Secret to push the image with.
func (s *scope) pushSecretRef() secretRef {
	return secretRef{name: s.config.Spec.RenderedImagePushSecret.Name, source: "spec.renderedImagePushSecret.name"}
}

// basePullSecretRef is the Secret to pull base images with; its name is empty
// when the MachineOSConfig names none.
func (s *scope) basePullSecretRef() secretRef {
	ref := secretRef{source: "spec.baseImagePullSecret.name"}
	if s.config.Spec.BaseImagePullSecret != nil {
		ref.name = s.config.Spec.BaseImagePullSecret.Name
	}
	return ref
}

// nodePullSecretRef is the Secret the nodes pull with: the MachineOSConfig's
// own, else that of all pools, else the cluster's where it exists. Its name is
// empty when there is none of them.
func (s *scope) nodePullSecretRef() secretRef {
	if name := s.config.Annotations[keys.AnnotationNodePullSecret]; name != "" {
		return secretRef{name: name, source: "annotation " + keys.AnnotationNodePullSecret}
	}
	if s.nodePullSecret != "" {
		return secretRef{name: s.nodePullSecret, source: "--node-pull-secret"}
	}
	if s.secrets[s.globalPullSecret] != nil {
		return secretRef{name: s.globalPullSecret, source: "--global-pull-secret"}
	}
	return secretRef{}
}

// secretNames lists the Secrets that a MachineOSConfig refers to in any way.
func (s *scope) secretNames() []string {
	names := []string{
		s.pushSecretRef().name, s.basePullSecretRef().name, s.globalPullSecret,
		s.nodePullSecret, s.config.Annotations[keys.AnnotationNodePullSecret],
	}
	names = slices.DeleteFunc(names, func(name string) bool { return name == "" })
	return slices.Compact(slices.Sorted(slices.Values(names)))
}

// containerfile is the text for the architecture. A MachineOSConfig that is being
// deleted has none any more: its nodes are to go back to what their pool's
// MachineConfigs say. found is false when there are texts, but none that fits.
func (s *scope) containerfile() (text string, found bool) {
	if s.config.DeletionTimestamp != nil {
		return "", true
	}
	return containerfileFor(s.config.Spec.Containerfile, s.architecture)
}

// seed is an image built elsewhere that stands for the first build; later ones
// are built here.
func (s *scope) seed() string {
	if len(s.builds) > 0 {
		return ""
	}
	return s.config.Annotations[keys.AnnotationPreBuiltImage]
}

// buildNamed returns the build of a name, or nil.
func (s *scope) buildNamed(name string) *mcfgv1.MachineOSBuild {
	for _, builds := range [][]mcfgv1.MachineOSBuild{s.builds, s.left} {
		for i := range builds {
			if builds[i].Name == name {
				return &builds[i]
			}
		}
	}
	return nil
}

// gatherer reads scopes.
type gatherer struct {
	reader   client.Reader
	platform *platform
	rivals   *rivals.Watch
	options  Options
	now      func() time.Time
}

// gather reads what there is for a MachineOSConfig. What does not exist is no
// error.
func (g *gatherer) gather(ctx context.Context, config *mcfgv1.MachineOSConfig) (*scope, error) {
	s := &scope{
		config:           config,
		secrets:          map[string]*corev1.Secret{},
		namespace:        g.options.Namespace,
		architecture:     g.options.Architecture,
		agentImage:       g.options.AgentImage,
		nodePullSecret:   g.options.NodePullSecret,
		globalPullSecret: g.options.GlobalPullSecret,
		now:              g.now(),
	}
	var err error
	if s.pool, err = find[mcfgv1.MachineConfigPool](ctx, g.reader, "", config.Spec.MachineConfigPool.Name); err != nil {
		return nil, err
	}
	if s.pool != nil && s.pool.Spec.Configuration.Name != "" {
		if s.rendered, err = find[mcfgv1.MachineConfig](ctx, g.reader, "", s.pool.Spec.Configuration.Name); err != nil {
			return nil, err
		}
		if s.sources, err = g.sourcesOf(ctx, s.pool); err != nil {
			return nil, err
		}
	}
	if s.rollout, err = find[imagemodev1alpha1.ImageRollout](ctx, g.reader, "", config.Spec.MachineConfigPool.Name); err != nil {
		return nil, err
	}
	if s.builds, err = g.buildsOf(ctx, config.Name, config.UID); err != nil {
		return nil, err
	}
	if s.rollout != nil {
		if s.left, err = g.buildsOf(ctx, config.Name, s.rollout.UID); err != nil {
			return nil, err
		}
	}
	if err := g.gatherSurroundings(ctx, s); err != nil {
		return nil, err
	}
	return s, g.gatherNamespace(ctx, s)
}

// gatherNamespace reads what stands in the namespace.
func (g *gatherer) gatherNamespace(ctx context.Context, s *scope) error {
	for _, name := range s.secretNames() {
		secret, err := find[corev1.Secret](ctx, g.reader, s.namespace, name)
		if err != nil {
			return err
		}
		if secret != nil {
			s.secrets[name] = secret
		}
	}
	bundle, err := find[corev1.ConfigMap](ctx, g.reader, s.namespace, keys.ConfigMapTrustBundle)
	if err != nil {
		return err
	}
	config, err := g.platform.read(ctx)
	if err != nil {
		return err
	}
	s.site = siteOf(config, bundleIn(bundle))
	return g.gatherRepositories(ctx, s)
}

func bundleIn(found *corev1.ConfigMap) string {
	if found == nil {
		return ""
	}
	return found.Data[keys.KeyTrustBundle]
}

// buildsOf lists the builds of a MachineOSConfig by their owner's UID: a deleted
// one of the same name may have left some behind.
func (g *gatherer) buildsOf(ctx context.Context, config string, owner types.UID) ([]mcfgv1.MachineOSBuild, error) {
	var list mcfgv1.MachineOSBuildList
	selector := client.MatchingLabels{keys.LabelMachineOSConfig: labelValue(config)}
	if err := g.reader.List(ctx, &list, selector); err != nil {
		return nil, fmt.Errorf("list the MachineOSBuilds of MachineOSConfig %s: %w", config, err)
	}
	builds := slices.DeleteFunc(list.Items, func(build mcfgv1.MachineOSBuild) bool {
		return !isOwnedBy(&build, owner) || build.DeletionTimestamp != nil
	})
	slices.SortFunc(builds, func(a, b mcfgv1.MachineOSBuild) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), strings.Compare(a.Name, b.Name))
	})
	return builds, nil
}

// buildScope is everything that decisions about one MachineOSBuild depend on.
type buildScope struct {
	build *mcfgv1.MachineOSBuild
	// owner is the scope of its MachineOSConfig; nil when that is gone.
	owner *scope
	// job is the Job that this very MachineOSBuild owns, or nil.
	job *batchv1.Job
	// isJobNameTaken is true when a Job of the name exists that belongs to
	// another MachineOSBuild, one of the same name that was deleted.
	isJobNameTaken bool
	// pods are the Job's, oldest first.
	pods []corev1.Pod
	// pushedDigest is the digest behind the build's tag in the registry. It is
	// looked up only when the Job completed and no pod is left that says so;
	// pushedProblem says why there is none.
	pushedDigest, pushedProblem string
	// existing says whether the image is in the registry already; nil: not asked.
	existing *existingImage
	// turn says whether the build may start now; nil: not asked.
	turn *turn
	// twin is an older build of the same image that runs, or nil.
	twin *mcfgv1.MachineOSBuild
	// pendingDeadline is how long a builder pod may take to start.
	pendingDeadline time.Duration
	// now is when the scope was read.
	now time.Time
}

// objectPointer is a pointer to T that is an object of the API.
type objectPointer[T any] interface {
	*T
	client.Object
}

// find reads an object; nil means that it does not exist.
func find[T any, P objectPointer[T]](ctx context.Context, reader client.Reader, namespace, name string) (P, error) {
	object := P(new(T))
	err := reader.Get(ctx, types.NamespacedName{Namespace: namespace, Name: name}, object)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read %T %s: %w", object, name, err)
	}
	return object, nil
}

// isOwnedBy reports whether an object's controller has the UID.
func isOwnedBy(object metav1.Object, uid types.UID) bool {
	owner := metav1.GetControllerOf(object)
	return owner != nil && owner.UID == uid
}
