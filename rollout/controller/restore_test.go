package controller

import (
	"context"
	"testing"

	"github.com/imagemode/imagemode/api/v1alpha1"
)

func TestANodeImageThatIsDeletedUnderPauseComesBack(t *testing.T) {
	nodeImagesComeBack(t, newCluster(t, 2))
}

// nodeImagesComeBack deletes the NodeImages of a paused rollout: of a node that runs the
// image, of one that has it staged, and of one that never had to do with it.
func nodeImagesComeBack(t *testing.T, c *cluster) {
	t.Helper()
	c.blocked["pod-worker-2"] = true // it stays in its drain, with the image staged
	c.to(imageB)
	c.rounds(30)
	c.changeRollout(func(s *v1alpha1.ImageRolloutSpec) { s.Paused = true })
	c.addNode()
	c.rounds(3)
	boots := map[string]int{}
	for name, m := range c.machines {
		boots[name] = m.boots
	}
	if c.machines["worker-1"].booted != imageB || c.machines["worker-2"].staged != imageB {
		t.Fatalf("%+v, %+v", c.machines["worker-1"], c.machines["worker-2"])
	}
	for name := range c.machines {
		if err := c.client.Delete(context.Background(), c.image(name)); err != nil {
			t.Fatal(err)
		}
	}
	c.rounds(5)
	for name, want := range map[string]string{"worker-1": imageB, "worker-2": imageB, "worker-3": imageA} {
		image := c.image(name)
		if image == nil || image.Spec.DesiredImage != want || image.Spec.Phase != v1alpha1.PhaseStaged || image.Status.Booted == nil {
			t.Errorf("%s comes back as %+v", name, image)
		}
		if c.machines[name].boots != boots[name] {
			t.Errorf("%s was rebooted", name)
		}
	}
	if counts := c.rollout().Status.Nodes; counts.Updated != 1 || counts.Staged != 1 || counts.Total != 3 {
		t.Errorf("counts %+v", counts)
	}
	delete(c.blocked, "pod-worker-2")
	c.changeRollout(func(s *v1alpha1.ImageRolloutSpec) { s.Paused = false })
	c.settle()
	c.expectUpdated(imageB)
}
