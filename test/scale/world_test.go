//go:build envtest

package scale

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"sync"
	"testing"
	"time"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/flowcontrol"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	keys "github.com/imagemode/imagemode/api/machineconfiguration"
	"github.com/imagemode/imagemode/api/v1alpha1"
	"github.com/imagemode/imagemode/controllers/machineconfigpool"
	rollout "github.com/imagemode/imagemode/rollout/controller"
	"github.com/imagemode/imagemode/test/builders"
	"github.com/imagemode/imagemode/test/envtest"
)

const (
	baseImage = "registry.example.com/os/debian-12@sha256:1111111111111111111111111111111111111111111111111111111111111111"
	extImage  = "registry.example.com/os/debian-12-extensions@sha256:2222222222222222222222222222222222222222222222222222222222222222"
	// The controller program's defaults.
	qps, burst = 200, 400
	// handsAtOnce is how many requests the test makes at a time.
	handsAtOnce = 16
)

// world is an API server with the controllers under test. The test's own client
// is not limited and not counted.
type world struct {
	testing.TB
	client.WithWatch
	server  *rest.Config
	known   *runtime.Scheme
	ctx     context.Context
	limiter *limiter
	// writes of the controllers, and of the agents that are played.
	writes, agentWrites *ledger
	agents              client.WithWatch
}

// limiter lets everything pass until it is set to what the program has.
type limiter struct {
	mutex sync.RWMutex
	flowcontrol.RateLimiter
}

func (l *limiter) set(to flowcontrol.RateLimiter) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	l.RateLimiter = to
}

func (l *limiter) Wait(ctx context.Context) error {
	l.mutex.RLock()
	current := l.RateLimiter
	l.mutex.RUnlock()
	return current.Wait(ctx)
}

// start runs an API server and the controllers of pools, and those of rollouts.
func start(t testing.TB) *world {
	t.Helper()
	w := newWorld(t)
	w.runControllers(true)
	return w
}

// newWorld has an API server and no controllers.
func newWorld(t testing.TB) *world {
	t.Helper()
	w := &world{TB: t, limiter: &limiter{RateLimiter: flowcontrol.NewFakeAlwaysRateLimiter()}, writes: newLedger(), agentWrites: newLedger()}
	w.server, w.known = envtest.Start(t), runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{scheme.AddToScheme, mcfgv1.Install, v1alpha1.AddToScheme} {
		w.must(add(w.known))
	}
	w.WithWatch = w.clientFor(nil)
	w.agents = w.clientFor(w.agentWrites)
	ctx, stop := context.WithCancel(context.Background())
	w.ctx = ctx
	t.Cleanup(stop)
	w.must(w.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: keys.Namespace}}))
	w.stream()
	return w
}

// runControllers runs them until the test ends, or stop is called.
func (w *world) runControllers(withRollouts bool) (stop func()) {
	w.Helper()
	counted := rest.CopyConfig(w.server)
	counted.RateLimiter = w.limiter
	counted.Wrap(w.writes.wrap)
	mgr, err := ctrl.NewManager(counted, ctrl.Options{
		Scheme: w.known, Metrics: metricsserver.Options{BindAddress: "0"}, Controller: config.Controller{SkipNameValidation: new(true)},
		Cache: cache.Options{DefaultTransform: cache.TransformStripManagedFields()},
	})
	w.must(err)
	w.must(machineconfigpool.Add(mgr, machineconfigpool.Options{Namespace: keys.Namespace}))
	if withRollouts {
		w.must(rollout.Add(mgr, rollout.Options{Namespace: keys.Namespace}))
	}
	ctx, cancel := context.WithCancel(w.ctx)
	var ended sync.WaitGroup
	ended.Go(func() {
		if err := mgr.Start(ctx); err != nil {
			w.Error(err)
		}
	})
	stop = func() { cancel(); ended.Wait() }
	w.Cleanup(stop)
	return stop
}

func (w *world) clientFor(writes *ledger) client.WithWatch {
	w.Helper()
	unlimited := rest.CopyConfig(w.server)
	unlimited.QPS = -1
	if writes != nil {
		unlimited.Wrap(writes.wrap)
	}
	made, err := client.NewWithWatch(unlimited, client.Options{Scheme: w.known})
	w.must(err)
	return made
}

func (w *world) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

// stream is the one OS stream.
func (w *world) stream() {
	w.Helper()
	object := &mcfgv1.OSImageStream{ObjectMeta: metav1.ObjectMeta{Name: keys.OSImageStreamName}, Spec: mcfgv1.OSImageStreamSpec{DefaultStream: "debian-12"}}
	w.must(w.Create(w.ctx, object))
	object.Status = mcfgv1.OSImageStreamStatus{DefaultStream: "debian-12", AvailableStreams: []mcfgv1.OSImageStreamSet{
		{Name: "debian-12", OSImage: baseImage, OSExtensionsImage: extImage},
	}}
	w.must(w.Status().Update(w.ctx, object))
}

// createAll creates objects, many at a time, with their status.
func (w *world) createAll(objects ...client.Object) {
	w.Helper()
	w.forEach(len(objects), func(i int) error {
		switch objects[i].(type) {
		case *corev1.Node, *v1alpha1.NodeImage:
			return builders.CreateWithStatus(w.ctx, w, objects[i])
		}
		return w.Create(w.ctx, objects[i])
	})
}

// forEach does something for every number, many at a time.
func (w *world) forEach(count int, do func(int) error) {
	w.Helper()
	var hands sync.WaitGroup
	next := make(chan int)
	failed := make(chan error, count)
	for range handsAtOnce {
		hands.Go(func() {
			for i := range next {
				if err := do(i); err != nil {
					failed <- err
				}
			}
		})
	}
	for i := range count {
		next <- i
	}
	close(next)
	hands.Wait()
	close(failed)
	for err := range failed {
		w.Fatal(err)
	}
}

// imageOf is the image that is built of a rendered config.
func imageOf(rendered string) string {
	sum := sha256.Sum256([]byte(rendered))
	return "registry.example.com/os/nodes@sha256:" + hex.EncodeToString(sum[:])
}

// finishBuild plays the build half for a pool: its current rendered config has an
// image, and the MachineOSConfig is Ready with it.
func (w *world) finishBuild(name string) error {
	pool := &mcfgv1.MachineConfigPool{}
	if err := w.Get(w.ctx, client.ObjectKey{Name: name}, pool); err != nil {
		return err
	}
	rendered := pool.Spec.Configuration.Name
	build := builders.MachineOSBuild("build-" + rendered)
	build.Spec.MachineConfig.Name, build.Spec.MachineOSConfig.Name = rendered, name
	build.Spec.RenderedImagePushSpec = mcfgv1.ImageTagFormat("registry.example.com/os/nodes:latest")
	if err := client.IgnoreAlreadyExists(w.Create(w.ctx, build)); err != nil {
		return err
	}
	if err := w.Get(w.ctx, client.ObjectKeyFromObject(build), build); err != nil {
		return err
	}
	if build.Status.DigestedImagePushSpec == "" {
		build.Status.DigestedImagePushSpec = mcfgv1.ImageDigestFormat(imageOf(rendered))
		build.Status.Conditions = []metav1.Condition{{Type: string(mcfgv1.MachineOSBuildSucceeded), Status: metav1.ConditionTrue, Reason: "Test", LastTransitionTime: metav1.Now()}}
		if err := builders.ReportStatus(w.ctx, w, build); err != nil {
			return err
		}
	}
	osConfig := &mcfgv1.MachineOSConfig{}
	if err := w.Get(w.ctx, client.ObjectKey{Name: name}, osConfig); err != nil {
		return err
	}
	osConfig.Status.CurrentImagePullSpec = build.Status.DigestedImagePushSpec
	meta.SetStatusCondition(&osConfig.Status.Conditions, metav1.Condition{
		Type: keys.ConditionReady, Status: metav1.ConditionTrue, Reason: "Test", ObservedGeneration: osConfig.Generation,
	})
	return builders.ReportStatus(w.ctx, w, osConfig)
}

// eventually waits until something is so.
func (w *world) eventually(what string, patience time.Duration, isSo func() (bool, error)) {
	w.Helper()
	var err error
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		var done bool
		if done, err = isSo(); err == nil && done {
			return
		}
	}
	w.dump()
	w.Fatalf("%s: not within %v (%v)", what, patience, err)
}

// dump prints what a rollout is about, of a few.
func (w *world) dump() {
	var rollouts v1alpha1.ImageRolloutList
	var images v1alpha1.NodeImageList
	var nodes corev1.NodeList
	for _, list := range []client.ObjectList{&rollouts, &images, &nodes} {
		if err := w.List(w.ctx, list, client.Limit(5)); err != nil {
			w.Log(err)
		}
	}
	for _, rollout := range rollouts.Items {
		w.Logf("ImageRollout %s: %+v, %+v", rollout.Name, rollout.Spec.Image, rollout.Status)
	}
	for _, image := range images.Items {
		w.Logf("NodeImage %s: %+v, booted %+v, staged %+v", image.Name, image.Spec, image.Status.Booted, image.Status.Staged)
	}
	for _, node := range nodes.Items {
		w.Logf("Node %s: %v, unschedulable %t, taints %v, boot %s, %+v", node.Name, node.Labels, node.Spec.Unschedulable, node.Spec.Taints, node.Status.NodeInfo.BootID, node.Status.Conditions)
	}
}

// settle waits until nothing was written for a while.
func (w *world) settle(quiet, patience time.Duration) {
	w.Helper()
	w.eventually("nothing is written any more", patience, func() (bool, error) {
		return time.Since(w.writes.lastWrite()) > quiet, nil
	})
}

// countPools counts the pools of which something is so.
func (w *world) countPools(isSo func(*mcfgv1.MachineConfigPool) bool) (int, error) {
	var pools mcfgv1.MachineConfigPoolList
	if err := w.List(w.ctx, &pools); err != nil {
		return 0, err
	}
	count := 0
	for i := range pools.Items {
		if isSo(&pools.Items[i]) {
			count++
		}
	}
	return count, nil
}

func isPool(pool *mcfgv1.MachineConfigPool, kind mcfgv1.MachineConfigPoolConditionType) bool {
	for _, condition := range pool.Status.Conditions {
		if condition.Type == kind {
			return condition.Status == corev1.ConditionTrue
		}
	}
	return false
}

func poolName(i int) string { return fmt.Sprintf("pool-%03d", i) }
