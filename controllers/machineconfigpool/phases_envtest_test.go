//go:build envtest

package machineconfigpool

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/imagemode/imagemode/api/machineconfiguration"
	"github.com/imagemode/imagemode/api/v1alpha1"
	"github.com/imagemode/imagemode/test/builders"
)

// withStreams gives the cluster one stream.
func (c *cluster) withStreams() {
	c.Helper()
	c.create(&corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: machineconfiguration.Namespace, Name: machineconfiguration.ConfigMapStreams},
		Data:       map[string]string{"debian-12": "osImage: " + baseImage + "\nosExtensionsImage: " + extImage},
	})
}

// building plays a build of a rendered config in a state, and makes it the
// MachineOSConfig's current one.
func (c *cluster) building(name, rendered string, state mcfgv1.BuildProgress) {
	c.Helper()
	made := build(name, rendered, state, "")
	made.CreationTimestamp = metav1.Time{}
	made.Spec.RenderedImagePushSpec = mcfgv1.ImageTagFormat("registry.example.com/os/worker:" + name)
	for i := range made.Status.Conditions {
		made.Status.Conditions[i].Reason, made.Status.Conditions[i].LastTransitionTime = "Test", metav1.Now()
	}
	c.create(made.DeepCopy())
	if state != "" {
		change(c, &mcfgv1.MachineOSBuild{}, name, func(b *mcfgv1.MachineOSBuild) { b.Status = made.Status }, c.updateStatus)
	}
	change(c, &mcfgv1.MachineOSConfig{}, "worker", func(o *mcfgv1.MachineOSConfig) {
		metav1.SetMetaDataAnnotation(&o.ObjectMeta, machineconfiguration.AnnotationCurrentMachineOSBuild, name)
	}, c.update)
}

// boots plays the agent of a node: it runs an image.
func (c *cluster) boots(node, digest string) {
	c.Helper()
	change(c, &v1alpha1.NodeImage{}, node, func(n *v1alpha1.NodeImage) { n.Status.Booted = &v1alpha1.HostImage{Digest: digest} }, c.updateStatus)
}

func (c *cluster) pause(paused bool) {
	c.Helper()
	change(c, &mcfgv1.MachineConfigPool{}, "worker", func(p *mcfgv1.MachineConfigPool) { p.Spec.Paused = paused }, c.update)
}

// told is what users look at: the three columns, the message, the counts.
type told struct {
	updated, updating, degraded corev1.ConditionStatus
	message                     string
	counts                      string
}

func toldBy(pool *mcfgv1.MachineConfigPool) told {
	of := func(kind mcfgv1.MachineConfigPoolConditionType) mcfgv1.MachineConfigPoolCondition {
		if found := findCondition(pool.Status.Conditions, kind); found != nil {
			return *found
		}
		return mcfgv1.MachineConfigPoolCondition{}
	}
	status := pool.Status
	return told{
		of(mcfgv1.MachineConfigPoolUpdated).Status, of(mcfgv1.MachineConfigPoolUpdating).Status, of(mcfgv1.MachineConfigPoolDegraded).Status,
		of(mcfgv1.MachineConfigPoolUpdating).Message,
		fmt.Sprintf("%d machines, %d updated, %d ready, %d unavailable, %d degraded", status.MachineCount, status.UpdatedMachineCount,
			status.ReadyMachineCount, status.UnavailableMachineCount, status.DegradedMachineCount),
	}
}

// tells waits until the pool tells something, for its present spec.
func (c *cluster) tells(want told) {
	c.Helper()
	var last told
	defer func() {
		if c.Failed() {
			c.Logf("(-want +got):\n%s", cmp.Diff(want, last, cmp.AllowUnexported(told{})))
		}
	}()
	c.pool("the pool tells "+want.message, func(p *mcfgv1.MachineConfigPool) bool {
		last = toldBy(p)
		return last == want && p.Status.ObservedGeneration == p.Generation
	})
}

// TestEveryPhaseIsToldByThePool goes through a build and a rollout, with a pause
// in each phase.
func TestEveryPhaseIsToldByThePool(t *testing.T) {
	c := start(t)
	c.withStreams()
	c.create(builders.MachineConfigPool("worker"))
	for _, name := range []string{"n1", "n2"} {
		c.createWithStatus(builders.Node(name, "worker"))
	}
	rendered := c.pool("rendered", func(p *mcfgv1.MachineConfigPool) bool { return p.Spec.Configuration.Name != "" }).Spec.Configuration.Name
	c.create(builders.MachineOSConfig("worker"))
	const none, yes, no = "2 machines, 0 updated, 0 ready, 0 unavailable, 0 degraded", corev1.ConditionTrue, corev1.ConditionFalse

	for _, phase := range []struct {
		name                 string
		play                 func()
		updating             corev1.ConditionStatus
		message, pausedFor   string
		counts               string
		isUpdated, isStarted bool
	}{
		{"no build", func() {}, yes, "Pool is waiting for a new OS image build to start (mosc: worker)",
			"Pool is paused; waiting for a new OS image build to start (mosc: worker)", none, false, false},
		{"created", func() { c.building("b-created", rendered, "") }, yes, "Pool is waiting for OS image build to start (mosb: b-created)",
			"Pool is paused; OS image build created but not yet started", none, false, false},
		{"prepared", func() { c.building("b-prepared", rendered, mcfgv1.MachineOSBuildPrepared) }, yes, "Pool is waiting for OS image build to start (mosb: b-prepared)",
			"Pool is paused; OS image build has been prepared but will not rollout", none, false, false},
		{"running", func() { c.building("b-running", rendered, mcfgv1.MachineOSBuilding) }, yes, "Pool is waiting for OS image build to complete (mosb: b-running)",
			"Pool is paused; OS image build in progress", none, false, false},
		{"failed", func() {
			c.building("b-failed", rendered, mcfgv1.MachineOSBuildFailed)
			c.readiness(metav1.ConditionFalse, "")
		}, no, "Pool update stopped due to OS image build failure (mosb: b-failed)", "Pool is paused; OS image build failed", none, false, false},
		{"interrupted", func() { c.building("b-interrupted", rendered, mcfgv1.MachineOSBuildInterrupted) }, no,
			"Pool update stopped due to OS image build being interrupted (mosb: b-interrupted)", "Pool is paused; OS image build was interrupted", none, false, false},
		{"built", func() {
			c.built("b-done", rendered, image1)
			change(c, &mcfgv1.MachineOSConfig{}, "worker", func(o *mcfgv1.MachineOSConfig) {
				o.Annotations[machineconfiguration.AnnotationCurrentMachineOSBuild] = "b-done"
			}, c.update)
		}, yes, "Pool is waiting for the OS image to be ready for the nodes (mosb: b-done)", "Pool is paused; OS image build completed successfully", none, false, false},
		{"ready", func() { c.readiness(metav1.ConditionTrue, image1) }, yes, "Pool is waiting for nodes to apply OS image (mosb: b-done)",
			"Pool is paused; OS image build completed successfully", none, false, true},
		{"half", func() {
			for _, name := range []string{"n1", "n2"} {
				c.createWithStatus(nodeImage(name, digest2))
			}
			c.boots("n1", digest1)
		}, yes, "Pool is waiting for nodes to apply OS image (mosb: b-done)",
			"Pool is paused; OS image build completed successfully", "2 machines, 1 updated, 1 ready, 0 unavailable, 0 degraded", false, true},
		{"cordoned", func() {
			change(c, &corev1.Node{}, "n2", func(n *corev1.Node) { n.Spec.Unschedulable = true }, c.update)
		}, yes, "Pool is waiting for nodes to apply OS image (mosb: b-done)",
			"Pool is paused; OS image build completed successfully", "2 machines, 1 updated, 1 ready, 1 unavailable, 0 degraded", false, true},
		{"arrived", func() { c.boots("n2", digest1) }, yes, "Pool is waiting for nodes to apply OS image (mosb: b-done)",
			"Pool is paused; OS image build completed successfully", "2 machines, 2 updated, 1 ready, 1 unavailable, 0 degraded", false, true},
		{"done", func() {
			change(c, &corev1.Node{}, "n2", func(n *corev1.Node) { n.Spec.Unschedulable = false }, c.update)
		}, no, "", "", "2 machines, 2 updated, 2 ready, 0 unavailable, 0 degraded", true, true},
	} {
		t.Run(phase.name, func(t *testing.T) {
			c.T = t
			phase.play()
			updated := map[bool]corev1.ConditionStatus{true: yes, false: no}[phase.isUpdated]
			c.tells(told{updated, phase.updating, no, phase.message, phase.counts})
			c.pause(true)
			c.tells(told{updated, no, no, phase.pausedFor, phase.counts})
			if phase.isStarted {
				c.rollout("pause reaches the rollout", func(r *v1alpha1.ImageRollout) bool { return r.Spec.Paused && r.Spec.Image == image1 })
			} else if rollout, err := get(c.ctx, c.Client, "worker", &v1alpha1.ImageRollout{}); err != nil || rollout != nil {
				t.Errorf("a rollout before there is an image: %v, %v", rollout, err)
			}
			c.pause(false)
		})
	}
	c.T = t
}
