//go:build envtest

package machineconfigpool

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/imagemode/imagemode/api/machineconfiguration"
	"github.com/imagemode/imagemode/api/v1alpha1"
	"github.com/imagemode/imagemode/test/builders"
)

// TestWhereTheOperatorDoesItAll has all parts switched off: the failure of a build
// is put into the pool's status and taken back, and nothing else is written.
func TestWhereTheOperatorDoesItAll(t *testing.T) {
	c := start(t, func(options *Options) {
		options.Off = Parts{Render: true, Status: true, Membership: true, MachineConfigNodes: true, NodeAnnotations: true, HandOff: true}
	})
	c.withStreams()
	c.createWithStatus(builders.Node("n1", "worker"))
	c.create(builders.MachineConfigPool("worker", builders.Rendered(config1)))
	theirs := []mcfgv1.MachineConfigPoolCondition{
		{Type: mcfgv1.MachineConfigPoolUpdated, Status: corev1.ConditionTrue, Reason: "Theirs", LastTransitionTime: metav1.NewTime(earlier.Local())},
		{Type: mcfgv1.MachineConfigPoolRenderDegraded, Status: corev1.ConditionFalse, LastTransitionTime: metav1.NewTime(earlier.Local())},
	}
	change(c, &mcfgv1.MachineConfigPool{}, "worker", func(p *mcfgv1.MachineConfigPool) {
		p.Status.Conditions, p.Status.MachineCount = theirs, 7
	}, c.updateStatus)
	c.create(builders.MachineOSConfig("worker"))
	c.built("worker-1", config1, image1)
	degraded := func(status metav1.ConditionStatus, reason, message string) {
		c.readiness(metav1.ConditionTrue, image1)
		change(c, &mcfgv1.MachineOSConfig{}, "worker", func(o *mcfgv1.MachineOSConfig) {
			meta.SetStatusCondition(&o.Status.Conditions, metav1.Condition{Type: machineconfiguration.ConditionImageBuildDegraded, Status: status, Reason: reason, Message: message})
		}, c.updateStatus)
	}
	isTheirs := func(p *mcfgv1.MachineConfigPool) {
		t.Helper()
		if len(p.Status.Conditions) != 3 || p.Status.MachineCount != 7 || p.Status.ObservedGeneration != 0 ||
			!says(p, mcfgv1.MachineConfigPoolUpdated, corev1.ConditionTrue, "Theirs") || p.Spec.Configuration.Name != config1 {
			t.Errorf("what is the operator's changed: %+v, %+v", p.Spec.Configuration, p.Status)
		}
	}
	degraded(metav1.ConditionTrue, "BuildFailed", "Failed to build OS image for pool worker")
	isTheirs(c.pool("the failure is put in", func(p *mcfgv1.MachineConfigPool) bool {
		return says(p, mcfgv1.MachineConfigPoolImageBuildDegraded, corev1.ConditionTrue, "BuildFailed")
	}))
	degraded(metav1.ConditionFalse, "BuildSuccess", "Build succeeded for pool worker")
	isTheirs(c.pool("and taken back", func(p *mcfgv1.MachineConfigPool) bool {
		return says(p, mcfgv1.MachineConfigPoolImageBuildDegraded, corev1.ConditionFalse, "BuildSuccess")
	}))

	// Nothing else appears, although there is an image that nodes could have.
	time.Sleep(2 * time.Second)
	var configs mcfgv1.MachineConfigList
	var rollouts v1alpha1.ImageRolloutList
	var shown mcfgv1.MachineConfigNodeList
	for _, list := range []client.ObjectList{&configs, &rollouts, &shown} {
		if err := c.List(c.ctx, list); err != nil || meta.LenList(list) != 0 {
			t.Errorf("%T: %v, %v", list, list, err)
		}
	}
	node := &corev1.Node{}
	if err := c.Get(c.ctx, client.ObjectKey{Name: "n1"}, node); err != nil {
		t.Fatal(err)
	}
	if node.Labels[machineconfiguration.LabelNodePool] != "" || len(node.Annotations) != 0 {
		t.Errorf("the node has labels %v and annotations %v", node.Labels, node.Annotations)
	}
}

// TestBesideAMachineConfigDaemonNodesAreLeftAlone has a machine-config-daemon in the
// namespace, which takes nodes to their images itself.
func TestBesideAMachineConfigDaemonNodesAreLeftAlone(t *testing.T) {
	c := start(t)
	c.create(builders.DaemonSet(machineconfiguration.Namespace, machineconfiguration.DaemonSetMachineConfigDaemon))
	c.withStreams()
	c.createWithStatus(builders.Node("n1", "worker"))
	c.create(builders.MachineConfigPool("worker"))
	config := c.pool("rendered", func(p *mcfgv1.MachineConfigPool) bool { return p.Spec.Configuration.Name != "" }).Spec.Configuration.Name
	c.create(builders.MachineOSConfig("worker"))
	c.built("worker-1", config, image1)
	c.readiness(metav1.ConditionTrue, image1)
	time.Sleep(2 * time.Second)
	var rollouts v1alpha1.ImageRolloutList
	if err := c.List(c.ctx, &rollouts); err != nil || len(rollouts.Items) != 0 {
		t.Errorf("rollouts %+v, error %v", rollouts.Items, err)
	}
	node := &corev1.Node{}
	if err := c.Get(c.ctx, client.ObjectKey{Name: "n1"}, node); err != nil || len(node.Annotations) != 0 {
		t.Errorf("the node has annotations %v, error %v", node.Annotations, err)
	}
}

// TestWhatSomethingElseRendersIsRolledOut has nothing switched off but rendering.
func TestWhatSomethingElseRendersIsRolledOut(t *testing.T) {
	c := start(t, func(options *Options) { options.Off.Render = true })
	c.withStreams()
	c.createWithStatus(builders.Node("n1", "worker"))
	source := builders.MachineConfig("50-motd", "worker", builders.File("/etc/motd", "hello\n"))
	c.create(source)
	theirs := builders.MachineConfig(config1, "none", builders.OSImageURL(baseImage))
	c.create(theirs)
	c.create(builders.MachineConfigPool("worker", builders.Rendered(config1), func(p *mcfgv1.MachineConfigPool) {
		p.Spec.Configuration.Source = []corev1.ObjectReference{{Name: "50-motd"}}
	}))
	c.create(builders.MachineOSConfig("worker"))
	c.built("worker-1", config1, image1)
	c.readiness(metav1.ConditionTrue, image1)
	c.rollout("handed off", func(r *v1alpha1.ImageRollout) bool {
		return r.Spec.Image == image1 && r.Annotations[machineconfiguration.AnnotationRolloutConfig] == config1
	})
	c.createWithStatus(nodeImage("n1", digest1))
	pool := c.pool("updated", func(p *mcfgv1.MachineConfigPool) bool {
		return says(p, mcfgv1.MachineConfigPoolUpdated, corev1.ConditionTrue, "") && p.Status.OSImageStream.Name == "debian-12"
	})
	if pool.Spec.Configuration.Name != config1 || findCondition(pool.Status.Conditions, mcfgv1.MachineConfigPoolRenderDegraded) != nil {
		t.Errorf("what the operator renders changed: %+v, %+v", pool.Spec.Configuration, pool.Status.Conditions)
	}
	change(c, &mcfgv1.MachineConfigPool{}, "worker", func(p *mcfgv1.MachineConfigPool) {
		p.Status.Conditions = append(p.Status.Conditions, mcfgv1.MachineConfigPoolCondition{
			Type: mcfgv1.MachineConfigPoolRenderDegraded, Status: corev1.ConditionTrue, Message: "their words", LastTransitionTime: metav1.Now(),
		})
	}, c.updateStatus)
	c.pool("their failure counts", func(p *mcfgv1.MachineConfigPool) bool {
		return says(p, mcfgv1.MachineConfigPoolUpdated, corev1.ConditionFalse, "RenderDegraded") &&
			says(p, mcfgv1.MachineConfigPoolDegraded, corev1.ConditionTrue, "RenderDegraded") &&
			findCondition(p.Status.Conditions, mcfgv1.MachineConfigPoolRenderDegraded).Message == "their words"
	})
}

// TestAPoolLeavesUpdatedWithinASecond has a change wait for others before it is
// rendered: the pool says at once that it is not Updated.
func TestAPoolLeavesUpdatedWithinASecond(t *testing.T) {
	c := start(t, func(options *Options) { options.Settle = 4 * time.Second })
	c.withStreams()
	c.create(builders.MachineConfig("50-motd", "worker", builders.File("/etc/motd", "first\n")))
	c.createWithStatus(builders.Node("n1", "worker"))
	c.create(builders.MachineConfigPool("worker"))
	// The first config is taken at once, maybe without the MachineConfig.
	rendered := c.pool("rendered", func(p *mcfgv1.MachineConfigPool) bool { return len(p.Spec.Configuration.Source) == 1 }).Spec.Configuration.Name
	c.create(builders.MachineOSConfig("worker"))
	c.built("worker-1", rendered, image1)
	c.readiness(metav1.ConditionTrue, image1)
	c.createWithStatus(nodeImage("n1", digest1))
	c.pool("updated", func(p *mcfgv1.MachineConfigPool) bool {
		return says(p, mcfgv1.MachineConfigPoolUpdated, corev1.ConditionTrue, "") && p.Status.ObservedGeneration == p.Generation
	})
	time.Sleep(statusInterval)
	change(c, &mcfgv1.MachineConfig{}, "50-motd", func(m *mcfgv1.MachineConfig) {
		m.Spec.Config.Raw = builders.MachineConfig("x", "worker", builders.File("/etc/motd", "second\n")).Spec.Config.Raw
	}, c.update)
	edited := time.Now()
	left := c.pool("leaves Updated", func(p *mcfgv1.MachineConfigPool) bool {
		return says(p, mcfgv1.MachineConfigPoolUpdated, corev1.ConditionFalse, "")
	})
	t.Logf("the pool left Updated after %v (limit 1s)", time.Since(edited).Round(time.Millisecond))
	if left.Spec.Configuration.Name != rendered || !says(left, mcfgv1.MachineConfigPoolUpdating, corev1.ConditionTrue, "ConfigChanges") {
		t.Errorf("configuration %s, conditions %+v", left.Spec.Configuration.Name, left.Status.Conditions)
	}
	c.pool("renders when no more changes come", func(p *mcfgv1.MachineConfigPool) bool { return p.Spec.Configuration.Name != rendered })
}

// TestHandOffAndItsNodes shares an API server among what happens after an image
// was handed off.
func TestHandOffAndItsNodes(t *testing.T) {
	c := start(t)
	c.withStreams()
	c.createWithStatus(builders.Node("n1", "worker"))
	c.create(builders.MachineConfigPool("worker"))
	rendered := c.pool("rendered", func(p *mcfgv1.MachineConfigPool) bool { return p.Spec.Configuration.Name != "" }).Spec.Configuration.Name
	c.create(builders.MachineOSConfig("worker"))
	c.built("worker-1", rendered, image1)
	c.readiness(metav1.ConditionTrue, image1)
	c.rollout("handed off", func(r *v1alpha1.ImageRollout) bool { return r.Spec.Image == image1 })
	image := nodeImage("n1", digest1)
	image.Status.Booted.Image = image1
	c.createWithStatus(image)

	t.Run("who sets a field of the hand-off is overruled, by name", func(t *testing.T) {
		c.T = t
		change(c, &v1alpha1.ImageRollout{}, "worker", func(r *v1alpha1.ImageRollout) { r.Spec.Image = image2 },
			func(ctx context.Context, object client.Object) error {
				return c.Client.Update(ctx, object, client.FieldOwner("kubectl-edit"))
			})
		c.rollout("put back", func(r *v1alpha1.ImageRollout) bool { return r.Spec.Image == image1 })
		c.event("FieldOverruled", ".spec.image", `"kubectl-edit"`)
	})
	t.Run("maxUnavailable 0 and nonsense are told", func(t *testing.T) {
		c.T = t
		limit := func(value intstr.IntOrString, want int) {
			change(c, &mcfgv1.MachineConfigPool{}, "worker", func(p *mcfgv1.MachineConfigPool) { p.Spec.MaxUnavailable = &value }, c.update)
			c.rollout("follows", func(r *v1alpha1.ImageRollout) bool { return r.Spec.MaxUnavailable.IntValue() == want })
		}
		limit(intstr.FromInt32(2), 2)
		limit(intstr.FromInt32(0), 0)
		c.event("MaxUnavailableZero", "taken as 1")
		limit(intstr.FromString("many"), 1)
		c.event("InvalidMaxUnavailable", `"many"`)
	})
	t.Run("image fields of MachineConfigNodes follow the served API", func(t *testing.T) {
		c.T = t
		shows := func(what string, want mcfgv1.ImageDigestFormat) *mcfgv1.MachineConfigNode {
			return eventually(c, what, &mcfgv1.MachineConfigNode{}, "n1", func(n *mcfgv1.MachineConfigNode) bool {
				return n.Spec.ConfigImage.DesiredImage == want && n.Status.ConfigImage.CurrentImage == want &&
					(meta.FindStatusCondition(n.Status.Conditions, "AppliedOSImage") != nil) == (want != "")
			})
		}
		shows("with image fields", image1)
		full := c.crd()
		c.editCRD(func(crd *unstructured.Unstructured) {
			versions, _, _ := unstructured.NestedSlice(crd.Object, "spec", "versions")
			for _, part := range []string{"spec", "status"} {
				unstructured.RemoveNestedField(versions[0].(map[string]any), "schema", "openAPIV3Schema", "properties", part, "properties", "configImage")
			}
			if err := unstructured.SetNestedSlice(crd.Object, versions, "spec", "versions"); err != nil {
				t.Fatal(err)
			}
		})
		without := shows("without", "")
		time.Sleep(3 * time.Second)
		if now := shows("at rest", ""); now.ResourceVersion != without.ResourceVersion {
			t.Errorf("the resourceVersion went from %s to %s", without.ResourceVersion, now.ResourceVersion)
		}
		c.editCRD(func(crd *unstructured.Unstructured) { crd.Object["spec"] = full.Object["spec"] })
		shows("with image fields again", image1)
	})
	t.Run("a node whose new pool has no image says what it runs, and so does the pool", func(t *testing.T) {
		c.T = t
		c.create(builders.MachineConfigPool("infra"))
		change(c, &corev1.Node{}, "n1", func(n *corev1.Node) { n.Labels[builders.NodeRolePrefix+"infra"] = "" }, c.update)
		eventually(c, "moved", &corev1.Node{}, "n1", func(n *corev1.Node) bool { return n.Labels[machineconfiguration.LabelNodePool] == "infra" })
		if err := c.Delete(c.ctx, nodeImage("n1", "")); err != nil { // as the rollout does
			t.Fatal(err)
		}
		eventually(c, "the node says so", &mcfgv1.MachineConfigNode{}, "n1", func(n *mcfgv1.MachineConfigNode) bool {
			updated := meta.FindStatusCondition(n.Status.Conditions, "Updated")
			return n.Spec.Pool.Name == "infra" && strings.Contains(updated.Message, rendered) && n.Status.ConfigVersion.Current == rendered
		})
		eventually(c, "the pool says so", &mcfgv1.MachineConfigPool{}, "infra", func(p *mcfgv1.MachineConfigPool) bool {
			updated := findCondition(p.Status.Conditions, mcfgv1.MachineConfigPoolUpdated)
			return updated != nil && updated.Status == corev1.ConditionFalse && strings.Contains(updated.Message, "node n1 still runs the image of MachineConfig "+rendered)
		})
	})
	c.T = t
}

// event waits for an event of a reason that says all of it.
func (c *cluster) event(reason string, texts ...string) {
	c.Helper()
	last := ""
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(100 * time.Millisecond) {
		var list eventsv1.EventList
		if err := c.List(c.ctx, &list); err != nil {
			c.Fatal(err)
		}
		for i := range list.Items {
			if list.Items[i].Reason != reason {
				continue
			}
			last = list.Items[i].Note
			if !slices.ContainsFunc(texts, func(text string) bool { return !strings.Contains(last, text) }) {
				return
			}
		}
	}
	c.Fatalf("no event %s with %v; the last one says %q", reason, texts, last)
}

func (c *cluster) crd() *unstructured.Unstructured {
	c.Helper()
	crd := &unstructured.Unstructured{}
	crd.SetGroupVersionKind(kindCRD)
	if err := c.Get(c.ctx, client.ObjectKey{Name: machineConfigNodes}, crd); err != nil {
		c.Fatal(err)
	}
	return crd
}

func (c *cluster) editCRD(edit func(*unstructured.Unstructured)) {
	c.Helper()
	var err error
	for range 10 {
		crd := c.crd()
		edit(crd)
		if err = c.Client.Update(c.ctx, crd); err == nil {
			return
		}
	}
	c.Fatal(err)
}
