package machineconfigpool

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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
		"it is drained":                       {booted(digest1, staged), v1alpha1.SlotDraining, true, []string{"UpdatePrepared", "AppliedFilesAndOS", "Cordoned"}, "Working"},
		"it is to boot":                       {booted(digest1, staged), v1alpha1.SlotBooting, true, []string{"UpdatePrepared", "UpdateExecuted", "AppliedFilesAndOS", "Cordoned", "Drained"}, "Working"},
		"it has booted":                       {booted(digest2), v1alpha1.SlotBooting, true, []string{"UpdatePrepared", "UpdateExecuted", "AppliedFilesAndOS", "Cordoned", "Drained", "UpdatePostActionComplete", "RebootedNode"}, "Working"},
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
	first := view.status(mcfgv1.MachineConfigNodeStatus{}, 1, true, earlier)
	second := view.status(first, 1, true, later)
	if diff := cmp.Diff(first, second); diff != "" {
		t.Errorf("without any change (-first +second):\n%s", diff)
	}
	view.current.config = ""
	if unknown := view.status(first, 1, true, later); unknown.ConfigVersion != nil {
		t.Errorf("an empty name is shown: %+v", unknown.ConfigVersion)
	}
	if without := view.status(first, 1, false, later); without.ConfigImage != (mcfgv1.MachineConfigNodeStatusConfigImage{}) {
		t.Errorf("images are shown to an API that has no field for them: %+v", without.ConfigImage)
	}
}
