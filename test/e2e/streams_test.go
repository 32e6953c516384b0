//go:build e2e

package e2e

import (
	"context"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"

	"github.com/imagemode/imagemode/api/v1alpha1"
	"github.com/imagemode/imagemode/test/e2e/story"
)

// The streams of the local cluster, by age, and the pool that stays on the older
// one.
const (
	older, newer = "debian-12", "debian-13"
	pinnedPool   = "pinned"
)

// What the test declares.
const (
	streamsConfig = "50-worker-streams"
	streamsFile   = "/etc/imagemode-streams.conf"
	runcConfig    = "99-worker-runc"
	runcDropIn    = "[crio.runtime]\ndefault_runtime = \"runc\"\n"
)

// streamTest is TestStreams on its way.
type streamTest struct {
	told *story.Story
	// free is the node that follows the worker pool, pinned the one with a pool of
	// its own, at first.
	free, pinned string
	streams      map[string]mcfgv1.OSImageStreamSet
	// first is the image of the worker pool on the older stream, next that on
	// derived, an OS image that the newer stream has become.
	first, next, derived string
}

// TestStreams lets pools run two streams side by side and switches one there and
// back.
func TestStreams(t *testing.T) {
	told := begin(t)
	nodes := told.Workers.Names()
	s := &streamTest{told: told, free: nodes[0], pinned: nodes[1]}
	s.tidy(t)
	t.Cleanup(func() { s.tidy(t) })
	run(t, told, told.Reset(), told.Deploy())
	for _, step := range []struct {
		sentence string
		do       func(*testing.T)
	}{
		{"two pools run the older stream", s.testTwoPools},
		{"each stream says which container runtimes it has", s.testTraits},
		{"a pool switches its stream by one field", s.testSwitch},
		{"runc on a stream without it cannot be rendered", s.testRunc},
		{"switching back builds nothing", s.testSwitchBack},
		{"a node that leaves its pool follows the other one", s.testJoin},
		{"a stream and a payload that change together cost one build and one reboot", s.testTogether},
		{"agents that are pods bring a file by soft reboots", s.testSoftReboots},
	} {
		told.Log.Line("--- %s", step.sentence)
		if !t.Run(step.sentence, step.do) {
			t.FailNow()
		}
	}
}

// tidy takes away what a reset leaves.
func (s *streamTest) tidy(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	must(t, s.told.MoveNode(ctx, s.pinned, pinnedPool, false))
	must(t, s.told.PublishPayload(ctx, ""))
}

func (s *streamTest) image(stream string) string { return string(s.streams[stream].OSImage) }

// testTraits comes after a MachineOSConfig has named the Secret that base images
// are read with.
func (s *streamTest) testTraits(t *testing.T) {
	ctx := inTime(t)
	for _, want := range []string{`"debian-12":{"runtimes":["crun","runc"],"image":`, `"debian-13":{"runtimes":["crun"],"image":`} {
		traits, err := s.told.StreamTraits(ctx, want[1:len(older)+1])
		must(t, err)
		if !strings.Contains(traits, want) {
			t.Errorf("the streams' traits are %s, want %s", traits, want)
		}
	}
}

func (s *streamTest) testTwoPools(t *testing.T) {
	ctx := inTime(t)
	var err error
	s.streams, err = s.told.Streams(ctx, older, newer)
	must(t, err)
	must(t, s.told.MoveNode(ctx, s.pinned, pinnedPool, true))
	must(t, s.told.CreatePool(ctx, pinnedPool, older))
	must(t, s.told.ApplyFile(ctx, streamsConfig, streamsFile, s.told.Text))
	for _, pool := range []string{story.Pool, pinnedPool} {
		must(t, s.told.ApplyMachineOSConfig(ctx, pool, story.Containerfile, "push"))
	}
	for _, pool := range []string{story.Pool, pinnedPool} {
		must(t, s.told.PoolRuns(ctx, pool, 1, older, s.image(older)))
	}
	s.first = s.built(t, s.image(older))
	s.checkNode(t, s.free, older)
	s.checkNode(t, s.pinned, older)
}

func (s *streamTest) testSwitch(t *testing.T) {
	ctx := inTime(t)
	before := s.told.Workers.Reboots()
	must(t, s.told.SwitchStream(ctx, story.Pool, newer))
	build, err := s.told.PoolBuild(ctx, story.Pool, s.image(newer))
	must(t, err)
	if pods, err := s.told.PodsOf(ctx, build); err != nil || len(pods) != 1 {
		t.Errorf("builder pods %v, error %v: the image has to be built once on the new base", pods, err)
	}
	must(t, s.told.PoolRuns(ctx, story.Pool, 1, newer, s.image(newer)))
	must(t, s.told.PoolRuns(ctx, pinnedPool, 1, older, s.image(older)))
	s.checkReboots(t, before, map[string]int{s.free: 1})
	s.checkNode(t, s.free, newer)
	s.checkNode(t, s.pinned, older)
}

func (s *streamTest) testRunc(t *testing.T) {
	ctx := inTime(t)
	before := s.told.Workers.Reboots()
	// The drop-in is the other pool's, too, and may be: it is held meanwhile.
	must(t, s.told.PausePool(ctx, pinnedPool, true))
	must(t, s.told.ApplyFile(ctx, runcConfig, "/etc/crio/crio.conf.d/99-runc", runcDropIn))
	reason, message, err := s.told.RenderDegraded(ctx, story.Pool)
	must(t, err)
	for _, want := range []string{"99-runc", "runc", newer, older} {
		if !strings.Contains(message, want) {
			t.Errorf("RenderDegraded, %s, does not say %q: %s", reason, want, message)
		}
	}
	must(t, s.told.DeleteFile(ctx, runcConfig))
	must(t, s.told.PoolRuns(ctx, story.Pool, 1, newer, s.image(newer)))
	_, err = s.told.PoolBuild(ctx, pinnedPool, s.image(older))
	must(t, err)
	must(t, s.told.PausePool(ctx, pinnedPool, false))
	s.checkReboots(t, before, nil)
}

func (s *streamTest) testSwitchBack(t *testing.T) {
	ctx := inTime(t)
	before := s.told.Workers.Reboots()
	pods, err := s.told.BuilderPods(ctx, story.Pool)
	must(t, err)
	must(t, s.told.SwitchStream(ctx, story.Pool, older))
	must(t, s.told.PoolRuns(ctx, story.Pool, 1, older, s.image(older)))
	if image := s.built(t, s.image(older)); image != s.first {
		t.Errorf("the image is %s, and was %s", image, s.first)
	}
	after, err := s.told.BuilderPods(ctx, story.Pool)
	must(t, err)
	if diff := cmp.Diff(pods, after); diff != "" {
		t.Errorf("a builder was at work: %s", diff)
	}
	s.checkReboots(t, before, map[string]int{s.free: 1})
	s.checkNode(t, s.free, older)
}

// testJoin: the image of the node's former pool has the same inputs, and is another
// build in another repository. The two differ by the times in what their programs
// wrote, unless both ran in the same second: then the node has the image already.
func (s *streamTest) testJoin(t *testing.T) {
	ctx := inTime(t)
	before := s.told.Workers.Reboots()
	want := map[string]int{s.pinned: 1}
	if s.digest(t, pinnedPool) == s.digest(t, story.Pool) {
		want = nil
	}
	must(t, s.told.MoveNode(ctx, s.pinned, pinnedPool, false))
	must(t, s.told.PoolRuns(ctx, story.Pool, 2, older, s.image(older)))
	s.checkReboots(t, before, want)
}

// digest of the image that a pool has on the older stream.
func (s *streamTest) digest(t *testing.T, pool string) string {
	t.Helper()
	build, err := s.told.PoolBuild(inTime(t), pool, s.image(older))
	must(t, err)
	_, digest, _ := strings.Cut(string(build.Status.DigestedImagePushSpec), "@")
	return digest
}

// testTogether changes what the newer stream is, by a payload, whose images are
// recognised by their labels, and which stream the pool runs.
func (s *streamTest) testTogether(t *testing.T) {
	ctx := inTime(t)
	next, err := story.DeriveOSImage(ctx, s.image(newer), "13.1")
	must(t, err)
	before := s.told.Workers.Reboots()
	pods, err := s.told.BuilderPods(ctx, story.Pool)
	must(t, err)
	s.told.Workers.StartOver()
	must(t, s.told.PublishPayload(ctx, "demo-13.1", next, string(s.streams[newer].OSExtensionsImage)))
	must(t, s.told.SwitchStream(ctx, story.Pool, newer))
	must(t, s.told.PoolRuns(ctx, story.Pool, 2, newer, next))
	after, err := s.told.BuilderPods(ctx, story.Pool)
	must(t, err)
	if len(after) != len(pods)+1 {
		t.Errorf("builder pods %v, and %v before; want one more", after, pods)
	}
	s.checkReboots(t, before, map[string]int{s.free: 1, s.pinned: 1})
	if out := s.told.Workers.MaxUnavailable(); out > maxWorkersOut {
		t.Errorf("%d workers were out of service at the same time, want at most %d", out, maxWorkersOut)
	}
	s.derived, s.next = next, s.built(t, next)
	for _, node := range []string{s.free, s.pinned} {
		s.checkNode(t, node, newer)
		if booted := bootedDigest(t, s.told, node); !strings.HasSuffix(s.next, "@"+booted) {
			t.Errorf("%s has booted %s, want %s", node, booted, s.next)
		}
	}
}

// built is the image of the worker pool on an OS image.
func (s *streamTest) built(t *testing.T, osImage string) string {
	t.Helper()
	build, err := s.told.PoolBuild(inTime(t), story.Pool, osImage)
	must(t, err)
	return string(build.Status.DigestedImagePushSpec)
}

// testSoftReboots: systemd of the newer stream knows them. The agent's own pod ends
// with the userspace and comes back with it.
func (s *streamTest) testSoftReboots(t *testing.T) {
	ctx := inTime(t)
	nodes := []string{s.free, s.pinned}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		for _, node := range nodes {
			must(t, s.told.SetFaults(ctx, node, "{}"))
		}
	})
	before := map[string]v1alpha1.NodeImageStatus{}
	for _, node := range nodes {
		must(t, s.told.SetFaults(ctx, node, `{"softRebootCapable": true}`))
		reported, err := s.told.NodeImage(ctx, node)
		must(t, err)
		before[node] = reported.Status
	}
	must(t, s.told.AllowSoftReboots(ctx, story.Pool))
	must(t, s.told.ApplyFile(ctx, streamsConfig, streamsFile, "by a soft reboot\n"))
	image := s.next
	for ; image == s.next; image = s.built(t, s.derived) {
		must(t, ctx.Err())
		time.Sleep(time.Second / 2)
	}
	for _, node := range nodes {
		must(t, s.told.NodeRuns(ctx, node, story.Pool, image))
		if got := inMachine(t, s.told, node, "cat", streamsFile); got != "by a soft reboot" {
			t.Errorf("%s: %s holds %q", node, streamsFile, got)
		}
		reported, err := s.told.NodeImage(ctx, node)
		must(t, err)
		was, is := before[node], reported.Status
		if is.BootID != was.BootID || is.SoftReboots != was.SoftReboots+1 {
			t.Errorf("%s: boot %s with %d soft reboots, then %s with %d; want one soft reboot more of the same boot", node, was.BootID, was.SoftReboots, is.BootID, is.SoftReboots)
		}
	}
}

// checkNode looks at a node from the inside, and at what its kubelet reports.
func (s *streamTest) checkNode(t *testing.T, node, stream string) {
	t.Helper()
	version := strings.TrimPrefix(stream, "debian-")
	if release := inMachine(t, s.told, node, "cat", "/etc/os-release"); !strings.Contains(release, "VERSION_ID=\""+version+"\"") {
		t.Errorf("%s runs %s, want version %s", node, release, version)
	}
	if text := inMachine(t, s.told, node, "cat", streamsFile); text+"\n" != s.told.Text {
		t.Errorf("%s: %s holds %q, want %q", node, streamsFile, text, s.told.Text)
	}
	if art := inMachine(t, s.told, node, story.Program, "ok"); strings.TrimSpace(art) == "" {
		t.Errorf("%s: %s, from the extensions image, prints nothing", node, story.Program)
	}
	runtimes := map[string][]string{older: {"crun", "runc"}, newer: {"crun"}}
	must(t, s.told.HasRuntimes(inTime(t), node, runtimes[stream]...))
}

// checkReboots compares how often nodes rebooted since; those not named did not.
func (s *streamTest) checkReboots(t *testing.T, before, want map[string]int) {
	t.Helper()
	after := s.told.Workers.Reboots()
	for _, node := range slices.Sorted(maps.Keys(after)) {
		if got := after[node] - before[node]; got != want[node] {
			t.Errorf("%s rebooted %d times, want %d", node, got, want[node])
		}
	}
}
