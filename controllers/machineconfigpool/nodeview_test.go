package machineconfigpool

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/imagemode/imagemode/api/machineconfiguration"
	"github.com/imagemode/imagemode/api/v1alpha1"
	"github.com/imagemode/imagemode/test/builders"
)

// trueConditions are the types that are True, in the order in which they stand.
func trueConditions(conditions []metav1.Condition) []string {
	var kinds []string
	for _, condition := range conditions {
		if condition.Status == metav1.ConditionTrue {
			kinds = append(kinds, condition.Type)
		}
	}
	return kinds
}

func TestANodesUpdateIsShownStepByStep(t *testing.T) {
	booted := func(digest string, changes ...func(*v1alpha1.NodeImage)) *v1alpha1.NodeImage {
		image := nodeImage("node", digest)
		image.Status.Booted.Image = "registry.example.com/os/worker:tag"
		image.Spec.DesiredImage = image2
		for _, change := range changes {
			change(image)
		}
		return image
	}
	staged := func(image *v1alpha1.NodeImage) { image.Status.Staged = &v1alpha1.HostImage{Digest: digest2} }
	unasked := func(image *v1alpha1.NodeImage) { image.Spec.DesiredImage = image1 }
	broken := func(image *v1alpha1.NodeImage) {
		image.Status.LastAttempt = &v1alpha1.Attempt{Image: image2, Class: v1alpha1.FailureDiskFull, Permanent: true, Message: "no space left"}
	}
	for name, test := range map[string]struct {
		image      *v1alpha1.NodeImage
		slot       v1alpha1.SlotPhase
		isCordoned bool
		want       []string
		state      string
	}{
		"before it is asked":                  {booted(digest1, unasked), "", false, nil, "Done"},
		"it downloads":                        {booted(digest1), "", false, []string{"UpdatePrepared"}, "Working"},
		"it has staged":                       {booted(digest1, staged), "", false, []string{"UpdatePrepared", "AppliedFilesAndOS"}, "Working"},
		"it is drained":                       {booted(digest1, staged), v1alpha1.SlotDraining, true, []string{"UpdatePrepared", "Cordoned", "AppliedFilesAndOS"}, "Working"},
		"it is to boot":                       {booted(digest1, staged), v1alpha1.SlotBooting, true, []string{"UpdatePrepared", "UpdateExecuted", "Cordoned", "Drained", "AppliedFilesAndOS"}, "Working"},
		"it has booted":                       {booted(digest2), v1alpha1.SlotBooting, true, []string{"UpdatePrepared", "UpdateExecuted", "Cordoned", "Drained", "AppliedFilesAndOS", "UpdatePostActionComplete", "RebootedNode"}, "Working"},
		"it is back, and watched for a while": {booted(digest2), v1alpha1.SlotSoaking, false, []string{"UpdateComplete", "Uncordoned", "Resumed", "Updated"}, "Done"},
		"afterwards":                          {booted(digest2), "", false, []string{"Updated"}, "Done"},
		"somebody cordons it":                 {booted(digest2), "", true, []string{"Updated"}, "Done"},
		"it fails for good":                   {booted(digest1, broken), "", false, []string{"UpdatePrepared", "NodeDegraded"}, "Degraded"},
		"its agent says nothing":              {nil, "", false, nil, "Done"},
	} {
		t.Run(name, func(t *testing.T) {
			node := builders.Node("node", "worker")
			node.Spec.Unschedulable = test.isCordoned
			rollout := handedOff(image2)
			if test.slot != "" {
				rollout.Status.Slots = []v1alpha1.Slot{{Node: "node", Phase: test.slot}}
			}
			pool := builders.MachineConfigPool("worker", builders.Rendered(config2))
			view := viewOf(node, pool, test.image, rollout, aWorld().builds)
			if got := trueConditions(view.conditions()); !slices.Equal(got, test.want) {
				t.Errorf("True are %v, want %v", got, test.want)
			}
			if got := view.annotations()[machineconfiguration.AnnotationState]; got != test.state {
				t.Errorf("state %s, want %s", got, test.state)
			}
		})
	}
}

func TestConfigAndImageAreShownTogether(t *testing.T) {
	pool := builders.MachineConfigPool("worker", builders.Rendered("rendered-worker-3"))
	for name, test := range map[string]struct {
		rollout *v1alpha1.ImageRollout
		image   *v1alpha1.NodeImage
		desired version
		current version
	}{
		"a config without an image yet does not count":  {handedOff(image2), nodeImage("node", digest1), version{config2, image2}, version{config: config1}},
		"without a rollout the pool's config is wanted": {nil, nil, version{config: "rendered-worker-3"}, version{}},
		"an image that nobody here built":               {handedOff(image2), nodeImage("node", "sha256:"+strings.Repeat("9", 64)), version{config2, image2}, version{}},
	} {
		t.Run(name, func(t *testing.T) {
			view := viewOf(builders.Node("node", "worker"), pool, test.image, test.rollout, aWorld().builds)
			if diff := cmp.Diff(test.desired, view.desired, cmp.AllowUnexported(version{})); diff != "" {
				t.Errorf("desired (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(test.current, view.current, cmp.AllowUnexported(version{})); diff != "" {
				t.Errorf("current (-want +got):\n%s", diff)
			}
		})
	}
}

func TestImagesThatTheAPICannotNameAreLeftOut(t *testing.T) {
	for image, want := range map[string]string{
		image1: image1, "registry.example.com/a/b/c@" + digest1: "", "registry.example.com/os/worker:tag": "", "": "",
	} {
		if got := nameable(image); string(got) != want {
			t.Errorf("%q is shown as %q", image, got)
		}
	}
	host := &v1alpha1.HostImage{Image: "registry.example.com:5000/os/worker:tag", Digest: digest1}
	if got := byItsDigest(host); got != "registry.example.com:5000/os/worker@"+digest1 {
		t.Errorf("by digest: %q", got)
	}
}

func TestTheStatusOfAMachineConfigNodeIsAtRest(t *testing.T) {
	view := viewOf(builders.Node("node", "worker"), builders.MachineConfigPool("worker", builders.Rendered(config2)), nodeImage("node", digest2), handedOff(image2), aWorld().builds)
	view.withImages = true
	first := view.status(mcfgv1.MachineConfigNodeStatus{}, 1, earlier)
	second := view.status(first, 1, later)
	if diff := cmp.Diff(first, second); diff != "" {
		t.Errorf("without any change (-first +second):\n%s", diff)
	}
	view.current.config = ""
	if unknown := view.status(first, 1, later); unknown.ConfigVersion != nil {
		t.Errorf("an empty name is shown: %+v", unknown.ConfigVersion)
	}
}

func TestAnAPIWithoutImageFieldsIsShownNone(t *testing.T) {
	view := viewOf(builders.Node("node", "worker"), builders.MachineConfigPool("worker", builders.Rendered(config2)), nodeImage("node", digest2), handedOff(image2), aWorld().builds)
	view.withImages = true
	with := view.status(mcfgv1.MachineConfigNodeStatus{}, 1, earlier)
	if with.ConfigImage.DesiredImage != image2 || view.spec().ConfigImage.DesiredImage != image2 || len(with.Conditions) != 15 {
		t.Errorf("with image fields: %+v", with)
	}
	view.withImages = false
	without := view.status(with, 1, later)
	if without.ConfigImage != (mcfgv1.MachineConfigNodeStatusConfigImage{}) || view.spec().ConfigImage.DesiredImage != "" {
		t.Errorf("images are shown to an API that has no field for them: %+v", without.ConfigImage)
	}
	if len(without.Conditions) != 12 || meta.FindStatusCondition(without.Conditions, "AppliedOSImage") != nil {
		t.Errorf("conditions of images are shown: %+v", without.Conditions)
	}
}

func TestANodeWhosePoolHasNoImageSaysWhatItRuns(t *testing.T) {
	view := viewOf(builders.Node("node", "worker"), builders.MachineConfigPool("worker", builders.Rendered(config2)), nil, nil, nil)
	view.withImages = true
	view.recall()
	if view.isStranded() {
		t.Error("a node that never had an image is not stranded")
	}
	view.shown = &mcfgv1.MachineConfigNode{Status: mcfgv1.MachineConfigNodeStatus{
		ConfigVersion: &mcfgv1.MachineConfigNodeStatusMachineConfigVersion{Current: "rendered-infra-1"},
		ConfigImage:   mcfgv1.MachineConfigNodeStatusConfigImage{CurrentImage: image1},
	}}
	view.recall()
	status := view.status(view.shown.Status, 1, later)
	updated := meta.FindStatusCondition(status.Conditions, "Updated")
	if updated.Status != metav1.ConditionFalse || !strings.Contains(updated.Message, "rendered-infra-1") || !strings.Contains(updated.Message, "create MachineOSConfig worker") {
		t.Errorf("Updated: %+v", updated)
	}
	if status.ConfigVersion.Current != "rendered-infra-1" || status.ConfigImage.CurrentImage != image1 {
		t.Errorf("what the node runs is forgotten: %+v", status)
	}
	if got := view.annotations()[machineconfiguration.AnnotationCurrentImage]; got != image1 {
		t.Errorf("annotation %q", got)
	}
}

func TestImageFieldsAreLookedUpInTheCRD(t *testing.T) {
	fields := func(names ...string) map[string]any {
		properties := map[string]any{}
		for _, name := range names {
			properties[name] = map[string]any{"type": "object"}
		}
		return map[string]any{"properties": properties}
	}
	crd := func(version string, spec, status map[string]any) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"versions": []any{map[string]any{
			"name": version, "schema": map[string]any{"openAPIV3Schema": map[string]any{"properties": map[string]any{"spec": spec, "status": status}}},
		}}}}}
	}
	for name, test := range map[string]struct {
		crd  *unstructured.Unstructured
		want bool
	}{
		"in spec and status":      {crd("v1", fields("node", "configImage"), fields("configImage")), true},
		"in neither":              {crd("v1", fields("node"), fields("configVersion")), false},
		"in the spec alone":       {crd("v1", fields("configImage"), fields("configVersion")), false},
		"in another version":      {crd("v1alpha1", fields("configImage"), fields("configImage")), false},
		"a CRD without a version": {&unstructured.Unstructured{Object: map[string]any{}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := hasImageFields(test.crd); got != test.want {
				t.Errorf("%t, want %t", got, test.want)
			}
		})
	}
}

func TestAnnotationsMoveTwiceInAnUpdate(t *testing.T) {
	node := builders.Node("node", "worker")
	pool := builders.MachineConfigPool("worker", builders.Rendered(config2))
	rollout, image := handedOff(image1), nodeImage("node", digest1)
	image.Spec.DesiredImage, image.Status.Booted.Image = image1, image1
	var seen []string
	look := func() {
		wanted := viewOf(node, pool, image, rollout, aWorld().builds).annotations()
		text := wanted[machineconfiguration.AnnotationState] + " " + wanted[machineconfiguration.AnnotationCurrentConfig] + " to " + wanted[machineconfiguration.AnnotationDesiredConfig]
		if image := wanted[machineconfiguration.AnnotationDesiredImage]; (image == image2) != strings.HasSuffix(text, config2) {
			t.Errorf("%s beside image %s", text, image)
		}
		if len(seen) == 0 || seen[len(seen)-1] != text {
			seen = append(seen, text)
		}
		node.Annotations = wanted
	}
	for _, step := range []func(){
		func() {},
		func() { *rollout = *handedOff(image2) },
		func() { image.Spec.DesiredImage = image2 },
		func() { image.Status.Staged = &v1alpha1.HostImage{Digest: digest2} },
		func() { rollout.Status.Slots = []v1alpha1.Slot{{Node: "node", Phase: v1alpha1.SlotBooting}} },
		func() {
			image.Status.Booted, image.Status.Staged = &v1alpha1.HostImage{Image: image2, Digest: digest2}, nil
		},
		func() { rollout.Status.Slots = nil },
	} {
		step()
		look()
	}
	want := []string{
		"Done " + config1 + " to " + config1, "Working " + config1 + " to " + config2, "Done " + config2 + " to " + config2,
	}
	if diff := cmp.Diff(want, seen); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
