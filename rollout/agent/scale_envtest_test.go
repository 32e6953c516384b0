//go:build envtest

package agent

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/imagemode/imagemode/api/v1alpha1"
	"github.com/imagemode/imagemode/rollout/bootc"
	"github.com/imagemode/imagemode/test/envtest"
)

var (
	scaleNodes = flag.Int("scale.nodes", 5000, "simulated nodes of BenchmarkScale")
	scaleIdle  = flag.Duration("scale.idle", time.Minute, "how long nothing happens at the end of BenchmarkScale")
	// What a simulated node takes for its steps, like a server with some hundred
	// megabytes to download: each takes half to one and a half of it. Machines that
	// are faster ask more of the API server, which shares two processors with all
	// of them here.
	scaleDownload = flag.Duration("scale.download", 15*time.Second, "how long a node of BenchmarkScale downloads an image")
	scaleReboot   = flag.Duration("scale.reboot", 2*time.Minute, "how long a node of BenchmarkScale reboots")
)

const (
	scaleCommand = time.Second
	// scaleWorkers are agents that work at the same time.
	scaleWorkers = 32

	// The limits.
	scaleMemory = 300 // MB of the controller, at its peak
	scaleWait   = time.Second
	scaleWrites = 12 // per node
)

// BenchmarkScale takes an image to very many nodes of a real API server: the
// program imagemode-controller as it is deployed, and for each node the agent
// itself, on a machine in memory. maxUnavailable is a tenth of the nodes.
func BenchmarkScale(b *testing.B) {
	config := envtest.Start(b)
	config.QPS = -1
	s := newScale(b, config)
	s.makeNodes()
	program := startProgram(b, config)
	for b.Loop() {
		began := time.Now()
		s.rollOut()
		s.awaitEnd(program)
		b.ReportMetric(time.Since(began).Seconds(), "s/rollout")
	}
	s.reportWrites()
	s.reportWaits()
	s.reportIdle()
	b.ReportMetric(program.peakMegabytes(), "MB-peak")
	b.ReportMetric(scaleMemory, "MB-limit")
	if peak := program.peakMegabytes(); peak > scaleMemory {
		b.Errorf("the controller took %.0f MB, %d at most", peak, scaleMemory)
	}
}

// scale is the cluster without its controller.
type scale struct {
	*testing.B
	config *rest.Config
	client client.Client
	cache  cache.Cache
	queue  workqueue.TypedDelayingInterface[string]
	nodes  map[string]*scaleNode
	waits  *waits
	// kubeletWrites and agentWrites are counted where they are made.
	kubeletWrites, agentWrites counter
	before                     map[string]int
}

// scaleNode is a machine with its agent.
type scaleNode struct {
	mutex   sync.Mutex
	name    string
	machine *machine
	agent   *Agent
	isDown  bool
}

type counter struct {
	mutex sync.Mutex
	count int
}

func (c *counter) add() {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.count++
}

func (c *counter) value() int {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	return c.count
}

// scaleImages are what the nodes have and what they are to get.
var scaleImages = struct{ old, new bootc.Reference }{imageA, imageB}

func newScale(b *testing.B, config *rest.Config) *scale {
	b.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			b.Fatal(err)
		}
	}
	stored, err := cache.New(config, cache.Options{Scheme: scheme, DefaultTransform: cache.TransformStripManagedFields()})
	if err != nil {
		b.Fatal(err)
	}
	s := &scale{
		B: b, config: config, cache: stored, nodes: map[string]*scaleNode{},
		queue: workqueue.NewTypedDelayingQueue[string](), waits: newWaits(*scaleNodes / 10),
	}
	s.client, err = client.New(config, client.Options{Scheme: scheme, Cache: &client.CacheOptions{Reader: stored}})
	if err != nil {
		b.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	b.Cleanup(func() { s.queue.ShutDown(); stop() })
	s.watch(ctx)
	for range scaleWorkers {
		go s.work(ctx)
	}
	return s
}

// watch lets agents follow their NodeImages, and takes the times.
func (s *scale) watch(ctx context.Context) {
	s.Helper()
	for _, object := range []client.Object{&v1alpha1.NodeImage{}, &corev1.Node{}} {
		informer, err := s.cache.GetInformer(ctx, object)
		if err != nil {
			s.Fatal(err)
		}
		seen := func(object any) {
			switch object := object.(type) {
			case *v1alpha1.NodeImage:
				s.waits.seeImage(object, time.Now())
				s.queue.Add(object.Name)
			case *corev1.Node:
				s.waits.seeNode(object, time.Now())
			}
		}
		_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
			AddFunc: seen, UpdateFunc: func(_, object any) { seen(object) },
		})
		if err != nil {
			s.Fatal(err)
		}
	}
	go func() { _ = s.cache.Start(ctx) }()
	if !s.cache.WaitForCacheSync(ctx) {
		s.Fatal("the cache does not come up")
	}
}

// makeNodes makes nodes of about the size that they have in a cluster.
func (s *scale) makeNodes() {
	s.Helper()
	s.inParallel(func(index int) error {
		name := fmt.Sprintf("node-%04d", index)
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"pool": "worker"}}}
		if err := s.client.Create(context.Background(), node); err != nil {
			return err
		}
		for image := range 25 {
			node.Status.Images = append(node.Status.Images, corev1.ContainerImage{
				Names: []string{fmt.Sprintf("registry.example.com/team/application-%02d@sha256:%064x", image, image), fmt.Sprintf("registry.example.com/team/application-%02d:v1", image)}, SizeBytes: 1 << 27,
			})
		}
		node.Status.NodeInfo.BootID = "boot-1"
		node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Now()}}
		return s.client.Status().Update(context.Background(), node)
	})
	for index := range *scaleNodes {
		n := &scaleNode{name: fmt.Sprintf("node-%04d", index), machine: newMachine(scaleImages.old, time.Now)}
		n.agent = s.newAgent(n)
		s.nodes[n.name] = n
	}
}

func (s *scale) inParallel(do func(index int) error) {
	s.Helper()
	indexes, failed := make(chan int), make(chan error, scaleWorkers)
	for range scaleWorkers {
		go func() {
			var first error
			for index := range indexes {
				if err := do(index); err != nil && first == nil {
					first = err
				}
			}
			failed <- first
		}()
	}
	for index := range *scaleNodes {
		indexes <- index
	}
	close(indexes)
	for range scaleWorkers {
		if err := <-failed; err != nil {
			s.Fatal(err)
		}
	}
}

// countingClient counts what the agents write.
type countingClient struct {
	client.Client
	writes *counter
}

func (c countingClient) SubResource(name string) client.SubResourceClient {
	return countingStatus{c.Client.SubResource(name), c.writes}
}

type countingStatus struct {
	client.SubResourceClient
	writes *counter
}

func (c countingStatus) Apply(ctx context.Context, object runtime.ApplyConfiguration, options ...client.SubResourceApplyOption) error {
	c.writes.add()
	return c.SubResourceClient.Apply(ctx, object, options...)
}

func (s *scale) newAgent(n *scaleNode) *Agent {
	return &Agent{
		client: countingClient{s.client, &s.agentWrites}, live: s.client, recorder: &events.FakeRecorder{},
		host: n.machine, clock: time.Now, options: Options{NodeName: n.name, PullSecretDir: "/nonexistent"},
	}
}

// work lets agents make their passes.
func (s *scale) work(ctx context.Context) {
	for {
		name, isEnd := s.queue.Get()
		if isEnd {
			return
		}
		s.pass(ctx, s.nodes[name])
		s.queue.Done(name)
	}
}

// pass is one pass of an agent; what it started ends some time later.
func (s *scale) pass(ctx context.Context, n *scaleNode) {
	n.mutex.Lock()
	defer n.mutex.Unlock()
	if n.isDown {
		return
	}
	result, err := n.agent.Reconcile(ctx, ctrl.Request{NamespacedName: client.ObjectKey{Name: n.name}})
	if err != nil {
		result.RequeueAfter = time.Second
	}
	if n.machine.rebootAsked {
		n.isDown = true
		time.AfterFunc(spread(*scaleReboot), func() { s.reboot(ctx, n) })
		return
	}
	if command := n.machine.units[unitBootc]; command != nil && command.State == CommandRunning {
		takes := scaleCommand
		if verb, _ := bootc.Describe(command.Arguments); verb == bootc.Stage {
			takes = *scaleDownload
		}
		time.AfterFunc(spread(takes), func() {
			n.mutex.Lock()
			n.machine.finish()
			n.mutex.Unlock()
			s.queue.Add(n.name)
		})
		return
	}
	s.queue.AddAfter(n.name, result.RequeueAfter)
}

// spread is a time about as long: machines are not alike.
func spread(d time.Duration) time.Duration { return d/2 + rand.N(d) }

// reboot is the machine's; its kubelet says that it went and that it is back.
func (s *scale) reboot(ctx context.Context, n *scaleNode) {
	n.mutex.Lock()
	defer n.mutex.Unlock()
	s.kubelet(ctx, n.name, `{"status":{"conditions":[{"type":"Ready","status":"Unknown"}]}}`)
	n.machine.reboot()
	n.agent, n.isDown = s.newAgent(n), false
	boot, _ := n.machine.BootID(ctx)
	s.kubelet(ctx, n.name, fmt.Sprintf(`{"status":{"nodeInfo":{"bootID":%q},"conditions":[{"type":"Ready","status":"True","lastTransitionTime":%q}]}}`, boot, time.Now().UTC().Format(time.RFC3339)))
	s.queue.Add(n.name)
}

func (s *scale) kubelet(ctx context.Context, name, patch string) {
	s.kubeletWrites.add()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if err := s.client.Status().Patch(ctx, node, client.RawPatch("application/strategic-merge-patch+json", []byte(patch))); err != nil {
		s.Errorf("node %s: %v", name, err)
	}
}

// rollOut writes the rollout and waits until all nodes run its image.
func (s *scale) rollOut() {
	s.Helper()
	s.before = s.serverWrites()
	anyZone, tenth := "", intstr.FromString("10%")
	rollout := &v1alpha1.ImageRollout{ObjectMeta: metav1.ObjectMeta{Name: "worker"}, Spec: v1alpha1.ImageRolloutSpec{
		Image: scaleImages.new.String(), NodeSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"pool": "worker"}},
		MaxUnavailable: &tenth, MaxConcurrentStaging: 500, TopologyKey: &anyZone,
	}}
	if err := s.client.Create(context.Background(), rollout); err != nil {
		s.Fatal(err)
	}
}

// awaitEnd waits until all nodes are updated and the rollout says so.
func (s *scale) awaitEnd(program *program) {
	s.Helper()
	deadline := time.Now().Add(45 * time.Minute)
	said := time.Now()
	for {
		done, out := s.waits.progress()
		rollout := &v1alpha1.ImageRollout{}
		if err := s.client.Get(context.Background(), client.ObjectKey{Name: "worker"}, rollout); client.IgnoreNotFound(err) != nil {
			s.Fatal(err)
		}
		if done == *scaleNodes && out == 0 && int(rollout.Status.Nodes.Updated) == *scaleNodes && len(rollout.Status.Slots) == 0 {
			return
		}
		if time.Now().After(deadline) || program.hasEnded() {
			s.Fatalf("%d of %d nodes are updated, %d are out of service: %+v", done, *scaleNodes, out, rollout.Status.Conditions)
		}
		if time.Since(said) > 15*time.Second {
			said = time.Now()
			worst, of := s.waits.longest()
			s.Logf("%d of %d nodes updated, %d out of service, longest wait %s %s, controller at %.0f MB",
				done, *scaleNodes, out, worst.Round(time.Millisecond), of, program.peakMegabytes())
		}
		time.Sleep(500 * time.Millisecond)
	}
}
