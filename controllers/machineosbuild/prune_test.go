package machineosbuild

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"

	keys "github.com/imagemode/imagemode/api/machineconfiguration"
	imagemodev1alpha1 "github.com/imagemode/imagemode/api/v1alpha1"
	"github.com/imagemode/imagemode/builder/request"
	"github.com/imagemode/imagemode/registry"
	"github.com/imagemode/imagemode/test/builders"
)

const repository = "registry.example.com/os/worker"

// digestNumber is a digest that tells images apart by their first digits.
func digestNumber(number int) string {
	return fmt.Sprintf("sha256:%012d%s", number, strings.Repeat("0", 52))
}

// held puts an image into the registry that this cluster keeps.
func (w *world) held(digest string) {
	w.shelf[repository+":"+holdTag("c1", digest)] = ImageFacts{Digest: digest}
}

func (w *world) prune() {
	w.t.Helper()
	w.isReconciling = true
	err := w.pruner.prune(w.t.Context())
	w.isReconciling = false
	if err != nil {
		w.t.Fatal(err)
	}
}

// pruneAfterGrace prunes twice, with the time of grace between.
func (w *world) pruneAfterGrace() {
	w.t.Helper()
	w.prune()
	w.now = w.now.Add(pruneGrace)
	w.prune()
}

func TestAnImageNothingRefersToGoesAfterAWhile(t *testing.T) {
	w := newWorld(t)
	old := digestNumber(1)
	w.held(old)
	w.prune()
	w.now = w.now.Add(pruneGrace - time.Second)
	w.prune()
	if w.gone[old] {
		t.Fatal("it went before its time")
	}
	// A restart in between loses nothing.
	w.start()
	w.now = w.now.Add(time.Second)
	w.prune()
	if !w.gone[old] {
		t.Error("it stays")
	}
	before := w.writes
	w.prune()
	w.prune()
	if w.writes > before {
		t.Error("something is written though nothing changed")
	}
	if unused := read[corev1.ConfigMap](w, keys.Namespace, keys.ConfigMapUnusedImages).Data[unusedKey]; unused != "{}" {
		t.Errorf("remembered: %s", unused)
	}
}

func TestImagesThatAreReferredToStay(t *testing.T) {
	digest := digestNumber(1)
	image := repository + "@" + digest
	node := func(change func(*imagemodev1alpha1.NodeImage)) func(*world) {
		return func(w *world) {
			made := &imagemodev1alpha1.NodeImage{ObjectMeta: metav1.ObjectMeta{Name: "node"}}
			change(made)
			w.create(made)
		}
	}
	for name, prepare := range map[string]func(*world){
		"a node runs it":             node(func(n *imagemodev1alpha1.NodeImage) { n.Status.Booted = &imagemodev1alpha1.HostImage{Digest: digest} }),
		"a node has it ready":        node(func(n *imagemodev1alpha1.NodeImage) { n.Status.Staged = &imagemodev1alpha1.HostImage{Digest: digest} }),
		"a node could go back to it": node(func(n *imagemodev1alpha1.NodeImage) { n.Status.Rollback = &imagemodev1alpha1.HostImage{Digest: digest} }),
		"a node is to have it":       node(func(n *imagemodev1alpha1.NodeImage) { n.Spec.DesiredImage = image }),
		"a rollout takes it somewhere": func(w *world) {
			w.create(&imagemodev1alpha1.ImageRollout{ObjectMeta: metav1.ObjectMeta{Name: "x"}, Spec: imagemodev1alpha1.ImageRolloutSpec{Image: image}})
		},
		"another updater's node runs it":     func(w *world) { w.create(annotatedNode(nodeImageAnnotations[0], image)) },
		"another updater's node is to":       func(w *world) { w.create(annotatedNode(nodeImageAnnotations[1], image)) },
		"a MachineOSConfig names it":         func(w *world) { w.setCurrentImage(image) },
		"a build that is kept made it":       func(w *world) { w.create(succeededBuild("worker-old", image)) },
		"this cluster does not hold it":      func(w *world) { delete(w.shelf, repository+":"+holdTag("c1", digest)) },
		"the tag was moved to another image": func(w *world) { w.shelf[repository+":"+holdTag("c1", digest)] = ImageFacts{Digest: digestNumber(2)} },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.held(digest)
			prepare(w)
			w.pruneAfterGrace()
			if w.gone[digest] || w.gone[digestNumber(2)] {
				t.Error("it is gone")
			}
		})
	}
}

func TestAnImageOfTwoClustersIsGivenUpByOne(t *testing.T) {
	w := newWorld(t)
	digest := digestNumber(1)
	w.held(digest)
	w.shelf[repository+":"+holdTag("c2", digest)] = ImageFacts{Digest: digest}
	w.pruneAfterGrace()
	if w.gone[digest] {
		t.Fatal("the other cluster's image is gone")
	}
	if tags, _ := w.Tags(t.Context(), ImageAccess{}, repository); !slices.Equal(tags, []string{holdTag("c2", digest)}) {
		t.Errorf("tags %v", tags)
	}
}

func TestARegistryThatDeletesNoTagsKeepsNoImage(t *testing.T) {
	w := newWorld(t)
	digest := digestNumber(1)
	w.held(digest)
	ours, theirs := repository+":"+holdTag("c1", digest), repository+":"+holdTag("c2", digest)
	w.shelf[theirs] = ImageFacts{Digest: digest}
	marked := 0
	w.refuses = func(asked, _ string) error {
		switch asked {
		case "untag":
			return registry.ErrCannotUntag
		case "mark":
			marked++
		}
		return nil
	}
	w.pruneAfterGrace()
	if w.gone[digest] || w.shelf[ours].Digest != registry.MarkerDigest() {
		t.Fatalf("the other cluster's image is gone: %t; our tag leads to %s", w.gone[digest], w.shelf[ours].Digest)
	}
	before := w.writes
	w.prune()
	if w.writes > before || marked > 1 {
		t.Errorf("what was given up is written again: %d writes, marked %d times", w.writes-before, marked)
	}
	// The other cluster gives it up as well: our marked tag is no use of it.
	w.start(func(options *Options) { options.ClusterID = "c2" })
	w.pruneAfterGrace()
	if !w.gone[digest] {
		t.Error("the image stays")
	}
}

func TestADryRunDeletesNothing(t *testing.T) {
	w := newWorld(t)
	w.start(func(options *Options) { options.Prune = ListImages })
	w.held(digestNumber(1))
	w.pruneAfterGrace()
	if len(w.gone) > 0 || len(w.shelf) != 1 {
		t.Errorf("gone %v, left %v", w.gone, w.shelf)
	}
}

func TestARepositoryThatDoesNotAnswerHoldsUpNoOther(t *testing.T) {
	w := newWorld(t)
	w.poolNamed("infra", builders.PushTo("registry.example.com/os/infra:latest", "push"))
	w.held(digestNumber(1))
	w.refuses = func(_, image string) error {
		if strings.HasPrefix(image, "registry.example.com/os/infra") {
			return &registry.Error{Class: request.Network, Err: errors.New("connection refused")}
		}
		return nil
	}
	for range 2 {
		if err := w.pruner.prune(t.Context()); err == nil || !strings.Contains(err.Error(), "registry.example.com/os/infra: ") {
			t.Errorf("error %v", err)
		}
		w.now = w.now.Add(pruneGrace)
	}
	if !w.gone[digestNumber(1)] {
		t.Error("the image of the other repository stays")
	}
}

func TestABuildThatSucceededHoldsItsImage(t *testing.T) {
	w, _ := aBuiltWorld(t)
	tag := holdTag("c1", imageDigest)
	if _, found := w.shelf[repository+":"+tag]; !found || w.current().Annotations[keys.AnnotationImageHeld] != tag {
		t.Errorf("tags %v, annotations %v", w.shelf, w.current().Annotations)
	}
	w.pruneAfterGrace()
	if w.gone[imageDigest] {
		t.Error("the current image is gone")
	}
}

func TestTheBuildThatADeletedConfigLeftGoesWithItsImage(t *testing.T) {
	w := aWorldInUse(t)
	left := succeededBuild("worker-left", repository+"@"+plainDigest)
	left.OwnerReferences = []metav1.OwnerReference{
		*metav1.NewControllerRef(w.rollout(), imagemodev1alpha1.GroupVersion.WithKind("ImageRollout")),
	}
	w.create(left)
	w.held(plainDigest)
	w.pruneAfterGrace()
	found, err := find[mcfgv1.MachineOSBuild](t.Context(), w.client, "", left.Name)
	if err != nil || found != nil || !w.gone[plainDigest] {
		t.Errorf("build %v, error %v, image gone: %t", found, err, w.gone[plainDigest])
	}
}

func TestOldBuildsAreForgotten(t *testing.T) {
	w := newWorld(t)
	w.start(func(options *Options) { options.History = &HistoryLimits{Succeeded: 2, Unsuccessful: 1} })
	w.settle()
	for number := range 6 {
		w.edit(builders.Containerfile(fmt.Sprintf("FROM configs AS final\nRUN echo %d\n", number)))
		w.settle()
		result := request.Result{Digest: digestNumber(number)}
		if number%2 == 1 {
			result = runFail
		}
		w.builderEnds(result)
		w.settle()
		if number == 0 {
			w.rolledOut()
		}
	}
	var list mcfgv1.MachineOSBuildList
	if err := w.client.List(t.Context(), &list); err != nil {
		t.Fatal(err)
	}
	var succeeded, unsuccessful int
	isInUse := false
	for i := range list.Items {
		if hasSucceeded(&list.Items[i]) {
			succeeded++
		} else {
			unsuccessful++
		}
		isInUse = isInUse || strings.HasSuffix(string(list.Items[i].Status.DigestedImagePushSpec), digestNumber(0))
	}
	// 0, 2 and 4 succeeded, and 0 is in use; the current one failed.
	if succeeded != 3 || unsuccessful != 2 || !isInUse {
		t.Errorf("%d succeeded, %d did not; the build of the nodes' image is there: %t", succeeded, unsuccessful, isInUse)
	}
}

func annotatedNode(annotation, image string) *corev1.Node {
	node := builders.Node("node", "worker")
	node.Annotations = map[string]string{annotation: image}
	return node
}

func succeededBuild(name, image string) *mcfgv1.MachineOSBuild {
	build := builders.MachineOSBuild(name)
	build.Annotations = map[string]string{keys.AnnotationPushSecret: "push"}
	build.Status = buildStatus(build.Status, repository, state{phase: mcfgv1.MachineOSBuildSucceeded, image: image}, someTime)
	return build
}

func (w *world) setCurrentImage(image string) {
	config := w.config()
	config.Status.CurrentImagePullSpec = mcfgv1.ImageDigestFormat(image)
	w.updateStatus(config)
}

func TestImagesThatCannotBeDeletedAreTold(t *testing.T) {
	w := newWorld(t)
	w.poolNamed("infra", builders.PushTo("registry.example.com/os/infra:latest", "push"))
	recorder := events.NewFakeRecorder(100)
	w.pruner.events = reporter{recorder}
	w.held(digestNumber(1))
	w.prune()
	w.refuses = func(asked, _ string) error {
		if asked == "delete" {
			return &registry.Error{Class: request.Authentication, Image: repository, Err: errors.New("denied")}
		}
		return nil
	}
	w.now = w.now.Add(pruneGrace)
	if err := w.pruner.prune(t.Context()); err == nil {
		t.Error("it is no error")
	}
	close(recorder.Events)
	var told []string
	for event := range recorder.Events {
		told = append(told, event)
	}
	const want = `Warning ImagesNotDeleted MachineOSConfig worker: images that nothing refers to stay in registry.example.com/os/worker; secret "push"`
	if len(told) != 1 || !strings.HasPrefix(told[0], want) || !strings.Contains(told[0], "denied") {
		t.Errorf("told: %q", told)
	}
}
