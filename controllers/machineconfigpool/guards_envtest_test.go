//go:build envtest

package machineconfigpool

import (
	"strings"
	"testing"
	"time"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/imagemode/imagemode/api/machineconfiguration"
	"github.com/imagemode/imagemode/api/v1alpha1"
	"github.com/imagemode/imagemode/test/builders"
)

// twoStreams makes debian-12, the default, and debian-13.
func (c *cluster) twoStreams() *corev1.ConfigMap {
	c.Helper()
	made := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: machineconfiguration.Namespace, Name: machineconfiguration.ConfigMapStreams},
		Data:       map[string]string{"debian-12": "osImage: " + twelve, "debian-13": "osImage: " + other},
	}
	c.create(made)
	return made
}

// namesImage edits a MachineConfig to name an OS image; empty: none.
func (c *cluster) namesImage(config, image string) {
	c.Helper()
	change(c, &mcfgv1.MachineConfig{}, config, func(m *mcfgv1.MachineConfig) { m.Spec.OSImageURL = image }, c.update)
}

// stays waits until a pool says something, and sees that its config and the image of
// its nodes are those of before.
func (c *cluster) stays(config, what string, kind mcfgv1.MachineConfigPoolConditionType, status corev1.ConditionStatus, reason, message string) {
	c.Helper()
	pool := c.pool(what, func(p *mcfgv1.MachineConfigPool) bool {
		return says(p, kind, status, reason) && strings.Contains(findCondition(p.Status.Conditions, kind).Message, message)
	})
	if pool.Spec.Configuration.Name != config {
		c.Errorf("%s: the pool went from %s to %s", what, config, pool.Spec.Configuration.Name)
	}
	if rollout := c.rollout("of before", func(*v1alpha1.ImageRollout) bool { return true }); rollout.Spec.Image != image1 {
		c.Errorf("%s: the nodes are given %s", what, rollout.Spec.Image)
	}
	if pool.Status.OSImageStream.Name != "" {
		c.Errorf("%s: the pool says that it runs %s", what, pool.Status.OSImageStream.Name)
	}
}

// Nobody knows yet what an image can do: with runc as its default runtime nothing is
// rendered and nothing handed off. Where its registry does not answer that is said.
func TestRuncWaitsUntilItIsKnownThatTheImageHasIt(t *testing.T) {
	c := start(t)
	streamsMap := c.twoStreams()
	c.create(builders.MachineConfigPool("worker"))
	before := c.rendersOn("worker", twelve)
	c.create(builders.MachineOSConfig("worker"))
	c.built("worker-1", before, image1)
	c.readiness(metav1.ConditionTrue, image1)
	c.rollout("handed off", func(r *v1alpha1.ImageRollout) bool { return r.Spec.Image == image1 })

	t.Run("an image that a MachineConfig names", func(t *testing.T) {
		c.T = t
		mine := "registry.example.com/mine/debian-13@sha256:" + strings.Repeat("3", 64)
		release := c.images.hold("mine/")
		c.create(builders.MachineConfig("50-mine", "worker", builders.OSImageURL(mine), builders.File("/etc/crio/crio.conf.d/99-runc", runcText)))
		const unread = "is known when the labels of its image have been read"
		c.stays(before, "waits", mcfgv1.MachineConfigPoolUpdating, corev1.ConditionTrue, "ConfigChanges", unread)
		c.stays(before, "is not degraded", mcfgv1.MachineConfigPoolRenderDegraded, corev1.ConditionFalse, "Waiting", unread)
		release()
		c.stays(before, "its labels say that it has crun alone", mcfgv1.MachineConfigPoolRenderDegraded, corev1.ConditionTrue, reasonRuntimeMissing, "99-runc of MachineConfig 50-mine makes runc the default container runtime")
	})
	t.Run("one that does not answer, and then does", func(t *testing.T) {
		c.T = t
		yours := "registry.example.com/yours/os@sha256:" + strings.Repeat("4", 64)
		c.images.fail("yours/")
		c.namesImage("50-mine", yours)
		c.stays(before, "that is said", mcfgv1.MachineConfigPoolRenderDegraded, corev1.ConditionTrue, reasonRuntimeUnknown, "cannot be read now, and is tried again")
		c.images.fail("")
		metav1.SetMetaDataAnnotation(&streamsMap.ObjectMeta, "example.com/look", "now") // in place of the wait
		if err := c.Client.Update(c.ctx, streamsMap); err != nil {
			t.Fatal(err)
		}
		c.rendersOn("worker", yours)
		c.event("OSImageURLOverridden", yours)
		c.namesImage("50-mine", "")
		c.rendersOn("worker", twelve)
	})
	t.Run("the next image of the stream", func(t *testing.T) {
		c.T = t
		present := c.rendersOn("worker", twelve)
		release := c.images.hold("next/")
		streamsMap.Data["debian-12"] = "osImage: registry.example.com/next/debian-13@sha256:" + strings.Repeat("5", 64)
		if err := c.Client.Update(c.ctx, streamsMap); err != nil {
			t.Fatal(err)
		}
		c.stays(present, "waits", mcfgv1.MachineConfigPoolUpdating, corev1.ConditionTrue, "ConfigChanges", "have been read")
		release()
		c.stays(present, "it has no runc any more", mcfgv1.MachineConfigPoolRenderDegraded, corev1.ConditionTrue, reasonRuntimeMissing, `"debian-12" has only crun`)
	})
	c.T = t
}

// A MachineConfig and the pool both name an OS: each of the three ways out works.
func TestTwoWishesForTheOSAreRefusedUntilOneGoes(t *testing.T) {
	c := start(t)
	c.twoStreams()
	c.create(builders.MachineConfigPool("worker"))
	c.wants("worker", "debian-13")
	c.rendersOn("worker", other)
	mine := "registry.example.com/mine/os@sha256:" + strings.Repeat("3", 64)
	for _, way := range []struct {
		name    string
		out     func()
		image   string
		restore func()
	}{
		{"the MachineConfig is deleted", func() {
			if err := c.Delete(c.ctx, builders.MachineConfig("50-mine", "worker")); err != nil {
				c.Fatal(err)
			}
		}, other, func() {}},
		{"it names no image any more", func() { c.namesImage("50-mine", "") }, other, func() {
			if err := c.Delete(c.ctx, builders.MachineConfig("50-mine", "worker")); err != nil {
				c.Fatal(err)
			}
		}},
		{"the pool names no stream any more", func() { c.wants("worker", "") }, mine, func() {}},
	} {
		t.Run(way.name, func(t *testing.T) {
			c.T = t
			before := c.rendersOn("worker", other)
			c.create(builders.MachineConfig("50-mine", "worker", builders.OSImageURL(mine)))
			pool := c.pool("degraded", func(p *mcfgv1.MachineConfigPool) bool {
				return says(p, mcfgv1.MachineConfigPoolRenderDegraded, corev1.ConditionTrue, reasonStreamOverridden)
			})
			message := findCondition(pool.Status.Conditions, mcfgv1.MachineConfigPoolRenderDegraded).Message
			for _, want := range []string{
				"cannot override MachineConfig osImageURL and set MachineConfigPool spec.osImageStream.name simultaneously",
				"delete MachineConfig 50-mine", "clear its spec.osImageURL", "clear the pool's spec.osImageStream (debian-13)",
			} {
				if !strings.Contains(message, want) {
					t.Errorf("%q does not say %q", message, want)
				}
			}
			if pool.Spec.Configuration.Name != before {
				t.Errorf("the pool went from %s to %s", before, pool.Spec.Configuration.Name)
			}
			way.out()
			c.rendersOn("worker", way.image)
			way.restore()
		})
	}
	c.T = t
}

// The default moves the pools that have no stream of their own, and no others; when it
// is gone they stay, and everything else works on.
func TestTheDefaultMovesThePoolsThatInheritIt(t *testing.T) {
	c := start(t)
	streamsMap := c.twoStreams()
	for name, stream := range map[string]string{"worker": "", "master": "", "infra": "", "pinned": "debian-12"} {
		c.create(builders.MachineConfigPool(name, builders.Stream(stream)))
		c.rendersOn(name, twelve)
	}
	change(c, &mcfgv1.OSImageStream{}, "cluster", func(o *mcfgv1.OSImageStream) { o.Spec.DefaultStream = "debian-13" }, c.update)
	moved := map[string]string{}
	for _, name := range []string{"worker", "master", "infra"} {
		moved[name] = c.rendersOn(name, other)
	}
	pinned := c.rendersOn("pinned", twelve)
	t.Run("a custom pool whose worker pool goes has the default itself", func(t *testing.T) {
		c.T = t
		c.wants("worker", "debian-12")
		c.rendersOn("infra", twelve)
		if err := c.Delete(c.ctx, builders.MachineConfigPool("worker")); err != nil {
			t.Fatal(err)
		}
		c.rendersOn("infra", other)
		c.create(builders.MachineConfigPool("worker"))
		c.rendersOn("worker", other)
	})
	t.Run("a default that is gone moves nobody", func(t *testing.T) {
		c.T = t
		delete(streamsMap.Data, "debian-13")
		if err := c.Client.Update(c.ctx, streamsMap); err != nil {
			t.Fatal(err)
		}
		for name, config := range moved {
			pool := eventually(c, name+" says so", &mcfgv1.MachineConfigPool{}, name, func(p *mcfgv1.MachineConfigPool) bool {
				return says(p, mcfgv1.MachineConfigPoolRenderDegraded, corev1.ConditionTrue, reasonDefaultStreamGone)
			})
			if pool.Spec.Configuration.Name != config {
				t.Errorf("pool %s went from %s to %s", name, config, pool.Spec.Configuration.Name)
			}
		}
		time.Sleep(time.Second)
		if now := c.rendersOn("pinned", twelve); now != pinned {
			t.Errorf("pool pinned went from %s to %s", pinned, now)
		}
	})
	t.Run("a default that exists mends it", func(t *testing.T) {
		c.T = t
		change(c, &mcfgv1.OSImageStream{}, "cluster", func(o *mcfgv1.OSImageStream) { o.Spec.DefaultStream = "debian-12" }, c.update)
		for name := range moved {
			c.rendersOn(name, twelve)
		}
	})
	c.T = t
}
