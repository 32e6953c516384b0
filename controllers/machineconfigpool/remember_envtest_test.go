//go:build envtest

package machineconfigpool

import (
	"context"
	"testing"
	"time"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/imagemode/imagemode/api/machineconfiguration"
	"github.com/imagemode/imagemode/api/v1alpha1"
	"github.com/imagemode/imagemode/test/builders"
)

// TestARolloutIsPutBackWithoutANewerImage edits and deletes the rollout of a pool while
// its next image is built, when that has failed, and when nodes cannot pull it.
func TestARolloutIsPutBackWithoutANewerImage(t *testing.T) {
	c := start(t)
	c.withStreams()
	motd := func(text string) *mcfgv1.MachineConfig {
		return builders.MachineConfig("50-motd", "worker", builders.File("/etc/motd", text), builders.File("/etc/containers/certs.d/mirror/ca.crt", "PEM"))
	}
	c.create(motd("first\n"))
	c.create(builders.MachineConfigPool("worker"))
	renderedAfter := func(before string) string {
		return c.pool("rendered", func(p *mcfgv1.MachineConfigPool) bool {
			return len(p.Spec.Configuration.Source) == 1 && p.Spec.Configuration.Name != before
		}).Spec.Configuration.Name
	}
	first := renderedAfter("")
	c.create(builders.MachineOSConfig("worker"))
	c.built("worker-1", first, image1)
	c.readiness(metav1.ConditionTrue, image1)
	c.rollout("handed off", func(r *v1alpha1.ImageRollout) bool { return r.Spec.Image == image1 })
	change(c, &mcfgv1.MachineConfig{}, "50-motd", func(m *mcfgv1.MachineConfig) { m.Spec.Config.Raw = motd("second\n").Spec.Config.Raw }, c.update)
	second := renderedAfter(first)

	// isAsBefore: all that the pool decides is there again, the config with its image.
	isAsBefore := func(r *v1alpha1.ImageRollout) bool {
		return r.Spec.Image == image1 && r.Annotations[machineconfiguration.AnnotationRolloutConfig] == first && !r.Spec.Paused &&
			r.Spec.NodeSelector != nil && r.Spec.NodeSelector.MatchLabels[machineconfiguration.LabelNodePool] == "worker" &&
			r.Spec.PullSecretRef != nil && r.Spec.PullSecretRef.Name == "node-pull" && r.Spec.Live != nil && len(r.Spec.Live.Files) == 1
	}
	asKubectl := func(ctx context.Context, object client.Object) error {
		return c.Client.Update(ctx, object, client.FieldOwner("kubectl-edit"))
	}
	var said eventsv1.EventList
	if err := c.List(c.ctx, &said); err != nil {
		t.Fatal(err)
	}
	for i := range said.Items {
		if said.Items[i].Reason == "RolloutMadeAnew" {
			t.Errorf("the first rollout is announced as another: %s", said.Items[i].Note)
		}
	}
	for _, phase := range []struct {
		name string
		play func()
	}{
		{"while it is built", func() {
			c.building("worker-2", second, mcfgv1.MachineOSBuilding)
			c.readiness(metav1.ConditionFalse, "")
		}},
		{"when its build has failed", func() { c.building("worker-3", second, mcfgv1.MachineOSBuildFailed) }},
		{"when nodes cannot pull it", func() {
			c.built("worker-4", second, image2)
			change(c, &mcfgv1.MachineOSConfig{}, "worker", func(o *mcfgv1.MachineOSConfig) {
				o.Annotations[machineconfiguration.AnnotationCurrentMachineOSBuild] = "worker-4"
			}, c.update)
			c.readiness(metav1.ConditionFalse, image2)
		}},
	} {
		phase.play()
		t.Run(phase.name, func(t *testing.T) {
			c.T = t
			before := c.rollout("as before", isAsBefore)
			change(c, &v1alpha1.ImageRollout{}, "worker", func(r *v1alpha1.ImageRollout) {
				r.Spec.Image, r.Spec.NodeSelector, r.Spec.PullSecretRef, r.Annotations = image2, nil, nil, nil
			}, asKubectl)
			c.rollout("put back after an edit", func(r *v1alpha1.ImageRollout) bool { return r.UID == before.UID && isAsBefore(r) })
			c.event("FieldOverruled", ".spec.image", `"kubectl-edit"`)
			if err := c.Delete(c.ctx, before); err != nil {
				t.Fatal(err)
			}
			c.rollout("put back after it was deleted", func(r *v1alpha1.ImageRollout) bool { return r.UID != before.UID && isAsBefore(r) })
			c.event("RolloutMadeAnew", "ImageRollout worker was deleted", "soak")
		})
	}
	c.T = t

	t.Run("at rest nothing is written", func(t *testing.T) {
		c.T = t
		time.Sleep(2 * statusInterval)
		versions := func() [2]string {
			pool := c.pool("present", func(*mcfgv1.MachineConfigPool) bool { return true })
			return [2]string{pool.ResourceVersion, c.rollout("present", isAsBefore).ResourceVersion}
		}
		before := versions()
		change(c, &mcfgv1.MachineOSConfig{}, "worker", func(o *mcfgv1.MachineOSConfig) { o.Annotations["touched"] = "yes" }, c.update)
		time.Sleep(2 * time.Second)
		if now := versions(); now != before {
			t.Errorf("the resourceVersions of pool and rollout went from %v to %v", before, now)
		}
	})
	t.Run("with a MachineOSConfig that is being deleted it stays away", func(t *testing.T) {
		c.T = t
		change(c, &mcfgv1.MachineOSConfig{}, "worker", func(o *mcfgv1.MachineOSConfig) {
			controllerutil.AddFinalizer(o, machineconfiguration.FinalizerBaseImage)
		}, c.update)
		if err := c.Delete(c.ctx, builders.MachineOSConfig("worker")); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second) // the controller has seen it
		if err := c.Delete(c.ctx, &v1alpha1.ImageRollout{ObjectMeta: metav1.ObjectMeta{Name: "worker"}}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		if err := c.Get(c.ctx, types.NamespacedName{Name: "worker"}, &v1alpha1.ImageRollout{}); !apierrors.IsNotFound(err) {
			t.Errorf("it is there again: %v", err)
		}
	})
	c.T = t
}
