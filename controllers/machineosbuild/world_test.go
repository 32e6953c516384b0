package machineosbuild

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"

	keys "github.com/imagemode/imagemode/api/machineconfiguration"
	imagemodev1alpha1 "github.com/imagemode/imagemode/api/v1alpha1"
	"github.com/imagemode/imagemode/builder/request"
	"github.com/imagemode/imagemode/registry"
	"github.com/imagemode/imagemode/test/builders"
)

// world is a cluster with both reconcilers in it, and nothing else that acts.
type world struct {
	t       *testing.T
	client  client.Client
	configs *configReconciler
	builds  *buildReconciler
	pruner  *pruner
	// changes are made to the reconcilers' options at every start.
	changes []func(*Options)
	now     time.Time
	// writes counts what the reconcilers wrote. fault, if it is set, gets the number
	// of each write, from 1, before and after it is done.
	writes  int
	writing sync.Mutex
	// done counts the writes that worked.
	done          int
	fault         func(write int, isDone bool) error
	isReconciling bool
	// isFaulty is true when a write was refused in this round.
	isFaulty bool
	// made and deleted count objects by kind.
	made, deleted map[string]int
	// lag is how many rounds the reconcilers' cache is behind.
	lag       int
	snapshots []client.Reader
	// reads answers look-ups in registries, but for tags of inputs; nil: everything
	// can be read.
	reads func(image string) (ImageFacts, error)
	// shelf is what registries have: facts by tag, host/repository:tag.
	shelf map[string]ImageFacts
	// gone are images by digest that registries do not have any more.
	gone map[string]bool
	// baseSize is the size of the base images.
	baseSize int64
	// asked counts requests to registries, but for base images, and refuses says which
	// are refused.
	asked   int
	refuses func(request, image string) error
}

// testScheme has no more kinds than are needed: a fake client's start takes its
// time for each.
var testScheme = func() *runtime.Scheme {
	scheme := runtime.NewScheme()
	err := errors.Join(corev1.AddToScheme(scheme), appsv1.AddToScheme(scheme), batchv1.AddToScheme(scheme), mcfgv1.Install(scheme), imagemodev1alpha1.AddToScheme(scheme))
	if err != nil {
		panic(err)
	}
	return scheme
}()

var errCrash = errors.New("the connection broke")

// newWorld has a rendered pool, its MachineOSConfig with a Containerfile, and a
// push secret; without lists what of these is left out.
func newWorld(t *testing.T, more ...client.Object) *world {
	t.Helper()
	w := &world{t: t, now: someTime, shelf: map[string]ImageFacts{}, gone: map[string]bool{}}
	uids := 0
	w.made, w.deleted = map[string]int{}, map[string]int{}
	w.client = fake.NewClientBuilder().WithScheme(testScheme).
		WithStatusSubresource(&mcfgv1.MachineOSConfig{}, &mcfgv1.MachineOSBuild{}, &batchv1.Job{}).
		WithInterceptorFuncs(interceptor.Funcs{
			Create: func(ctx context.Context, c client.WithWatch, object client.Object, options ...client.CreateOption) error {
				return w.write(func() error {
					uids++
					object.SetUID(types.UID(fmt.Sprintf("uid-%d", uids)))
					object.SetCreationTimestamp(metav1.NewTime(w.now))
					object.SetGeneration(1)
					err := c.Create(ctx, object, options...)
					if err == nil {
						w.made[fmt.Sprintf("%T", object)]++
					}
					return err
				})
			},
			Patch: func(ctx context.Context, c client.WithWatch, object client.Object, patch client.Patch, options ...client.PatchOption) error {
				return w.write(func() error {
					err := c.Patch(ctx, object, patch, options...)
					if patch.Type() == types.JSONPatchType && apierrors.ReasonForError(err) == metav1.StatusReasonUnknown && err != nil {
						// As the API server answers where a test of the patch fails.
						return apierrors.NewInvalid(object.GetObjectKind().GroupVersionKind().GroupKind(), object.GetName(), nil)
					}
					return err
				})
			},
			Delete: func(ctx context.Context, c client.WithWatch, object client.Object, options ...client.DeleteOption) error {
				return w.write(func() error {
					err := c.Delete(ctx, object, options...)
					if err == nil {
						w.deleted[fmt.Sprintf("%T", object)]++
					}
					return err
				})
			},
			SubResourcePatch: func(ctx context.Context, c client.Client, sub string, object client.Object, patch client.Patch, options ...client.SubResourcePatchOption) error {
				return w.write(func() error { return c.SubResource(sub).Patch(ctx, object, patch, options...) })
			},
		}).Build()
	w.start()
	w.create(
		builders.MachineConfigPool("worker", builders.Rendered(renderedName)), aRendered(),
		builders.MachineOSConfig("worker", builders.Containerfile(withRun)),
		builders.DockerConfig(keys.Namespace, "push", "registry.example.com"),
		builders.DockerConfig(keys.Namespace, "nodes", "registry.example.com"),
	)
	w.create(more...)
	return w
}

// aBuiltWorld is one whose MachineOSConfig has its first image.
func aBuiltWorld(t *testing.T) (*world, *mcfgv1.MachineOSBuild) {
	t.Helper()
	w := newWorld(t)
	w.settle()
	w.builderEnds(success)
	w.settle()
	return w, w.current()
}

// write does a write. Those of the reconcilers are counted, and may meet a fault.
func (w *world) write(do func() error) error {
	if !w.isReconciling {
		return do()
	}
	// Some writes are made side by side.
	w.writing.Lock()
	defer w.writing.Unlock()
	w.writes++
	number := w.writes
	if w.fault != nil {
		if err := w.fault(number, false); err != nil {
			w.isFaulty = true
			return err
		}
	}
	if err := do(); err != nil {
		return err
	}
	w.done++
	if w.fault != nil {
		return w.fault(number, true)
	}
	return nil
}

// cachedClient writes to the API server and reads from a cache.
type cachedClient struct {
	client.Client
	world *world
}

func (c cachedClient) Get(ctx context.Context, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
	return c.world.cache().Get(ctx, key, object, options...)
}

func (c cachedClient) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	return c.world.cache().List(ctx, list, options...)
}

// cache is what the reconcilers read from: what was there lag rounds ago.
func (w *world) cache() client.Reader {
	if w.lag == 0 || len(w.snapshots) == 0 {
		return w.client
	}
	return w.snapshots[0]
}

// snapshot keeps a copy of everything, and drops what is older than the lag.
func (w *world) snapshot() {
	w.t.Helper()
	if w.lag == 0 {
		return
	}
	builder := fake.NewClientBuilder().WithScheme(testScheme)
	for _, list := range []client.ObjectList{
		&mcfgv1.MachineOSConfigList{}, &mcfgv1.MachineOSBuildList{}, &mcfgv1.MachineConfigPoolList{}, &mcfgv1.MachineConfigList{},
		&batchv1.JobList{}, &corev1.SecretList{}, &corev1.ConfigMapList{}, &corev1.PodList{}, &corev1.NodeList{},
		&imagemodev1alpha1.ImageRolloutList{}, &imagemodev1alpha1.NodeImageList{},
	} {
		if err := w.client.List(context.Background(), list); err != nil {
			w.t.Fatal(err)
		}
		builder.WithLists(list)
	}
	w.snapshots = append(w.snapshots, builder.Build())
	if len(w.snapshots) > w.lag {
		w.snapshots = w.snapshots[1:]
	}
}

// start makes the reconcilers, as a program does that has just started.
func (w *world) start(changes ...func(*Options)) {
	w.t.Helper()
	w.changes = append(w.changes, changes...)
	options := Options{
		Namespace: keys.Namespace, BuilderImage: "builder:1", Architecture: "amd64", NodePullSecret: "nodes",
		Images: w, Prune: PruneImages, ClusterID: "c1",
	}
	for _, change := range w.changes {
		change(&options)
	}
	options, err := options.withDefaults()
	if err != nil {
		w.t.Fatal(err)
	}
	recorder := reporter{events.NewFakeRecorder(10000)}
	clock := func() time.Time { return w.now }
	cached := cachedClient{w.client, w}
	platform := &platform{live: w.client}
	gatherer := gatherer{reader: cached, platform: platform, options: options, now: clock}
	w.configs = &configReconciler{
		client: cached, gatherer: gatherer, watch: &imageWatch{images: w, now: clock}, events: recorder, options: options, now: clock,
	}
	w.builds = &buildReconciler{
		client: cached, live: w.client, gatherer: gatherer, images: w, absent: &absence{}, queue: newQueue(options.MaxConcurrentBuilds),
		events: recorder, options: options, now: clock,
	}
	w.pruner = &pruner{client: w.client, images: w, platform: platform, events: recorder, options: options, now: clock}
}

// ask counts a request to a registry.
func (w *world) ask(request, image string) error {
	w.asked++
	if w.refuses == nil {
		return nil
	}
	return w.refuses(request, image)
}

// Read, with the methods after it, makes the world what Images is.
func (w *world) Read(_ context.Context, _ ImageAccess, image string) (ImageFacts, error) {
	if image == baseImage || image == otherBase {
		return ImageFacts{Digest: digestOf(image), Size: w.baseSize}, nil
	}
	if err := w.ask("read", image); err != nil {
		return ImageFacts{}, err
	}
	if facts, found := w.shelf[image]; found {
		return facts, nil
	}
	if w.reads != nil && !strings.Contains(image, ":inputs-") {
		return w.reads(image)
	}
	if digest := digestOf(image); digest != "" && !w.gone[digest] {
		return ImageFacts{Digest: digest}, nil
	}
	return ImageFacts{}, &registry.Error{Class: request.Image, Image: image, Err: errors.New("manifest unknown")}
}

func (w *world) Exists(_ context.Context, _ ImageAccess, image string) (registry.Existence, error) {
	if err := w.ask("exists", image); err != nil {
		return registry.Unknown, err
	}
	if w.gone[digestOf(image)] {
		return registry.Gone, nil
	}
	return registry.Present, nil
}

func (w *world) Tag(_ context.Context, _ ImageAccess, image, tag string) error {
	if err := w.ask("tag", image); err != nil {
		return err
	}
	repository, _, _ := strings.Cut(image, "@")
	facts := ImageFacts{Digest: digestOf(image)}
	for _, other := range w.shelf {
		if other.Digest == facts.Digest && other.InputsHash != "" {
			facts.InputsHash = other.InputsHash
		}
	}
	w.shelf[repository+":"+tag] = facts
	return nil
}

func (w *world) Tags(_ context.Context, _ ImageAccess, repository string) (tags []string, err error) {
	if err := w.ask("tags", repository); err != nil {
		return nil, err
	}
	for _, tagged := range slices.Sorted(maps.Keys(w.shelf)) {
		if tag, found := strings.CutPrefix(tagged, repository+":"); found {
			tags = append(tags, tag)
		}
	}
	return tags, nil
}

func (w *world) Untag(_ context.Context, _ ImageAccess, image string) error {
	if err := w.ask("untag", image); err != nil {
		return err
	}
	delete(w.shelf, image)
	return nil
}

func (w *world) Mark(_ context.Context, _ ImageAccess, image string) error {
	if err := w.ask("mark", image); err != nil {
		return err
	}
	w.shelf[image] = ImageFacts{Digest: registry.MarkerDigest()}
	return nil
}

func (w *world) Delete(_ context.Context, _ ImageAccess, image string) error {
	if err := w.ask("delete", image); err != nil {
		return err
	}
	w.gone[digestOf(image)] = true
	maps.DeleteFunc(w.shelf, func(_ string, facts ImageFacts) bool { return facts.Digest == digestOf(image) })
	return nil
}

func (w *world) create(objects ...client.Object) {
	w.t.Helper()
	for _, object := range objects {
		if err := w.client.Create(context.Background(), object); err != nil {
			w.t.Fatal(err)
		}
	}
}

// settle reconciles everything until nothing is written any more, a second
// passing with each round. Errors of injected faults are retried, as a work
// queue does.
func (w *world) settle() {
	w.t.Helper()
	quiet := 0
	for range 80 {
		before := w.done
		w.isFaulty = false
		faults := w.round()
		w.now = w.now.Add(time.Second)
		if quiet++; w.done != before || faults || w.isFaulty {
			quiet = 0
		}
		if quiet > w.lag {
			return
		}
	}
	w.t.Fatalf("it does not come to rest; writes: %d", w.writes)
}

// round reconciles each object once and reports whether a fault was met.
func (w *world) round() (faults bool) {
	w.t.Helper()
	w.snapshot()
	var configs mcfgv1.MachineOSConfigList
	var builds mcfgv1.MachineOSBuildList
	if err := errors.Join(w.client.List(context.Background(), &configs), w.client.List(context.Background(), &builds)); err != nil {
		w.t.Fatal(err)
	}
	run := func(reconciler reconcile.Reconciler, name string) {
		w.isReconciling = true
		_, err := reconciler.Reconcile(context.Background(), requestFor(name))
		w.isReconciling = false
		if errors.Is(err, errCrash) {
			// A program that crashed has nothing in memory when it starts again.
			w.start()
			faults = true
			return
		}
		if err != nil {
			w.t.Fatalf("reconcile %s: %v", name, err)
		}
	}
	for i := range configs.Items {
		run(w.configs, configs.Items[i].Name)
	}
	for i := range builds.Items {
		run(w.builds, builds.Items[i].Name)
	}
	return faults
}

// config reads the MachineOSConfig.
func (w *world) config() *mcfgv1.MachineOSConfig {
	w.t.Helper()
	return read[mcfgv1.MachineOSConfig](w, "", "worker")
}

// current reads the build that the MachineOSConfig points at.
func (w *world) current() *mcfgv1.MachineOSBuild {
	w.t.Helper()
	return read[mcfgv1.MachineOSBuild](w, "", w.config().Annotations[keys.AnnotationCurrentMachineOSBuild])
}

// condition of the MachineOSConfig.
func (w *world) condition(kind string) *metav1.Condition {
	w.t.Helper()
	found := apimeta.FindStatusCondition(w.config().Status.Conditions, kind)
	if found == nil {
		w.t.Fatalf("there is no condition %s", kind)
	}
	return found
}

// inputs that a build was made of.
func (w *world) inputs(build *mcfgv1.MachineOSBuild) (inputs buildInputs) {
	w.t.Helper()
	if err := json.Unmarshal([]byte(build.Annotations[keys.AnnotationBuildInputs]), &inputs); err != nil {
		w.t.Fatal(err)
	}
	return inputs
}

// replaceSecret gives a Secret another content.
func (w *world) replaceSecret(name string) {
	w.t.Helper()
	found := read[corev1.Secret](w, keys.Namespace, name)
	found.Data = builders.DockerConfig(keys.Namespace, name, "other.example.com").Data
	if err := w.client.Update(context.Background(), found); err != nil {
		w.t.Fatal(err)
	}
}

func secret(name string, data map[string][]byte) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: keys.Namespace, Name: name}, Data: data}
}

func configMap(name string, data map[string]string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: keys.Namespace, Name: name}, Data: data}
}

func (w *world) job(build *mcfgv1.MachineOSBuild) *batchv1.Job {
	w.t.Helper()
	job, err := find[batchv1.Job](context.Background(), w.client, keys.Namespace, jobName(build.Name))
	if err != nil {
		w.t.Fatal(err)
	}
	return job
}

func (w *world) count(list client.ObjectList) int {
	w.t.Helper()
	if err := w.client.List(context.Background(), list); err != nil {
		w.t.Fatal(err)
	}
	items := 0
	switch list := list.(type) {
	case *mcfgv1.MachineOSBuildList:
		items = len(list.Items)
	case *batchv1.JobList:
		items = len(list.Items)
	case *corev1.SecretList:
		items = len(list.Items)
	}
	return items
}

func read[T any, P objectPointer[T]](w *world, namespace, name string) P {
	w.t.Helper()
	object, err := find[T, P](context.Background(), w.client, namespace, name)
	if err != nil || object == nil {
		w.t.Fatalf("read %T %q: %v, %v", object, name, object, err)
	}
	return object
}

// edit changes the MachineOSConfig's spec or annotations, as a user does.
func (w *world) edit(changes ...func(*mcfgv1.MachineOSConfig)) {
	w.t.Helper()
	config := w.config()
	before := config.DeepCopy()
	for _, change := range changes {
		change(config)
	}
	config.Generation++
	if err := w.client.Patch(context.Background(), config, client.MergeFrom(before)); err != nil {
		w.t.Fatal(err)
	}
}

func askRebuild(value string) func(*mcfgv1.MachineOSConfig) {
	return func(config *mcfgv1.MachineOSConfig) {
		metav1.SetMetaDataAnnotation(&config.ObjectMeta, keys.AnnotationRebuild, value)
	}
}

// podRuns gives the current build's Job a pod at work.
func (w *world) podRuns() *corev1.Pod {
	w.t.Helper()
	return w.podRunsFor(w.current())
}

func (w *world) podRunsFor(build *mcfgv1.MachineOSBuild) *corev1.Pod {
	w.t.Helper()
	job := w.job(build)
	pod := aPod(named(fmt.Sprintf("%s-%d", job.Name, job.Status.Failed)))
	pod.Namespace = keys.Namespace
	pod.Labels = map[string]string{batchv1.ControllerUidLabel: string(job.UID)}
	status := pod.Status
	w.create(&pod)
	pod.Status = status
	w.updateStatus(&pod)
	return &pod
}

// builderEnds ends the current build's Job with a result.
func (w *world) builderEnds(result request.Result) {
	w.t.Helper()
	w.builderEndsFor(w.current(), result)
}

func (w *world) builderEndsFor(build *mcfgv1.MachineOSBuild, result request.Result) {
	w.t.Helper()
	pod := w.podRunsFor(build)
	reported(result)(pod)
	w.updateStatus(pod)
	kind := batchv1.JobComplete
	if result.Failure != nil {
		kind = batchv1.JobFailed
	}
	w.jobEndsFor(build, kind)
}

func (w *world) jobEnds(kind batchv1.JobConditionType) {
	w.t.Helper()
	w.jobEndsFor(w.current(), kind)
}

func (w *world) jobEndsFor(build *mcfgv1.MachineOSBuild, kind batchv1.JobConditionType) {
	w.t.Helper()
	job := w.job(build)
	job.Status.Conditions = []batchv1.JobCondition{{Type: kind, Status: corev1.ConditionTrue}}
	w.updateStatus(job)
}

// renderAgain gives the pool another rendered config of the same content.
func (w *world) renderAgain(name string) {
	w.t.Helper()
	rendered := aRendered()
	rendered.Name = name
	w.create(rendered)
	pool := read[mcfgv1.MachineConfigPool](w, "", "worker")
	pool.Spec.Configuration.Name = name
	if err := w.client.Update(context.Background(), pool); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) updateStatus(object client.Object) {
	w.t.Helper()
	if err := w.client.Status().Update(context.Background(), object); err != nil {
		w.t.Fatal(err)
	}
}

// delete removes an object and, as the garbage collector does, what it owns.
func (w *world) delete(object client.Object) {
	w.t.Helper()
	ctx := context.Background()
	if err := w.client.Delete(ctx, object); err != nil && !apierrors.IsNotFound(err) {
		w.t.Fatal(err)
	}
	w.collect()
}

// collect removes what belongs to a Job or a build that is gone.
func (w *world) collect() {
	w.t.Helper()
	ctx := context.Background()
	for range 3 {
		present := map[types.UID]bool{}
		var owned []client.Object
		for _, list := range []client.ObjectList{
			&mcfgv1.MachineOSConfigList{}, &mcfgv1.MachineOSBuildList{}, &batchv1.JobList{}, &corev1.SecretList{}, &corev1.ConfigMapList{}, &corev1.PodList{}, &imagemodev1alpha1.ImageRolloutList{},
		} {
			if err := w.client.List(ctx, list); err != nil {
				w.t.Fatal(err)
			}
			for _, object := range objectsOf(list) {
				present[object.GetUID()] = true
				owned = append(owned, object)
			}
		}
		for _, object := range owned {
			if owner := metav1.GetControllerOf(object); owner != nil && !present[owner.UID] {
				if err := w.client.Delete(ctx, object); client.IgnoreNotFound(err) != nil {
					w.t.Fatal(err)
				}
			}
		}
	}
}

func objectsOf(list client.ObjectList) (objects []client.Object) {
	switch list := list.(type) {
	case *mcfgv1.MachineOSConfigList:
		objects = pointers(list.Items)
	case *mcfgv1.MachineOSBuildList:
		objects = pointers(list.Items)
	case *batchv1.JobList:
		objects = pointers(list.Items)
	case *corev1.SecretList:
		objects = pointers(list.Items)
	case *corev1.ConfigMapList:
		objects = pointers(list.Items)
	case *corev1.PodList:
		objects = pointers(list.Items)
	case *imagemodev1alpha1.ImageRolloutList:
		objects = pointers(list.Items)
	}
	return objects
}

func pointers[T any, P objectPointer[T]](items []T) (objects []client.Object) {
	for i := range items {
		objects = append(objects, P(&items[i]))
	}
	return objects
}
