//go:build envtest

package machineconfigpool

import (
	"context"
	"testing"
	"time"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/imagemode/imagemode/api/machineconfiguration"
	"github.com/imagemode/imagemode/api/v1alpha1"
	"github.com/imagemode/imagemode/controllers/osimagestream"
	"github.com/imagemode/imagemode/test/builders"
	"github.com/imagemode/imagemode/test/envtest"
)

// patience is how long a test waits for the controllers. They are done within
// milliseconds; the machine may be busy.
const patience = 90 * time.Second

// cluster is an API server with the controllers of this package and of the
// streams. The test plays the build half and the nodes.
type cluster struct {
	*testing.T
	client.Client
	ctx context.Context
	// images are what the registries say.
	images *imageLabels
}

func start(t *testing.T, changes ...func(*Options)) *cluster {
	t.Helper()
	options := Options{Namespace: machineconfiguration.Namespace, NodePullSecret: "node-pull"}
	for _, change := range changes {
		change(&options)
	}
	log.SetLogger(zap.New(zap.UseDevMode(true)))
	rest := envtest.Start(t)
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, mcfgv1.Install, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	mgr, err := ctrl.NewManager(rest, ctrl.Options{
		Scheme: scheme, Metrics: metricsserver.Options{BindAddress: "0"}, Controller: config.Controller{SkipNameValidation: new(true)},
	})
	if err != nil {
		t.Fatal(err)
	}
	images := &imageLabels{}
	if err := osimagestream.Add(mgr, osimagestream.Options{
		Namespace: machineconfiguration.Namespace, Images: images.reader, Backoff: wait.Backoff{Duration: time.Millisecond, Steps: 1},
	}); err != nil {
		t.Fatal(err)
	}
	if err := Add(mgr, options); err != nil {
		t.Fatal(err)
	}
	stopped := make(chan error, 1)
	go func() { stopped <- mgr.Start(t.Context()) }()
	t.Cleanup(func() {
		if err := <-stopped; err != nil {
			t.Error(err)
		}
	})
	direct, err := client.New(rest, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	c := &cluster{T: t, Client: direct, ctx: t.Context(), images: images}
	c.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: machineconfiguration.Namespace}})
	return c
}

func (c *cluster) create(object client.Object) {
	c.Helper()
	if err := c.Client.Create(c.ctx, object); err != nil {
		c.Fatal(err)
	}
}

// createWithStatus creates an object and then its status.
func (c *cluster) createWithStatus(object client.Object) {
	c.Helper()
	if err := builders.CreateWithStatus(c.ctx, c.Client, object); err != nil {
		c.Fatal(err)
	}
}

// change edits the live object, again on conflict.
func change[T client.Object](c *cluster, object T, name string, edit func(T), write func(context.Context, client.Object) error) {
	c.Helper()
	var err error
	for range 20 {
		if err = c.Get(c.ctx, client.ObjectKey{Name: name}, object); err != nil {
			break
		}
		edit(object)
		if err = write(c.ctx, object); err == nil {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	c.Fatalf("change %T %s: %v", object, name, err)
}

func (c *cluster) update(ctx context.Context, object client.Object) error {
	return c.Client.Update(ctx, object)
}

func (c *cluster) updateStatus(ctx context.Context, object client.Object) error {
	return c.Status().Update(ctx, object)
}

// eventually waits until the object of that name says what is wanted.
func eventually[T client.Object](c *cluster, what string, object T, name string, isSo func(T) bool) T {
	c.Helper()
	var err error
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		if err = c.Get(c.ctx, client.ObjectKey{Name: name}, object); err == nil && isSo(object) {
			return object
		}
	}
	c.Fatalf("%s: not within %v; error %v, object %+v", what, patience, err, object)
	return object
}

func (c *cluster) pool(what string, isSo func(*mcfgv1.MachineConfigPool) bool) *mcfgv1.MachineConfigPool {
	c.Helper()
	return eventually(c, what, &mcfgv1.MachineConfigPool{}, "worker", isSo)
}

func (c *cluster) rollout(what string, isSo func(*v1alpha1.ImageRollout) bool) *v1alpha1.ImageRollout {
	c.Helper()
	return eventually(c, what, &v1alpha1.ImageRollout{}, "worker", isSo)
}

func says(pool *mcfgv1.MachineConfigPool, kind mcfgv1.MachineConfigPoolConditionType, status corev1.ConditionStatus, reason string) bool {
	found := findCondition(pool.Status.Conditions, kind)
	return found != nil && found.Status == status && (reason == "" || found.Reason == reason)
}

// readiness sets the condition Ready of MachineOSConfig worker for its present spec.
func (c *cluster) readiness(status metav1.ConditionStatus, image string) {
	c.Helper()
	change(c, &mcfgv1.MachineOSConfig{}, "worker", func(o *mcfgv1.MachineOSConfig) {
		if image != "" {
			o.Status.CurrentImagePullSpec = mcfgv1.ImageDigestFormat(image)
		}
		meta.SetStatusCondition(&o.Status.Conditions, metav1.Condition{
			Type: machineconfiguration.ConditionReady, Status: status, Reason: "Test", ObservedGeneration: o.Generation,
		})
	}, c.updateStatus)
}

// built plays a build of a rendered config that succeeds with an image.
func (c *cluster) built(name, rendered, image string) {
	c.Helper()
	build := build(name, rendered, mcfgv1.MachineOSBuildSucceeded, image)
	build.CreationTimestamp = metav1.Time{}
	build.Spec.RenderedImagePushSpec = mcfgv1.ImageTagFormat("registry.example.com/os/worker:" + name)
	build.Status.Conditions[0].Reason, build.Status.Conditions[0].LastTransitionTime = "Test", metav1.Now()
	c.createWithStatus(&build)
}

// TestBuildsByDefault lets a pool have its MachineOSConfig by default, lets a user
// take it over, and give it back.
func TestBuildsByDefault(t *testing.T) {
	c := start(t, func(options *Options) {
		options.DefaultBuild = DefaultBuild{PushRepository: "registry.example.com/os/nodes", PushSecret: "push"}
	})
	c.create(builders.MachineConfigPool("byitself"))
	c.create(builders.MachineConfig("50-motd", "byitself", builders.File("/etc/motd", "hello\n")))
	c.create(&corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: machineconfiguration.Namespace, Name: machineconfiguration.ConfigMapStreams},
		Data:       map[string]string{"debian-12": "osImage: " + baseImage + "\nosExtensionsImage: " + extImage},
	})
	given := eventually(c, "given", &mcfgv1.MachineOSConfig{}, "byitself", func(*mcfgv1.MachineOSConfig) bool { return true })
	if given.Spec.RenderedImagePushSpec != "registry.example.com/os/nodes:latest" || given.Spec.RenderedImagePushSecret.Name != "push" {
		t.Errorf("spec %+v", given.Spec)
	}
	change(c, &mcfgv1.MachineOSConfig{}, "byitself", func(o *mcfgv1.MachineOSConfig) {
		builders.PushTo("registry.example.com/os/mine:latest", "mine")(o)
	}, c.update)
	change(c, &mcfgv1.MachineConfigPool{}, "byitself", func(p *mcfgv1.MachineConfigPool) { p.Spec.Paused = true }, c.update)
	time.Sleep(time.Second)
	taken := eventually(c, "still there", &mcfgv1.MachineOSConfig{}, "byitself", func(*mcfgv1.MachineOSConfig) bool { return true })
	if taken.Spec.RenderedImagePushSpec != "registry.example.com/os/mine:latest" {
		t.Errorf("the user's push spec became %s", taken.Spec.RenderedImagePushSpec)
	}
	if err := c.Delete(c.ctx, taken); err != nil {
		t.Fatal(err)
	}
	eventually(c, "it comes back", &mcfgv1.MachineOSConfig{}, "byitself", func(o *mcfgv1.MachineOSConfig) bool {
		return o.UID != given.UID && o.Spec.RenderedImagePushSpec == "registry.example.com/os/nodes:latest"
	})
}

func TestPoolFromStreamToRollout(t *testing.T) {
	c := start(t)
	node := builders.Node("n1", "worker")
	c.createWithStatus(node)
	c.create(builders.MachineConfig("50-motd", "worker", builders.File("/etc/motd", "hello\n")))
	c.create(builders.MachineConfigPool("worker"))

	c.pool("without a stream the pool says what to do", func(p *mcfgv1.MachineConfigPool) bool {
		return says(p, mcfgv1.MachineConfigPoolRenderDegraded, corev1.ConditionTrue, reasonNoOSImage) && p.Status.MachineCount == 1
	})
	eventually(c, "the node has its label", &corev1.Node{}, "n1", func(n *corev1.Node) bool {
		return n.Labels[machineconfiguration.LabelNodePool] == "worker"
	})

	c.create(&corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: machineconfiguration.Namespace, Name: machineconfiguration.ConfigMapStreams},
		Data:       map[string]string{"debian-12": "osImage: " + baseImage + "\nosExtensionsImage: " + extImage},
	})
	pool := c.pool("rendered", func(p *mcfgv1.MachineConfigPool) bool {
		return p.Spec.Configuration.Name != "" && p.Status.ObservedGeneration == p.Generation &&
			says(p, mcfgv1.MachineConfigPoolUpdated, corev1.ConditionFalse, "NoMachineOSConfig")
	})
	first := pool.Spec.Configuration.Name
	if len(pool.Spec.Configuration.Source) != 1 || pool.Spec.Configuration.Source[0].Name != "50-motd" {
		t.Errorf("source = %v", pool.Spec.Configuration.Source)
	}
	rendered := eventually(c, "rendered config", &mcfgv1.MachineConfig{}, first, func(*mcfgv1.MachineConfig) bool { return true })
	if rendered.Spec.OSImageURL != baseImage || !metav1.IsControlledBy(rendered, pool) ||
		rendered.Annotations[machineconfiguration.AnnotationReleaseImageVersion] == "" {
		t.Errorf("rendered config = %+v", rendered)
	}

	c.create(builders.MachineOSConfig("worker"))
	c.pool("waits for a build", func(p *mcfgv1.MachineConfigPool) bool {
		return says(p, mcfgv1.MachineConfigPoolUpdating, corev1.ConditionTrue, "BuildPending")
	})
	c.built("worker-1", first, image1)
	c.readiness(metav1.ConditionFalse, image1)
	c.pool("waits for Ready", func(p *mcfgv1.MachineConfigPool) bool {
		return says(p, mcfgv1.MachineConfigPoolUpdating, corev1.ConditionTrue, "ImageNotReady")
	})
	if err := c.Get(c.ctx, client.ObjectKey{Name: "worker"}, &v1alpha1.ImageRollout{}); client.IgnoreNotFound(err) != nil || err == nil {
		t.Fatalf("an ImageRollout before Ready: %v", err)
	}

	c.readiness(metav1.ConditionTrue, image1)
	rollout := c.rollout("handed off", func(r *v1alpha1.ImageRollout) bool { return r.Spec.Image == image1 })
	if rollout.Spec.PullSecretRef == nil || rollout.Spec.PullSecretRef.Name != "node-pull" || rollout.Spec.NodeSelector.MatchLabels["imagemode.dev/pool"] != "worker" ||
		rollout.Spec.MaxUnavailable.IntValue() != 1 || rollout.Spec.Paused {
		t.Errorf("rollout = %+v", rollout.Spec)
	}
	c.pool("waits for nodes", func(p *mcfgv1.MachineConfigPool) bool {
		return says(p, mcfgv1.MachineConfigPoolUpdating, corev1.ConditionTrue, "NodesUpdating")
	})

	image := nodeImage("n1", digest1)
	c.createWithStatus(image)
	pool = c.pool("updated", func(p *mcfgv1.MachineConfigPool) bool {
		return says(p, mcfgv1.MachineConfigPoolUpdated, corev1.ConditionTrue, "") && p.Status.ObservedGeneration == p.Generation
	})
	if pool.Status.Configuration.Name != first || pool.Status.UpdatedMachineCount != 1 || pool.Status.ReadyMachineCount != 1 ||
		pool.Status.OSImageStream.Name != "debian-12" {
		t.Errorf("status = %+v", pool.Status)
	}

	t.Run("a node is shown by its MachineConfigNode and by its annotations", func(t *testing.T) {
		shown := eventually(c, "the MachineConfigNode", &mcfgv1.MachineConfigNode{}, "n1", func(n *mcfgv1.MachineConfigNode) bool {
			return meta.IsStatusConditionTrue(n.Status.Conditions, string(mcfgv1.MachineConfigNodeUpdated))
		})
		if shown.Spec.Pool.Name != "worker" || shown.Spec.ConfigVersion.Desired != first || shown.Spec.ConfigImage.DesiredImage != image1 ||
			shown.Status.ConfigVersion.Current != first {
			t.Errorf("spec %+v, config %+v", shown.Spec, shown.Status.ConfigVersion)
		}
		eventually(c, "the annotations", &corev1.Node{}, "n1", func(n *corev1.Node) bool {
			return n.Annotations[machineconfiguration.AnnotationState] == stateDone && n.Annotations[machineconfiguration.AnnotationCurrentConfig] == first &&
				n.Annotations[machineconfiguration.AnnotationDesiredImage] == image1
		})
	})

	t.Run("nothing is written when nothing changed", func(t *testing.T) {
		change(c, &corev1.Node{}, "n1", func(n *corev1.Node) { n.Labels["touched"] = "yes" }, c.update)
		time.Sleep(time.Second)
		now := c.pool("same", func(*mcfgv1.MachineConfigPool) bool { return true })
		if now.ResourceVersion != pool.ResourceVersion {
			t.Errorf("the pool's resourceVersion went from %s to %s", pool.ResourceVersion, now.ResourceVersion)
		}
	})

	t.Run("pause reaches the rollout while a build runs, and the user's fields stay", func(t *testing.T) {
		change(c, &v1alpha1.ImageRollout{}, "worker", func(r *v1alpha1.ImageRollout) { r.Spec.MaxConcurrentStaging = 3 }, c.update)
		change(c, &mcfgv1.MachineConfigPool{}, "worker", func(p *mcfgv1.MachineConfigPool) { p.Spec.Paused = true }, c.update)
		change(c, &mcfgv1.MachineConfig{}, "50-motd", func(m *mcfgv1.MachineConfig) {
			m.Spec.Config.Raw = builders.MachineConfig("x", "worker", builders.File("/etc/motd", "changed\n")).Spec.Config.Raw
		}, c.update)
		paused := c.rollout("paused", func(r *v1alpha1.ImageRollout) bool { return r.Spec.Paused })
		if paused.Spec.Image != image1 || paused.Spec.MaxConcurrentStaging != 3 {
			t.Errorf("rollout = %+v", paused.Spec)
		}
		c.pool("leaves Updated", func(p *mcfgv1.MachineConfigPool) bool {
			return p.Spec.Configuration.Name != first && says(p, mcfgv1.MachineConfigPoolUpdated, corev1.ConditionFalse, "") &&
				says(p, mcfgv1.MachineConfigPoolUpdating, corev1.ConditionFalse, "Paused") && p.Status.ReadyMachineCount == 0 &&
				p.Status.Configuration.Name == first
		})
	})

	t.Run("a bad MachineConfig leaves the last good config in place", func(t *testing.T) {
		before := c.pool("present", func(*mcfgv1.MachineConfigPool) bool { return true }).Spec.Configuration.Name
		c.create(builders.MachineConfig("60-disk", "worker", builders.Ignition(`{"ignition":{"version":"3.4.0"},"storage":{"disks":[{"device":"/dev/sda"}]}}`)))
		degraded := c.pool("degraded", func(p *mcfgv1.MachineConfigPool) bool {
			return says(p, mcfgv1.MachineConfigPoolRenderDegraded, corev1.ConditionTrue, reasonRefusedConfig) &&
				says(p, mcfgv1.MachineConfigPoolDegraded, corev1.ConditionTrue, "RenderDegraded")
		})
		if degraded.Spec.Configuration.Name != before {
			t.Errorf("the pool went from %s to %s", before, degraded.Spec.Configuration.Name)
		}
		if err := c.Delete(c.ctx, builders.MachineConfig("60-disk", "worker")); err != nil {
			t.Fatal(err)
		}
		c.pool("healed", func(p *mcfgv1.MachineConfigPool) bool {
			return says(p, mcfgv1.MachineConfigPoolRenderDegraded, corev1.ConditionFalse, "")
		})
	})

	t.Run("a rendered config that was deleted returns", func(t *testing.T) {
		name := c.pool("present", func(*mcfgv1.MachineConfigPool) bool { return true }).Spec.Configuration.Name
		lost := &mcfgv1.MachineConfig{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if err := c.Get(c.ctx, client.ObjectKey{Name: name}, lost); err != nil {
			t.Fatal(err)
		}
		if err := c.Delete(c.ctx, lost); err != nil {
			t.Fatal(err)
		}
		eventually(c, "made again", &mcfgv1.MachineConfig{}, name, func(m *mcfgv1.MachineConfig) bool { return m.UID != lost.UID })
	})

	t.Run("a node moves to a custom pool and is contested by a second", func(t *testing.T) {
		c.create(builders.MachineConfigPool("infra"))
		change(c, &corev1.Node{}, "n1", func(n *corev1.Node) { n.Labels[builders.NodeRolePrefix+"infra"] = "" }, c.update)
		eventually(c, "moved", &corev1.Node{}, "n1", func(n *corev1.Node) bool {
			return n.Labels[machineconfiguration.LabelNodePool] == "infra"
		})
		c.pool("worker lets it go", func(p *mcfgv1.MachineConfigPool) bool { return p.Status.MachineCount == 0 })
		change(c, &corev1.Node{}, "n1", func(n *corev1.Node) { n.Labels[builders.NodeRolePrefix+"gpu"] = "" }, c.update)
		c.create(builders.MachineConfigPool("gpu"))
		for _, name := range []string{"infra", "gpu"} {
			eventually(c, "both say so", &mcfgv1.MachineConfigPool{}, name, func(p *mcfgv1.MachineConfigPool) bool {
				return says(p, mcfgv1.MachineConfigPoolNodeDegraded, corev1.ConditionTrue, "NodeInTwoPools")
			})
		}
		eventually(c, "stays", &corev1.Node{}, "n1", func(n *corev1.Node) bool { return n.Labels[machineconfiguration.LabelNodePool] == "infra" })
	})
}
