package machineosbuild

import (
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"

	keys "github.com/imagemode/imagemode/api/machineconfiguration"
	imagemodev1alpha1 "github.com/imagemode/imagemode/api/v1alpha1"
	"github.com/imagemode/imagemode/builder/request"
	"github.com/imagemode/imagemode/test/builders"
)

const plainDigest = "sha256:5555555555555555555555555555555555555555555555555555555555555555"

// rolledOut gives the pool a rollout with the image of its MachineOSConfig.
func (w *world) rolledOut() {
	w.t.Helper()
	image := string(w.config().Status.CurrentImagePullSpec)
	rollout := w.rollout()
	if rollout == nil {
		w.create(&imagemodev1alpha1.ImageRollout{ObjectMeta: metav1.ObjectMeta{Name: "worker"}, Spec: imagemodev1alpha1.ImageRolloutSpec{Image: image}})
		return
	}
	rollout.Spec.Image = image
	if err := w.client.Update(w.t.Context(), rollout); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) rollout() *imagemodev1alpha1.ImageRollout {
	w.t.Helper()
	rollout, err := find[imagemodev1alpha1.ImageRollout](w.t.Context(), w.client, "", "worker")
	if err != nil {
		w.t.Fatal(err)
	}
	return rollout
}

// isGone reports whether the MachineOSConfig is.
func (w *world) isGone() bool {
	w.t.Helper()
	config, err := find[mcfgv1.MachineOSConfig](w.t.Context(), w.client, "", "worker")
	if err != nil {
		w.t.Fatal(err)
	}
	return config == nil
}

// aWorldInUse has nodes with the image of a MachineOSConfig.
func aWorldInUse(t *testing.T) *world {
	w, _ := aBuiltWorld(t)
	w.rolledOut()
	w.settle()
	return w
}

func TestADeletedConfigTakesItsNodesToAnImageWithoutItsContainerfile(t *testing.T) {
	w := aWorldInUse(t)
	first := w.current()
	w.delete(w.config())
	w.settle()
	if w.isGone() {
		t.Fatal("it went before its nodes have anywhere to go")
	}
	last := w.current()
	if last.Name == first.Name {
		t.Fatal("no other image is built")
	}
	if inputs := w.inputs(last); inputs.Image.Containerfile != "" || inputs.Image.Ignition != w.inputs(first).Image.Ignition {
		t.Errorf("inputs %+v", inputs.Image)
	}
	w.wantConditions("True Valid", "True Prepared", "False Building", "False Building")
	w.builderEnds(request.Result{Digest: plainDigest})
	w.settle()
	w.wantConditions("True Valid", "False Ready", "True Ready", "False BuildSuccess")
	if w.isGone() {
		t.Fatal("it went before the rollout had its image")
	}

	w.rolledOut()
	w.settle()
	if !w.isGone() {
		t.Fatal("it does not go")
	}
	w.collect()
	kept := read[mcfgv1.MachineOSBuild](w, "", last.Name)
	if !isOwnedBy(kept, w.rollout().UID) {
		t.Errorf("the last build belongs to %+v", kept.OwnerReferences)
	}
	if kept.Annotations[keys.AnnotationPushSecret] != "push" {
		t.Error("the last build does not say with which Secret its image was pushed")
	}
	if got := w.count(&mcfgv1.MachineOSBuildList{}); got != 1 {
		t.Errorf("%d builds are left", got)
	}
}

func TestADeletedConfigWithoutContainerfileNeedsNoFurtherBuild(t *testing.T) {
	w := newWorld(t)
	w.edit(func(config *mcfgv1.MachineOSConfig) { config.Spec.Containerfile = nil })
	w.settle()
	w.builderEnds(success)
	w.settle()
	w.rolledOut()
	w.delete(w.config())
	w.settle()
	if !w.isGone() || w.count(&batchv1.JobList{}) != 1 {
		t.Errorf("gone: %t, Jobs: %d", w.isGone(), w.count(&batchv1.JobList{}))
	}
}

func TestADeletedConfigWithoutNodesGoesAtOnce(t *testing.T) {
	for name, prepare := range map[string]func(*world){
		"nothing was built":         func(*world) {},
		"a build runs":              func(w *world) { w.settle(); w.podRuns(); w.settle() },
		"no rollout has its image":  func(w *world) { w.settle(); w.builderEnds(success); w.settle() },
		"its pool is deleted first": func(w *world) { w.settle(); w.delete(builders.MachineConfigPool("worker")) },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			prepare(w)
			w.delete(w.config())
			w.settle()
			w.collect()
			if !w.isGone() {
				t.Error("it does not go")
			}
			if got := w.count(&mcfgv1.MachineOSBuildList{}); got != 0 {
				t.Errorf("%d builds are left", got)
			}
		})
	}
}

func TestADeletedConfigThatCannotBePushedSaysWhyAndStays(t *testing.T) {
	w := aWorldInUse(t)
	w.delete(builders.DockerConfig(keys.Namespace, "push", ""))
	w.delete(w.config())
	w.settle()
	if w.isGone() {
		t.Fatal("it went")
	}
	if message := w.condition(keys.ConditionReady).Message; !strings.Contains(message, `secret "push" not found`) || !strings.Contains(message, keys.AnnotationAbandon) {
		t.Errorf("message %q", message)
	}
	if image := w.rollout().Spec.Image; !strings.HasSuffix(image, imageDigest) {
		t.Errorf("the rollout has %s", image)
	}

	w.edit(func(config *mcfgv1.MachineOSConfig) {
		metav1.SetMetaDataAnnotation(&config.ObjectMeta, keys.AnnotationAbandon, "")
	})
	w.settle()
	if !w.isGone() || w.rollout() != nil {
		t.Errorf("gone: %t, rollout %+v", w.isGone(), w.rollout())
	}
}

func TestAConfigThatIsMadeAgainFindsItsImage(t *testing.T) {
	w := aWorldInUse(t)
	w.onShelf(w.current())
	w.delete(w.config())
	w.settle()
	w.builderEnds(request.Result{Digest: plainDigest})
	w.settle()
	w.rolledOut()
	w.settle()
	w.collect()

	w.create(builders.MachineOSConfig("worker", builders.Containerfile(withRun)))
	w.settle()
	again := w.current()
	w.wantPhase(again, mcfgv1.MachineOSBuildSucceeded)
	if reason := conditionOf(again).Reason; reason != reasonReused || !strings.HasSuffix(string(again.Status.DigestedImagePushSpec), imageDigest) {
		t.Errorf("%s, image %s", reason, again.Status.DigestedImagePushSpec)
	}
}

func TestABuildThatWasLeftIsAdopted(t *testing.T) {
	for name, again := range map[string]func(*world){
		"by a MachineOSConfig of the same inputs": func(w *world) {
			w.create(builders.MachineOSConfig("worker"))
		},
		"by one that is deleted again": func(w *world) {
			w.create(builders.MachineOSConfig("worker", builders.Containerfile(withRun)))
			w.settle()
			w.deletePods()
			w.builderEnds(success)
			w.settle()
			w.rolledOut()
			w.delete(w.config())
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := aWorldInUse(t)
			w.delete(w.config())
			w.settle()
			w.builderEnds(request.Result{Digest: plainDigest})
			w.settle()
			w.rolledOut()
			w.settle()
			w.collect()

			again(w)
			w.settle()
			if build := w.current(); !isOwnedBy(build, w.config().UID) || !strings.HasSuffix(string(build.Status.DigestedImagePushSpec), plainDigest) {
				t.Errorf("current is %s of %+v with image %s", build.Name, build.OwnerReferences, build.Status.DigestedImagePushSpec)
			}
			w.wantConditions("True Valid", "False Ready", "True Ready", "False BuildSuccess")
		})
	}
}

func TestAnImageBuiltBeforeIsTheFirst(t *testing.T) {
	const seed = "mirror.example.com/install/os@" + plainDigest
	w := newWorld(t)
	w.edit(func(config *mcfgv1.MachineOSConfig) {
		metav1.SetMetaDataAnnotation(&config.ObjectMeta, keys.AnnotationPreBuiltImage, seed)
	})
	w.settle()
	build := w.current()
	w.wantPhase(build, mcfgv1.MachineOSBuildSucceeded)
	if build.Labels[keys.LabelPreBuiltImage] != "true" || build.Status.DigestedImagePushSpec != seed || conditionOf(build).Reason != "PreBuiltImageSeeded" {
		t.Errorf("labels %v, status %+v", build.Labels, build.Status)
	}
	if build.Spec.RenderedImagePushSpec != w.config().Spec.RenderedImagePushSpec {
		t.Errorf("push spec %s", build.Spec.RenderedImagePushSpec)
	}
	if !build.Status.BuildEnd.After(build.Status.BuildStart.Time) {
		t.Error("it ends before it starts")
	}
	config := w.config()
	if _, still := config.Annotations[keys.AnnotationPreBuiltImage]; still || config.Status.CurrentImagePullSpec != seed {
		t.Errorf("annotations %v, image %s", config.Annotations, config.Status.CurrentImagePullSpec)
	}
	if seeded := w.condition(keys.ConditionSeeded); seeded.Status != metav1.ConditionTrue {
		t.Errorf("%+v", seeded)
	}
	if w.count(&batchv1.JobList{}) != 0 {
		t.Error("a Job was made")
	}
	for tag := range w.shelf {
		t.Errorf("the user's image was tagged: %s", tag)
	}

	// A new base is built on: the image is where it began, not what stays.
	rendered := read[mcfgv1.MachineConfig](w, "", renderedName)
	rendered.Spec.OSImageURL = otherBase
	if err := w.client.Update(t.Context(), rendered); err != nil {
		t.Fatal(err)
	}
	w.settle()
	if next := w.current(); next.Name == build.Name || w.job(next) == nil {
		t.Errorf("current is %s", next.Name)
	}
}

func TestAnImageBuiltBeforeHasToBeByDigest(t *testing.T) {
	for _, image := range []string{"mirror.example.com/os:latest", "no image", "host/a/b/c/d@" + plainDigest} {
		w := newWorld(t)
		w.edit(func(config *mcfgv1.MachineOSConfig) {
			metav1.SetMetaDataAnnotation(&config.ObjectMeta, keys.AnnotationPreBuiltImage, image)
		})
		w.settle()
		w.wantConditions("False PreBuiltImageInvalid", "False PreBuiltImageInvalid", "False PreBuiltImageInvalid", "False PreBuiltImageInvalid")
		if message := w.condition(keys.ConditionValid).Message; !strings.Contains(message, image) || !strings.Contains(message, "@sha256:") {
			t.Errorf("message %q", message)
		}
	}
}
