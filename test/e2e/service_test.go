//go:build e2e

package e2e

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/imagemode/imagemode/api/v1alpha1"
	"github.com/imagemode/imagemode/registry"
	"github.com/imagemode/imagemode/test/e2e/local"
	"github.com/imagemode/imagemode/test/e2e/story"
)

// What the test of the agent as a service declares: a pool of one node.
const (
	servicePool   = "service"
	serviceConfig = "50-worker-service"
	brokenConfig  = "51-worker-broken"
	serviceFile   = "/etc/imagemode-service.conf"
	addsNothing   = "FROM configs AS final\n"
)

// serviceTest is TestService on its way.
type serviceTest struct {
	told *story.Story
	// node is the one in the pool, other another one.
	node, other string
	// osImage is the pool's OS image.
	osImage string
	// images are those of the pool, in the order in which they were built.
	images []string
}

// TestService has the agent come with the image, on a machine whose systemd knows
// soft reboots.
func TestService(t *testing.T) {
	told := begin(t)
	images, err := local.Images()
	must(t, err)
	told.ControllerArgs = []string{"--agent-image=" + images["agent"]}
	names := told.Workers.Names()
	s := &serviceTest{told: told, node: names[0], other: names[1]}
	s.tidy(t, false)
	t.Cleanup(func() { s.tidy(t, true) })
	run(t, told, told.Reset(), told.Deploy())
	part(t, "an image brings the agent, and its pod stands back", s.testFirstImage)
	part(t, "the kubelet's credential is of use for its own node only", s.testCredential)
	part(t, "the service brings the next image, by a soft reboot", s.testSoftReboot)
	part(t, "a soft reboot that does not bring the image is followed by a full one", s.testSoftRebootThatStays)
	part(t, "the service does not vouch for an image whose kubelet does not start", s.testBrokenKubelet)
}

// tidy leaves the node to the agents that are pods: it keeps its image.
func (s *serviceTest) tidy(t *testing.T, isEnd bool) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	must(t, s.told.MaskService(ctx, s.node, isEnd))
	must(t, s.told.SetFaults(ctx, s.node, "{}"))
	must(t, s.told.MoveNode(ctx, s.node, servicePool, false))
}

// build declares a file and waits for its image.
func (s *serviceTest) build(t *testing.T, text string) string {
	t.Helper()
	ctx := inTime(t)
	must(t, s.told.ApplyFile(ctx, serviceConfig, serviceFile, text))
	must(t, s.told.ApplyMachineOSConfig(ctx, servicePool, addsNothing, "push"))
	return s.nextImage(t)
}

// nextImage waits for an image of the pool that is not known yet.
func (s *serviceTest) nextImage(t *testing.T) string {
	t.Helper()
	ctx := inTime(t)
	var image string
	for image == "" || slices.Contains(s.images, image) {
		must(t, ctx.Err())
		time.Sleep(time.Second / 2)
		build, err := s.told.PoolBuild(ctx, servicePool, s.osImage)
		must(t, err)
		image = string(build.Status.DigestedImagePushSpec)
	}
	s.images = append(s.images, image)
	return image
}

// awaitImage waits until the node runs the image, in service, and its pool says so.
func (s *serviceTest) awaitImage(t *testing.T, image, text string) *v1alpha1.NodeImage {
	t.Helper()
	ctx := inTime(t)
	must(t, s.told.NodeRuns(ctx, s.node, servicePool, image))
	if got := inMachine(t, s.told, s.node, "cat", serviceFile); got+"\n" != text {
		t.Errorf("%s holds %q, want %q", serviceFile, got, text)
	}
	if booted := bootedDigest(t, s.told, s.node); !strings.HasSuffix(image, "@"+booted) {
		t.Errorf("%s has booted %s, want %s", s.node, booted, image)
	}
	reported, err := s.told.NodeImage(ctx, s.node)
	must(t, err)
	if last := reported.Status.LastAttempt; last != nil && last.Class != "" {
		t.Errorf("last attempt %+v, want none that failed", last)
	}
	return reported
}

func (s *serviceTest) testFirstImage(t *testing.T) {
	ctx := inTime(t)
	streams, err := s.told.Streams(ctx, newer)
	must(t, err)
	s.osImage = string(streams[newer].OSImage)
	must(t, s.told.AllowService(ctx))
	must(t, s.told.MoveNode(ctx, s.node, servicePool, true))
	must(t, s.told.CreatePool(ctx, servicePool, newer))
	image := s.build(t, "first\n")
	s.awaitImage(t, image, "first\n")
	if got := inMachine(t, s.told, s.node, "systemctl", "is-active", story.AgentUnit); got != "active" {
		t.Errorf("%s is %s", story.AgentUnit, got)
	}
	must(t, s.told.AgentStandsBack(ctx, s.node))
	must(t, s.told.RemoveAgents(ctx))
}

func (s *serviceTest) testCredential(t *testing.T) {
	ctx := inTime(t)
	// The other node has a NodeImage that asks for nothing.
	must(t, s.told.ApplyRollout(ctx, s.images[0], func(spec *v1alpha1.ImageRolloutSpec) {
		spec.Paused, spec.NodeSelector = true, &metav1.LabelSelector{MatchLabels: map[string]string{"kubernetes.io/hostname": s.other}}
	}))
	_, err := s.told.AwaitNode(ctx, s.other, "to have a NodeImage", func(*v1alpha1.NodeImage) bool { return true })
	must(t, err)
	kubelet, err := s.told.KubeletClient(ctx, s.node)
	must(t, err)
	powers{kubelet, s.node, s.other, servicePool}.check(t)
}

// testSoftReboot: no pod of an agent is there any more. Of the agent's layer
// nothing is built, sent or downloaded again.
func (s *serviceTest) testSoftReboot(t *testing.T) {
	ctx := inTime(t)
	must(t, s.told.SetFaults(ctx, s.node, `{"softRebootCapable": true}`))
	must(t, s.told.AllowSoftReboots(ctx, servicePool))
	before, err := s.told.NodeImage(ctx, s.node)
	must(t, err)
	image := s.build(t, "second\n")
	if first, second := s.agentLayer(t, s.images[0]), s.agentLayer(t, image); first != second {
		t.Errorf("the agent's layer is %s, and was %s", second, first)
	}
	after := s.awaitImage(t, image, "second\n")
	if after.Status.BootID != before.Status.BootID || after.Status.SoftReboots != before.Status.SoftReboots+1 {
		t.Errorf("boot %s with %d soft reboots, then %s with %d; want one soft reboot more of the same boot",
			before.Status.BootID, before.Status.SoftReboots, after.Status.BootID, after.Status.SoftReboots)
	}
	if kernel := inMachine(t, s.told, s.node, "cat", "/proc/sys/kernel/random/boot_id"); kernel != after.Status.BootID {
		t.Errorf("the kernel's boot is %s, reported is %s", kernel, after.Status.BootID)
	}
	if count := inMachine(t, s.told, s.node, "systemctl", "show", "--property=SoftRebootsCount"); count != "SoftRebootsCount=1" {
		t.Errorf("systemd says %s", count)
	}
}

// agentLayer is the last one of an image.
func (s *serviceTest) agentLayer(t *testing.T, image string) string {
	t.Helper()
	access := registry.Access{AuthFile: local.AuthFile("push"), TrustBundle: local.CAFile}
	found, err := registry.Inspect(inTime(t), access, image)
	must(t, err)
	return found.Layers[len(found.Layers)-1].Digest.String()
}

func (s *serviceTest) testSoftRebootThatStays(t *testing.T) {
	ctx := inTime(t)
	must(t, s.told.SetFaults(ctx, s.node, `{"softRebootCapable": true, "softRebootStays": true}`))
	before, err := s.told.NodeImage(ctx, s.node)
	must(t, err)
	reboots := s.told.Workers.Reboots()[s.node]
	image := s.build(t, "third\n")
	_, err = s.told.AwaitNode(ctx, s.node, "to have soft-rebooted", func(node *v1alpha1.NodeImage) bool {
		return node.Status.SoftReboots == before.Status.SoftReboots+1 && node.Status.BootID == before.Status.BootID
	})
	must(t, err)
	after := s.awaitImage(t, image, "third\n")
	if after.Status.BootID == before.Status.BootID || after.Status.SoftReboots != 0 {
		t.Errorf("boot %s with %d soft reboots, then %s with %d; want another boot",
			before.Status.BootID, before.Status.SoftReboots, after.Status.BootID, after.Status.SoftReboots)
	}
	if got := s.told.Workers.Reboots()[s.node] - reboots; got != 1 {
		t.Errorf("%s rebooted %d times, want once", s.node, got)
	}
}

// testBrokenKubelet: the service is up and reaches the API server, where a pod would
// not be. The node goes back all the same.
func (s *serviceTest) testBrokenKubelet(t *testing.T) {
	ctx := inTime(t)
	must(t, s.told.SetFaults(ctx, s.node, "{}"))
	must(t, s.told.GiveUpAfter(ctx, servicePool, shortDeadline))
	good := s.images[len(s.images)-1]
	must(t, s.told.ApplyFile(ctx, brokenConfig, "/etc/systemd/system/kubelet.service.d/50-broken.conf", brokenKubelet))
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		must(t, s.told.DeleteFile(ctx, brokenConfig))
	})
	broken := s.nextImage(t)
	node, err := s.told.AwaitNode(ctx, s.node, "to have gone back", func(node *v1alpha1.NodeImage) bool {
		return story.Runs(good)(node) && slices.ContainsFunc(node.Status.FailedImages, func(failed v1alpha1.Attempt) bool {
			return failed.Image == broken && failed.Class == v1alpha1.FailureRolledBack
		})
	})
	must(t, err)
	t.Logf("the node says: %s", node.Status.LastAttempt.Message)
	must(t, s.told.AwaitService(ctx, s.node))
}
