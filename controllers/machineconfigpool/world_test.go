package machineconfigpool

import (
	"time"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/imagemode/imagemode/api/machineconfiguration"
	"github.com/imagemode/imagemode/api/v1alpha1"
	"github.com/imagemode/imagemode/test/builders"
)

const (
	config1 = "rendered-worker-1"
	config2 = "rendered-worker-2"
	digest1 = "sha256:1111111111111111111111111111111111111111111111111111111111111111"
	digest2 = "sha256:2222222222222222222222222222222222222222222222222222222222222222"
	image1  = "registry.example.com/os/worker@" + digest1
	image2  = "registry.example.com/os/worker@" + digest2
)

var (
	earlier = metav1.NewTime(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	later   = metav1.NewTime(time.Date(2026, 1, 1, 0, 5, 0, 0, time.UTC))
)

// build is a MachineOSBuild of pool worker in one state.
func build(name, config string, state mcfgv1.BuildProgress, image string) mcfgv1.MachineOSBuild {
	build := mcfgv1.MachineOSBuild{
		ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: earlier},
		Spec: mcfgv1.MachineOSBuildSpec{
			MachineConfig:   mcfgv1.MachineConfigReference{Name: config},
			MachineOSConfig: mcfgv1.MachineOSConfigReference{Name: "worker"},
		},
		Status: mcfgv1.MachineOSBuildStatus{DigestedImagePushSpec: mcfgv1.ImageDigestFormat(image)},
	}
	if state != "" {
		build.Status.Conditions = []metav1.Condition{{Type: string(state), Status: metav1.ConditionTrue}}
	}
	return build
}

// osConfig is the MachineOSConfig of pool worker, judged at its generation.
func osConfig(isReady bool, image string, conditions ...metav1.Condition) *mcfgv1.MachineOSConfig {
	config := builders.MachineOSConfig("worker")
	config.Generation = 3
	status := metav1.ConditionFalse
	if isReady {
		status = metav1.ConditionTrue
	}
	config.Status.CurrentImagePullSpec = mcfgv1.ImageDigestFormat(image)
	config.Status.Conditions = append(conditions, metav1.Condition{
		Type: machineconfiguration.ConditionReady, Status: status, ObservedGeneration: config.Generation,
	})
	return config
}

// edited is the same after an edit that nobody has judged yet.
func edited(config *mcfgv1.MachineOSConfig) *mcfgv1.MachineOSConfig {
	config.Generation++
	return config
}

func nodeImage(name, digest string) *v1alpha1.NodeImage {
	return &v1alpha1.NodeImage{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       v1alpha1.NodeImageSpec{Rollout: "worker", Phase: v1alpha1.PhaseIdle},
		Status:     v1alpha1.NodeImageStatus{Booted: &v1alpha1.HostImage{Digest: digest}},
	}
}

// world is a pool with two nodes and what surrounds it.
type world struct {
	pool     *mcfgv1.MachineConfigPool
	osConfig *mcfgv1.MachineOSConfig
	builds   []mcfgv1.MachineOSBuild
	nodes    []*corev1.Node
	images   map[string]*v1alpha1.NodeImage
	rollout  *v1alpha1.ImageRollout
	err      error
	contests []contest
	streams  *mcfgv1.OSImageStream
	rendered *rendered
}

// aWorld has a pool whose rendered config 2 is built and Ready, whose nodes
// still run config 1.
func aWorld() *world {
	return &world{
		pool:     builders.MachineConfigPool("worker", builders.Rendered(config2)),
		osConfig: osConfig(true, image2),
		builds:   []mcfgv1.MachineOSBuild{build("worker-1", config1, mcfgv1.MachineOSBuildSucceeded, image1), build("worker-2", config2, mcfgv1.MachineOSBuildSucceeded, image2)},
		nodes:    []*corev1.Node{builders.Node("n1", "worker"), builders.Node("n2", "worker")},
		images:   map[string]*v1alpha1.NodeImage{"n1": nodeImage("n1", digest1), "n2": nodeImage("n2", digest1)},
		rollout:  &v1alpha1.ImageRollout{Spec: v1alpha1.ImageRolloutSpec{Image: image2}},
	}
}

func (w *world) booted(digest string, names ...string) *world {
	for _, name := range names {
		w.images[name].Status.Booted.Digest = digest
	}
	return w
}

func (w *world) status() mcfgv1.MachineConfigPoolStatus {
	s := &scope{
		pool: w.pool, osConfig: w.osConfig, builds: w.builds, members: w.nodes, images: w.images,
		rollout: w.rollout, contests: w.contests, streams: w.streams,
	}
	wanted := w.rendered
	if wanted == nil && w.err == nil {
		wanted = &rendered{name: w.pool.Spec.Configuration.Name}
	}
	return computeStatus(s.observe(wanted, w.err, s.target(), later))
}

// condition is "True", "False" and the message of one condition.
func condition(status mcfgv1.MachineConfigPoolStatus, kind mcfgv1.MachineConfigPoolConditionType) (string, string) {
	found := findCondition(status.Conditions, kind)
	if found == nil {
		return "missing", ""
	}
	return string(found.Status), found.Message
}

func (w *world) fail(node string, class v1alpha1.FailureClass, isPermanent bool, failures int32) {
	w.images[node].Status.LastAttempt = &v1alpha1.Attempt{Image: image2, Class: class, Permanent: isPermanent, Failures: failures, Message: "it failed"}
}

func (w *world) unmanageable(node string) {
	w.images[node].Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionManageable, Status: metav1.ConditionFalse, Message: "bootc does not answer"}}
}
