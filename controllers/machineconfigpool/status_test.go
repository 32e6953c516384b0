package machineconfigpool

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/imagemode/imagemode/api/machineconfiguration"
	"github.com/imagemode/imagemode/api/v1alpha1"
	"github.com/imagemode/imagemode/test/builders"
)

func TestUpdatingSaysWhatThePoolWaitsFor(t *testing.T) {
	inState := func(state mcfgv1.BuildProgress) *world {
		w := aWorld()
		w.osConfig = osConfig(false, image1)
		w.builds[1] = build("worker-2", config2, state, "")
		return w
	}
	noBuild := aWorld()
	noBuild.osConfig, noBuild.builds = osConfig(false, image1), noBuild.builds[:1]
	invalid := aWorld()
	invalid.builds = invalid.builds[:1]
	invalid.osConfig = osConfig(false, "", metav1.Condition{Type: machineconfiguration.ConditionValid, Status: metav1.ConditionFalse, Message: `Secret "push" does not exist`, ObservedGeneration: 3})
	afterEdit := aWorld()
	afterEdit.osConfig = edited(afterEdit.osConfig)
	unreadable := aWorld()
	unreadable.osConfig = osConfig(false, image2)
	unreadable.osConfig.Status.Conditions[0].Message = "the node pull secret is refused"
	none := aWorld()
	none.osConfig = nil
	stuck := aWorld().booted(digest2, "n1")
	stuck.images["n2"].Status.LastAttempt = &v1alpha1.Attempt{Image: image2, Class: v1alpha1.FailureDiskFull, Permanent: true, Message: "no space left"}

	for name, tc := range map[string]struct {
		world                    *world
		status, message          string
		pausedStatus, pausedText string
	}{
		"no build yet":                        {noBuild, "True", "Pool is waiting for a new OS image build to start (mosc: worker)", "False", "Pool is paused; waiting for a new OS image build to start (mosc: worker)"},
		"a MachineOSConfig that is not valid": {invalid, "True", `Pool is waiting for a new OS image build to start (mosc: worker): Secret "push" does not exist`, "False", `Pool is paused; waiting for a new OS image build to start (mosc: worker): Secret "push" does not exist`},
		"an edit nobody has judged":           {afterEdit, "True", "Pool is waiting for a new OS image build to start (mosc: worker)", "False", "Pool is paused; waiting for a new OS image build to start (mosc: worker)"},
		"a build that has not begun":          {inState(""), "True", "Pool is waiting for OS image build to start (mosb: worker-2)", "False", "Pool is paused; OS image build created but not yet started"},
		"a build that is prepared":            {inState(mcfgv1.MachineOSBuildPrepared), "True", "Pool is waiting for OS image build to start (mosb: worker-2)", "False", "Pool is paused; OS image build has been prepared but will not rollout"},
		"a build that runs":                   {inState(mcfgv1.MachineOSBuilding), "True", "Pool is waiting for OS image build to complete (mosb: worker-2)", "False", "Pool is paused; OS image build in progress"},
		"a build that failed":                 {inState(mcfgv1.MachineOSBuildFailed), "False", "Pool update stopped due to OS image build failure (mosb: worker-2)", "False", "Pool is paused; OS image build failed"},
		"a build that was interrupted":        {inState(mcfgv1.MachineOSBuildInterrupted), "False", "Pool update stopped due to OS image build being interrupted (mosb: worker-2)", "False", "Pool is paused; OS image build was interrupted"},
		"an image that nodes cannot pull":     {unreadable, "True", "Pool is waiting for the OS image to be ready for the nodes (mosb: worker-2): the node pull secret is refused", "False", "Pool is paused; OS image build completed successfully"},
		"nodes that have it before them":      {aWorld(), "True", "Pool is waiting for nodes to apply OS image (mosb: worker-2)", "False", "Pool is paused; OS image build completed successfully"},
		"one node of two":                     {aWorld().booted(digest2, "n1"), "True", "Pool is waiting for nodes to apply OS image (mosb: worker-2)", "False", "Pool is paused; OS image build completed successfully"},
		"nothing moves but failures":          {stuck, "False", "Pool update paused due to degraded condition", "False", "Pool is paused; OS image build completed successfully"},
		"all nodes have it":                   {aWorld().booted(digest2, "n1", "n2"), "False", "", "False", ""},
		"no MachineOSConfig":                  {none, "False", "No MachineOSConfig asks for an OS image of this pool", "False", "No MachineOSConfig asks for an OS image of this pool"},
	} {
		t.Run(name, func(t *testing.T) {
			status, message := condition(tc.world.status(), mcfgv1.MachineConfigPoolUpdating)
			if diff := cmp.Diff([]string{tc.status, tc.message}, []string{status, message}); diff != "" {
				t.Error(diff)
			}
			tc.world.pool.Spec.Paused = true
			status, message = condition(tc.world.status(), mcfgv1.MachineConfigPoolUpdating)
			if diff := cmp.Diff([]string{tc.pausedStatus, tc.pausedText}, []string{status, message}); diff != "" {
				t.Errorf("paused: %s", diff)
			}
		})
	}
}

// rejects is the rollout's status after its image was rejected.
func (w *world) rejects(change func(*v1alpha1.ImageRollout)) *world {
	w.rollout.Status.Rejected = []v1alpha1.RejectedImage{{Digest: digest2, Reason: "it failed on n1 (RolledBack)", Nodes: 1}}
	w.rollout.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionProgressing, Status: metav1.ConditionFalse, Reason: "ImageRejected"}}
	if change != nil {
		change(w.rollout)
	}
	return w
}

func TestARejectedImageIsWaitedForNoMore(t *testing.T) {
	const says = "OS image is rejected (mosb: worker-2): it failed on n1 (RolledBack); no further node gets it: change the configuration so that another image is built, " +
		"or set another spec.retryToken of ImageRollout worker to try this one again"
	failed := aWorld()
	failed.fail("n1", v1alpha1.FailureDiskFull, true, 1)
	allFailed := aWorld()
	allFailed.fail("n1", v1alpha1.FailureDiskFull, true, 1)
	allFailed.fail("n2", v1alpha1.FailureDiskFull, true, 1)
	building := aWorld()
	building.osConfig = osConfig(false, image1)
	building.builds[1] = build("worker-2", config2, mcfgv1.MachineOSBuilding, "")
	progressing := func(status metav1.ConditionStatus, reason string) func(*v1alpha1.ImageRollout) {
		return func(r *v1alpha1.ImageRollout) {
			r.Status.Conditions[0].Status, r.Status.Conditions[0].Reason = status, reason
		}
	}
	for name, tc := range map[string]struct {
		world      *world
		want       string // the reason
		isRejected bool
	}{
		"one node failed":                     {failed.rejects(nil), "ImageRejected", true},
		"every node failed":                   {allFailed.rejects(nil), "ImageRejected", true},
		"a mistake in the rollout hides it":   {aWorld().rejects(progressing("False", "InvalidWindow")), "ImageRejected", true},
		"others are on their way":             {aWorld().rejects(progressing("True", "Updating")), "NodesUpdating", false},
		"all nodes run it, and one is away":   {aWorld().rejects(progressing("False", "Updated")), "NodesUpdating", false},
		"another token tries it again":        {aWorld().rejects(func(r *v1alpha1.ImageRollout) { r.Spec.RetryToken = "again" }), "NodesUpdating", false},
		"it was another image":                {aWorld().rejects(func(r *v1alpha1.ImageRollout) { r.Status.Rejected[0].Digest = digest1 }), "NodesUpdating", false},
		"the rollout does not have it yet":    {aWorld().rejects(func(r *v1alpha1.ImageRollout) { r.Spec.Image = image1 }), "NodesUpdating", false},
		"the next image is being built":       {building.rejects(nil), "Building", false},
		"the rollout has said nothing of it":  {aWorld().rejects(func(r *v1alpha1.ImageRollout) { r.Status.Conditions = nil }), "NodesUpdating", false},
		"nothing is left to give to any node": {aWorld().booted(digest2, "n1", "n2").rejects(nil), "AllNodesUpdated", false},
	} {
		t.Run(name, func(t *testing.T) {
			got := *findCondition(tc.world.status().Conditions, mcfgv1.MachineConfigPoolUpdating)
			wantStatus := map[bool]corev1.ConditionStatus{true: "True", false: "False"}[tc.want == "NodesUpdating" || tc.want == "Building"]
			if got.Reason != tc.want || got.Status != wantStatus || tc.isRejected && got.Message != "Pool update stopped: "+says {
				t.Errorf("%s %s: %s", got.Status, got.Reason, got.Message)
			}
			tc.world.pool.Spec.Paused = true
			got = *findCondition(tc.world.status().Conditions, mcfgv1.MachineConfigPoolUpdating)
			if got.Status != "False" || (got.Message == "Pool is paused; "+says) != tc.isRejected {
				t.Errorf("paused: %s %s: %s", got.Status, got.Reason, got.Message)
			}
		})
	}
	status := failed.status()
	if degraded, message := condition(status, mcfgv1.MachineConfigPoolNodeDegraded); degraded != "True" || !strings.Contains(message, "Node n1") {
		t.Errorf("NodeDegraded is %s: %s", degraded, message)
	}
	failed.pool.Status = status
	if diff := cmp.Diff(status, failed.status()); diff != "" {
		t.Errorf("the same facts give another status: %s", diff)
	}
	long := aWorld().rejects(func(r *v1alpha1.ImageRollout) { r.Status.Rejected[0].Reason = strings.Repeat("é", maxQuoted) })
	if _, message := condition(long.status(), mcfgv1.MachineConfigPoolUpdating); len(message) > maxQuoted+len(says) || !strings.HasSuffix(message, "try this one again") {
		t.Errorf("%d bytes: %s", len(message), message)
	}
}

// leave deletes the MachineOSConfig; its last build is the rollout's.
func (w *world) leave() {
	w.osConfig, w.rollout.UID = nil, "rollout"
	w.builds[1].OwnerReferences = ownedBy("rollout")
}

func TestNodesOnTheirWayAreNamed(t *testing.T) {
	const waits = "waits for default/bare (no controller would replace it)"
	onTheWay := func(w *world) {
		w.rollout.Status.Slots = []v1alpha1.Slot{{Node: "n2", Phase: v1alpha1.SlotDraining, Message: waits}}
	}
	for name, change := range map[string]func(*world){
		"while the pool updates": func(*world) {},
		"under pause":            func(w *world) { w.pool.Spec.Paused = true },
		"when all others are degraded": func(w *world) {
			w.fail("n1", v1alpha1.FailureDiskFull, true, 1)
			w.fail("n2", v1alpha1.FailureDiskFull, true, 1)
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := aWorld()
			onTheWay(w)
			change(w)
			status, message := condition(w.status(), mcfgv1.MachineConfigPoolUpdating)
			if !strings.Contains(message, "node n2 is on its way (draining): "+waits) {
				t.Errorf("%s: %s", status, message)
			}
			if want := map[bool]string{true: "False", false: "True"}[w.pool.Spec.Paused]; status != want {
				t.Errorf("Updating is %s, want %s", status, want)
			}
		})
	}
}

func TestUpdatedIsTrueOnlyForWhatNodesRun(t *testing.T) {
	done := func(change func(*world)) *world {
		w := aWorld().booted(digest2, "n1", "n2")
		change(w)
		return w
	}
	for name, tc := range map[string]struct {
		world *world
		want  string
	}{
		"every node runs the image":              {done(func(*world) {}), "True"},
		"under pause, too":                       {done(func(w *world) { w.pool.Spec.Paused = true }), "True"},
		"a pool without nodes, image Ready":      {done(func(w *world) { w.nodes = nil }), "True"},
		"a pool without nodes, no image":         {done(func(w *world) { w.nodes, w.osConfig = nil, nil }), "False"},
		"one node runs the old one":              {aWorld().booted(digest2, "n1"), "False"},
		"a node is not Ready":                    {done(func(w *world) { builders.NotReady(w.nodes[0]) }), "False"},
		"a node is cordoned":                     {done(func(w *world) { builders.Cordoned(w.nodes[0]) }), "False"},
		"a node still has its slot":              {done(func(w *world) { w.rollout.Status.Slots = []v1alpha1.Slot{{Node: "n1"}} }), "False"},
		"a node has no NodeImage":                {done(func(w *world) { delete(w.images, "n1") }), "False"},
		"a node has not reported":                {done(func(w *world) { w.images["n1"].Status.Booted = nil }), "False"},
		"the pool never had an image":            {done(func(w *world) { w.osConfig, w.builds = nil, nil }), "False"},
		"the pool wants a new config":            {done(func(w *world) { w.pool.Spec.Configuration.Name = "rendered-worker-3" }), "False"},
		"the MachineOSConfig was edited":         {done(func(w *world) { edited(w.osConfig) }), "False"},
		"the MachineOSConfig is being deleted":   {done(func(w *world) { w.osConfig.DeletionTimestamp = &later; edited(w.osConfig) }), "False"},
		"the image that a deleted one left":      {done(func(w *world) { w.leave() }), "True"},
		"a config that came after it":            {done(func(w *world) { w.leave(); w.pool.Spec.Configuration.Name = "rendered-worker-3" }), "False"},
		"the config cannot be rendered":          {done(func(w *world) { w.err = &renderError{"X", "x"} }), "False"},
		"a build of another owner has it":        {done(func(w *world) { w.builds[1].OwnerReferences = ownedBy("other") }), "False"},
		"the same image serves both configs":     {done(func(w *world) { w.builds[0].Status.DigestedImagePushSpec = image2 }), "True"},
		"a rebuild of the same config runs":      {done(func(w *world) { rebuild(w, mcfgv1.MachineOSBuilding) }), "False"},
		"an image of that digest, never current": {done(func(w *world) { w.osConfig.Status.CurrentImagePullSpec = image1 }), "False"},
	} {
		t.Run(name, func(t *testing.T) {
			status := tc.world.status()
			got, message := condition(status, mcfgv1.MachineConfigPoolUpdated)
			if got != tc.want {
				t.Errorf("Updated = %s (%s), want %s", got, message, tc.want)
			}
			if isSet := status.Configuration.Name != ""; isSet != (tc.want == "True") {
				t.Errorf("status.configuration = %q", status.Configuration.Name)
			}
		})
	}
}

func ownedBy(uid string) []metav1.OwnerReference {
	return []metav1.OwnerReference{{Kind: "MachineOSConfig", Name: "worker", UID: types.UID(uid), Controller: new(true)}}
}

// rebuild adds a second build of config 2 that the MachineOSConfig names as current.
func rebuild(w *world, state mcfgv1.BuildProgress) {
	w.osConfig.Annotations = map[string]string{machineconfiguration.AnnotationCurrentMachineOSBuild: "worker-0"}
	w.builds = append(w.builds, build("worker-0", config2, state, ""))
}

func TestCounts(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*world)
		want   counts
	}{
		"nothing is done yet":            {func(*world) {}, counts{total: 2}},
		"one node is done":               {func(w *world) { w.booted(digest2, "n1") }, counts{total: 2, updated: 1, ready: 1}},
		"a node in its slot":             {func(w *world) { w.booted(digest2, "n1"); w.rollout.Status.Slots = []v1alpha1.Slot{{Node: "n1"}} }, counts{total: 2, updated: 1, ready: 1, unavailable: 1}},
		"a node done and cordoned":       {func(w *world) { w.booted(digest2, "n1"); builders.Cordoned(w.nodes[0]) }, counts{total: 2, updated: 1, unavailable: 1}},
		"a node that is not Ready":       {func(w *world) { builders.NotReady(w.nodes[1]) }, counts{total: 2, unavailable: 1}},
		"a failure that may pass":        {func(w *world) { w.fail("n1", v1alpha1.FailureRegistry, false, 2) }, counts{total: 2}},
		"the third time in a row":        {func(w *world) { w.fail("n1", v1alpha1.FailureRegistry, false, 3) }, counts{total: 2, degraded: 1}},
		"a failure that stays":           {func(w *world) { w.fail("n1", v1alpha1.FailureDiskFull, true, 1) }, counts{total: 2, degraded: 1}},
		"a failure of an older image":    {func(w *world) { w.fail("n1", v1alpha1.FailureDiskFull, true, 1); w.rollout.Spec.Image = image1 }, counts{total: 2}},
		"a host that cannot be managed":  {func(w *world) { w.unmanageable("n1") }, counts{total: 2, degraded: 1}},
		"the same, but nothing is asked": {func(w *world) { w.unmanageable("n1"); w.rollout = nil }, counts{total: 2}},
		"pending work under pause":       {func(w *world) { w.pool.Spec.Paused = true }, counts{total: 2}},
	} {
		t.Run(name, func(t *testing.T) {
			w := aWorld()
			tc.change(w)
			status := w.status()
			got := counts{status.MachineCount, status.UpdatedMachineCount, status.ReadyMachineCount, status.UnavailableMachineCount, status.DegradedMachineCount}
			if diff := cmp.Diff(tc.want, got, cmp.AllowUnexported(counts{})); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestDegraded(t *testing.T) {
	failedBuild := metav1.Condition{Type: machineconfiguration.ConditionImageBuildDegraded, Status: metav1.ConditionTrue, Reason: "BuildFailed", Message: "Failed to build OS image for pool worker"}
	for name, tc := range map[string]struct {
		change  func(*world)
		kind    mcfgv1.MachineConfigPoolConditionType
		message string
		sum     string
	}{
		"a config that cannot be rendered": {func(w *world) { w.err = &renderError{reasonInvalidConfig, "MachineConfig 50-x: bad"} },
			mcfgv1.MachineConfigPoolRenderDegraded, "Failed to render configuration for pool worker: MachineConfig 50-x: bad", "MachineConfig 50-x: bad"},
		"a build that failed": {func(w *world) { w.osConfig = osConfig(false, image1, failedBuild) },
			mcfgv1.MachineConfigPoolImageBuildDegraded, "Failed to build OS image for pool worker", "Custom OS image build failed"},
		"a node that fails": {func(w *world) { w.fail("n2", v1alpha1.FailureDiskFull, true, 1) },
			mcfgv1.MachineConfigPoolNodeDegraded, `Node n2 is reporting: "DiskFull: it failed"`, "n2"},
		"a node in two pools": {func(w *world) { w.contests = []contest{{"n9", []string{"gpu", "infra"}}} },
			mcfgv1.MachineConfigPoolNodeDegraded, "Node n9 is selected by the custom pools gpu and infra", "n9"},
	} {
		t.Run(name, func(t *testing.T) {
			w := aWorld()
			tc.change(w)
			status := w.status()
			got, message := condition(status, tc.kind)
			if got != "True" || !strings.Contains(message, tc.message) {
				t.Errorf("%s = %s %q, want True %q", tc.kind, got, message, tc.message)
			}
			got, message = condition(status, mcfgv1.MachineConfigPoolDegraded)
			if got != "True" || !strings.Contains(message, tc.sum) {
				t.Errorf("Degraded = %s %q, want True %q", got, message, tc.sum)
			}
		})
	}
	healthy := aWorld().status()
	for _, kind := range []mcfgv1.MachineConfigPoolConditionType{mcfgv1.MachineConfigPoolDegraded, mcfgv1.MachineConfigPoolNodeDegraded, mcfgv1.MachineConfigPoolRenderDegraded, mcfgv1.MachineConfigPoolImageBuildDegraded} {
		if got, message := condition(healthy, kind); got != "False" {
			t.Errorf("%s of a healthy pool = %s %q", kind, got, message)
		}
	}
}

func TestManyFailingNodesMakeABoundedMessage(t *testing.T) {
	w := aWorld()
	for i := range 500 {
		name := "node-" + strings.Repeat("x", 100) + string(rune('a'+i%26))
		w.nodes = append(w.nodes, builders.Node(name, "worker"))
		w.images[name] = nodeImage(name, digest1)
		w.fail(name, v1alpha1.FailureRegistry, true, 1)
		w.images[name].Status.LastAttempt.Message = strings.Repeat("ü", 500)
	}
	_, message := condition(w.status(), mcfgv1.MachineConfigPoolNodeDegraded)
	if len(message) > maxMessage {
		t.Errorf("the message has %d bytes", len(message))
	}
}

func TestStreamIsShownOnceTheNodesRunIt(t *testing.T) {
	running := func(change func(*world)) *world {
		w := aWorld().booted(digest2, "n1", "n2")
		w.streams = streamsObject()
		w.rendered = &rendered{name: config2, spec: mcfgv1.MachineConfigSpec{OSImageURL: baseImage}}
		change(w)
		return w
	}
	alias := func(w *world) {
		w.streams.Status.AvailableStreams[1].OSImage = baseImage
		w.pool.Spec.OSImageStream.Name = "debian-13"
	}
	for name, tc := range map[string]struct {
		world *world
		want  string
	}{
		"updated":                          {running(func(*world) {}), "debian-12"},
		"not while nodes are on their way": {running(func(w *world) { w.booted(digest1, "n1") }), ""},
		"not when degraded":                {running(func(w *world) { w.contests = []contest{{"n9", []string{"a", "b"}}} }), ""},
		"not when a MachineConfig overrides": {running(func(w *world) {
			w.rendered.sources = []*mcfgv1.MachineConfig{builders.MachineConfig("50-x", "worker", builders.OSImageURL(baseImage))}
		}), ""},
		"not for an image of no stream": {running(func(w *world) { w.rendered.spec.OSImageURL = image1 }), ""},
		"not without the stream object": {running(func(w *world) { w.streams = nil }), ""},
		"the pool's own of two alike":   {running(alias), "debian-13"},
		"another stream than the default": {running(func(w *world) {
			w.pool.Spec.OSImageStream.Name = "debian-13"
			w.streams.Status.AvailableStreams[1].OSImage = image2
			w.rendered.spec.OSImageURL = image2
		}), "debian-13"},
		"not for a config without an image": {running(func(w *world) { w.rendered.spec.OSImageURL = "" }), ""},
		"a controller's MachineConfig with the image is no override": {running(func(w *world) {
			w.rendered.sources = []*mcfgv1.MachineConfig{generated(builders.MachineConfig("00-x", "worker", builders.OSImageURL(baseImage)))}
		}), "debian-12"},
		"not when the config cannot be rendered": {running(func(w *world) { w.rendered, w.err = nil, &renderError{reasonInvalidConfig, "x"} }), ""},
	} {
		t.Run(name, func(t *testing.T) {
			if got := tc.world.status().OSImageStream.Name; got != tc.want {
				t.Errorf("status.osImageStream.name = %q, want %q", got, tc.want)
			}
		})
	}
}

func TestStatusIsTheSameForTheSameFacts(t *testing.T) {
	w := aWorld()
	w.pool.Generation = 7
	foreign := mcfgv1.MachineConfigPoolCondition{Type: mcfgv1.MachineConfigPoolPinnedImageSetsDegraded, Status: corev1.ConditionFalse, LastTransitionTime: earlier}
	w.pool.Status.Conditions = []mcfgv1.MachineConfigPoolCondition{foreign, {Type: mcfgv1.MachineConfigPoolUpdated, Status: corev1.ConditionFalse, LastTransitionTime: earlier}}
	first := w.status()
	if first.ObservedGeneration != 7 {
		t.Errorf("observedGeneration = %d", first.ObservedGeneration)
	}
	if got := findCondition(first.Conditions, mcfgv1.MachineConfigPoolUpdated).LastTransitionTime; !got.Equal(&earlier) {
		t.Errorf("a condition that stayed changed its time to %v", got)
	}
	if got := findCondition(first.Conditions, mcfgv1.MachineConfigPoolUpdating).LastTransitionTime; !got.Equal(&later) {
		t.Errorf("a new condition has the time %v", got)
	}
	if findCondition(first.Conditions, mcfgv1.MachineConfigPoolPinnedImageSetsDegraded) == nil {
		t.Error("a condition of somebody else is gone")
	}
	w.pool.Status = first
	if diff := cmp.Diff(first, w.status()); diff != "" {
		t.Error(diff)
	}
}

func TestAPoolWhoseConfigChangesIsNotUpdated(t *testing.T) {
	for name, tc := range map[string]struct {
		isPaused         bool
		updating, reason string
	}{
		"it waits for more changes":   {false, "True", "ConfigChanges"},
		"under pause nothing updates": {true, "False", "Paused"},
	} {
		t.Run(name, func(t *testing.T) {
			w := aWorld().booted(digest2, "n1", "n2")
			w.pool.Spec.Paused = tc.isPaused
			s := &scope{pool: w.pool, osConfig: w.osConfig, builds: w.builds, members: w.nodes, images: w.images, rollout: w.rollout}
			observed := s.observe(nil, nil, s.target(), later)
			if got, _ := condition(computeStatus(observed), mcfgv1.MachineConfigPoolUpdated); got != "True" {
				t.Fatalf("before the change Updated is %s", got)
			}
			observed.isUnsettled = true
			status := computeStatus(observed)
			if got, message := condition(status, mcfgv1.MachineConfigPoolUpdated); got != "False" {
				t.Errorf("Updated is %s: %s", got, message)
			}
			updating := findCondition(status.Conditions, mcfgv1.MachineConfigPoolUpdating)
			if string(updating.Status) != tc.updating || updating.Reason != tc.reason {
				t.Errorf("Updating is %+v", updating)
			}
		})
	}
}
