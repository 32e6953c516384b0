package controller

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/imagemode/imagemode/api/v1alpha1"
)

// failer is what the cluster needs of a test: *testing.T and *rapid.T have it.
type failer interface {
	Helper()
	Fatalf(format string, arguments ...any)
}

const testNamespace = "openshift-machine-config-operator"

var errCrash = errors.New("the controller is gone")

// cluster is an API server in memory with machines behind its nodes, and a
// controller that can be ended at any of its writes. After every write the
// invariants are looked at.
type cluster struct {
	t          failer
	client     client.WithWatch
	controller *Reconciler
	now        time.Time
	machines   map[string]*testMachine
	// writes counts the controller's writes; it crashes at the one that
	// crashAt names, before (or, when late, after) it had an effect.
	writes, crashAt int
	// evictions are those of the writes that are no writes to our objects.
	evictions int
	crashLate bool
	// rivalAt is the write before which a second controller, that believes to
	// be the leader, makes a whole pass.
	rivalAt int
	isRival bool
	// isRaced: there was one in this pass.
	isRaced bool
	// again is when the controller wants to look next; 0 for never.
	again time.Duration
	// blocked are pods that their budget keeps.
	blocked map[string]bool
	serial  int
}

// testMachine is what is behind a node: the kubelet, bootc and the agent.
type testMachine struct {
	boots          int
	booted, staged string
	isDown         bool
	// leaving is the image that the agent has asked a reboot for: it reports
	// nothing from there on, and nothing stops the machine any more.
	leaving string
	// admin is set while an administrator has the node cordoned.
	admin bool
	// meddled is set when one has uncordoned it on its way.
	meddled bool
	// wasAlone is set for what was the only node once: its drain may be behind it.
	wasAlone bool
	// failed is the image that did not come up: the machine runs the old one.
	failed *v1alpha1.Attempt
	// previous is the image to go back to; rollbacks counts by image and token.
	previous  string
	rollbacks map[string]int
	// isUnhealthyOn is the image on which the condition AppHealthy is False.
	isUnhealthyOn string
	// isIll: the kubelet says that the node is not Ready, until it reboots.
	isIll bool
}

// newScheme holds no more kinds than are used: the client in memory goes through
// all of them for every cluster.
func newScheme(t failer) *runtime.Scheme {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, policyv1.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatalf("scheme: %v", err)
		}
	}
	return scheme
}

func newCluster(t failer, nodes int) *cluster {
	t.Helper()
	return newClusterWith(t, nodes, newScheme(t))
}

// newClusterWith is for kinds that few tests need.
func newClusterWith(t failer, nodes int, scheme *runtime.Scheme) *cluster {
	t.Helper()
	return newClusterOn(t, nodes, fake.NewClientBuilder().WithScheme(scheme).WithTypeConverters(managedfields.NewDeducedTypeConverter()).
		WithStatusSubresource(withStatus(scheme)...).
		WithIndex(&corev1.Node{}, "spec.unschedulable", func(object client.Object) []string {
			return []string{strconv.FormatBool(object.(*corev1.Node).Spec.Unschedulable)}
		}).
		WithIndex(&corev1.Pod{}, "spec.nodeName", func(object client.Object) []string { return []string{object.(*corev1.Pod).Spec.NodeName} }).
		WithInterceptorFuncs(interceptor.Funcs{List: listMetadata}).
		Build())
}

func withStatus(scheme *runtime.Scheme) []client.Object {
	objects := []client.Object{&v1alpha1.ImageRollout{}, &v1alpha1.NodeImage{}, &corev1.Node{}}
	if scheme.IsGroupRegistered(batchv1.GroupName) {
		objects = append(objects, &batchv1.Job{})
	}
	return objects
}

// listMetadata lets the fake client select by the fields of nodes where only their
// metadata is asked for, as an API server does.
func listMetadata(ctx context.Context, w client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
	metadata, isIt := list.(*metav1.PartialObjectMetadataList)
	if !isIt {
		return w.List(ctx, list, options...)
	}
	nodes := &corev1.NodeList{}
	if err := w.List(ctx, nodes, options...); err != nil {
		return err
	}
	for _, node := range nodes.Items {
		metadata.Items = append(metadata.Items, metav1.PartialObjectMetadata{ObjectMeta: node.ObjectMeta})
	}
	return nil
}

// newClusterOn is a cluster on an API server without nodes and rollouts.
func newClusterOn(t failer, nodes int, server client.WithWatch) *cluster {
	t.Helper()
	c := &cluster{t: t, client: server, now: start, machines: map[string]*testMachine{}, blocked: map[string]bool{}}
	c.create(&v1alpha1.ImageRollout{ObjectMeta: metav1.ObjectMeta{Name: "worker", UID: "rollout-uid", Generation: 1}, Spec: v1alpha1.ImageRolloutSpec{
		NodeSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"pool": "worker"}}, MaxConcurrentStaging: 10,
	}})
	for range nodes {
		c.addNode()
	}
	c.startController()
	return c
}

// startController starts the controller anew, with nothing in memory.
func (c *cluster) startController() {
	c.crashAt, c.rivalAt = 0, 0
	faulty := interceptor.NewClient(c.client, interceptor.Funcs{
		Create: func(ctx context.Context, w client.WithWatch, object client.Object, options ...client.CreateOption) error {
			return c.write(func() error { return w.Create(ctx, object, options...) })
		},
		Delete: func(ctx context.Context, w client.WithWatch, object client.Object, options ...client.DeleteOption) error {
			return c.write(func() error { return w.Delete(ctx, object, options...) })
		},
		Patch: func(ctx context.Context, w client.WithWatch, object client.Object, patch client.Patch, options ...client.PatchOption) error {
			return c.write(func() error { return w.Patch(ctx, object, patch, options...) })
		},
		Apply: func(ctx context.Context, w client.WithWatch, object runtime.ApplyConfiguration, options ...client.ApplyOption) error {
			return c.write(func() error { return c.applyCounting(ctx, w, object, options...) })
		},
		SubResourceUpdate: func(ctx context.Context, w client.Client, name string, object client.Object, options ...client.SubResourceUpdateOption) error {
			return c.write(func() error { return w.SubResource(name).Update(ctx, object, options...) })
		},
		SubResourceCreate: func(ctx context.Context, w client.Client, name string, object, sub client.Object, options ...client.SubResourceCreateOption) error {
			if c.blocked[object.GetName()] {
				return tooManyRequests()
			}
			c.evictions++
			return c.write(func() error { return w.SubResource(name).Create(ctx, object, sub, options...) })
		},
	})
	c.controller = &Reconciler{
		Client: faulty, Live: c.client, Recorder: events.NewFakeRecorder(10000),
		Options: Options{Namespace: testNamespace, Clock: func() time.Time { return c.now }},
	}
}

// applyCounting applies and counts the generation of a NodeImage whose spec
// changed, which the client in memory does not.
func (c *cluster) applyCounting(ctx context.Context, w client.WithWatch, object runtime.ApplyConfiguration, options ...client.ApplyOption) error {
	before := &v1alpha1.NodeImageList{}
	if err := w.List(ctx, before); err != nil {
		return err
	}
	if err := w.Apply(ctx, object, options...); err != nil {
		return err
	}
	for _, old := range before.Items {
		if image := c.image(old.Name); image != nil && image.Spec != old.Spec && image.Generation == old.Generation {
			image.Generation++
			return w.Update(ctx, image)
		}
	}
	return nil
}

func tooManyRequests() error {
	err := apierrors.NewTooManyRequests("Cannot evict pod as it would violate the pod's disruption budget.", 10)
	err.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: policyv1.DisruptionBudgetCause, Message: "The disruption budget web needs 1 healthy pods and has 1 currently"}}
	return err
}

// write makes a write of the controller, unless it crashes there.
func (c *cluster) write(do func() error) error {
	c.writes++
	if c.writes == c.rivalAt && !c.isRival {
		c.isRival = true
		c.isRaced = true
		c.pass()
		c.isRival = false
	}
	isLast := c.writes == c.crashAt
	if isLast && !c.crashLate {
		panic(errCrash)
	}
	before := c.snapshot()
	err := do()
	c.check(before)
	if isLast {
		panic(errCrash)
	}
	return err
}

// reconcile makes one pass; a crash starts the controller anew.
func (c *cluster) reconcile() {
	c.t.Helper()
	defer func() {
		if cause := recover(); cause == errCrash { //nolint:errorlint // thrown above
			c.isRival = false
			c.startController()
		} else if cause != nil {
			panic(cause)
		}
	}()
	c.pass()
}

// pass makes one pass of a controller.
func (c *cluster) pass() {
	c.t.Helper()
	if !c.isRival {
		c.isRaced = false
	}
	result, err := c.controller.Reconcile(context.Background(), ctrl.Request{NamespacedName: types.NamespacedName{Name: "worker"}})
	if err != nil {
		c.t.Fatalf("reconcile: %v", err)
	}
	c.again = result.RequeueAfter
	if !c.isRaced { // where two wrote at a time, the next pass does
		c.checkNoGhosts()
	}
}

// checkNoGhosts: one pass frees the slots of nodes that are gone.
func (c *cluster) checkNoGhosts() {
	c.t.Helper()
	after := c.snapshot()
	if after.rollout == nil {
		return
	}
	for _, slot := range after.rollout.Status.Slots {
		if node, isThere := after.nodes[slot.Node]; !isThere || string(node.UID) != slot.NodeUID {
			c.t.Fatalf("%s is gone and keeps its slot: %+v", slot.Node, after.rollout.Status.Slots)
		}
	}
}

func (c *cluster) create(object client.Object) {
	c.t.Helper()
	if err := c.client.Create(context.Background(), object); err != nil {
		c.t.Fatalf("%v", err)
	}
}

func (c *cluster) addNode() {
	c.serial++
	name := fmt.Sprintf("worker-%d", c.serial)
	for _, other := range c.machines {
		other.wasAlone = other.wasAlone || len(c.machines) == 1
		other.meddled = other.meddled || len(c.machines) == 1 // it was not cordoned, being the only one
	}
	c.machines[name] = &testMachine{boots: 1, booted: imageA, rollbacks: map[string]int{}}
	node := newNode(c.serial).Node
	node.Labels[corev1.LabelTopologyZone] = []string{"a", "b"}[c.serial/2%2]
	node.Status.Conditions = append(node.Status.Conditions, corev1.NodeCondition{Type: "AppHealthy", Status: corev1.ConditionTrue})
	node.UID = types.UID(fmt.Sprintf("%s-uid-%d", name, c.serial))
	c.create(node)
	c.addPod(name)
}

// addPod puts a replica on the node; it ends as soon as it is evicted.
func (c *cluster) addPod(node string) {
	isController, none := true, int64(0)
	c.create(&corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "pod-" + node, Namespace: "default", UID: types.UID("pod-" + node), OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web", UID: "web", Controller: &isController}}},
		Spec:       corev1.PodSpec{NodeName: node, TerminationGracePeriodSeconds: &none, Containers: []corev1.Container{{Name: "web", Image: "web"}}},
	})
}

func (c *cluster) removeNode(name string) {
	delete(c.machines, name)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "pod-" + name}}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	image := &v1alpha1.NodeImage{ObjectMeta: metav1.ObjectMeta{Name: name}}
	for _, object := range []client.Object{node, image, pod} {
		if err := client.IgnoreNotFound(c.client.Delete(context.Background(), object)); err != nil {
			c.t.Fatalf("%v", err)
		}
	}
}

func (c *cluster) changeRollout(change func(*v1alpha1.ImageRolloutSpec)) {
	c.t.Helper()
	rollout := c.rollout()
	change(&rollout.Spec)
	rollout.Generation++
	if err := c.client.Update(context.Background(), rollout); err != nil {
		c.t.Fatalf("%v", err)
	}
}

func (c *cluster) rollout() *v1alpha1.ImageRollout {
	c.t.Helper()
	rollout := &v1alpha1.ImageRollout{}
	if err := c.client.Get(context.Background(), client.ObjectKey{Name: "worker"}, rollout); err != nil {
		c.t.Fatalf("%v", err)
	}
	return rollout
}

func (c *cluster) node(name string) *corev1.Node {
	c.t.Helper()
	node := &corev1.Node{}
	if err := c.client.Get(context.Background(), client.ObjectKey{Name: name}, node); err != nil {
		c.t.Fatalf("%v", err)
	}
	return node
}

func (c *cluster) image(name string) *v1alpha1.NodeImage {
	c.t.Helper()
	image := &v1alpha1.NodeImage{}
	if err := c.client.Get(context.Background(), client.ObjectKey{Name: name}, image); err != nil {
		if apierrors.IsNotFound(err) {
			return nil
		}
		c.t.Fatalf("%v", err)
	}
	return image
}

// administer cordons or uncordons a node as a user would.
func (c *cluster) administer(name string, cordon bool) {
	c.t.Helper()
	node := c.node(name)
	if node.Spec.Unschedulable == cordon {
		return // kubectl does nothing then
	}
	node.Spec.Unschedulable = cordon
	_, isMarked := node.Annotations[annotationCordoned] // then it counts as ours, see there
	c.machines[name].admin, c.machines[name].meddled = cordon && !isMarked, !cordon
	if err := c.client.Update(context.Background(), node); err != nil {
		c.t.Fatalf("%v", err)
	}
}

// act lets kubelet and agent of a node do their next thing.
func (c *cluster) act(name string) {
	c.t.Helper()
	m := c.machines[name]
	if m.isDown {
		m.isDown = false
		c.kubelet(name)
		c.report(name)
		return
	}
	image := c.image(name)
	if m.leaving != "" {
		c.goDown(name, image)
		return
	}
	if image == nil {
		return
	}
	target := image.Spec.DesiredImage
	isFailed := m.hasFailed(target, image.Spec.RetryToken)
	switch {
	case image.Spec.Phase == v1alpha1.PhaseRolledBack && m.booted == target && m.previous != "":
		m.leaving = m.previous
		return
	case image.Spec.Phase == v1alpha1.PhaseIdle, m.booted == target, isFailed:
	case m.staged != target:
		m.staged = target
	case image.Spec.Phase == v1alpha1.PhaseBooted:
		m.leaving = target
		return
	}
	c.report(name)
}

// goDown is the reboot; imageC never comes up, and imageD on every second
// machine: they then run what they had.
func (c *cluster) goDown(name string, image *v1alpha1.NodeImage) {
	c.t.Helper()
	m := c.machines[name]
	c.checkReboot(name, m.leaving)
	token := ""
	if image != nil {
		token = image.Spec.RetryToken
	}
	isBroken := m.leaving == imageC || (m.leaving == imageD && m.isBrokenOnD())
	switch {
	case m.leaving == m.previous && image != nil && image.Spec.Phase == v1alpha1.PhaseRolledBack:
		m.failed = &v1alpha1.Attempt{Image: m.booted, Class: v1alpha1.FailureRolledBack, Permanent: true, RetryToken: token}
		if m.rollbacks[m.booted+token]++; m.rollbacks[m.booted+token] > 1 {
			c.t.Fatalf("%s went back twice from %s", name, m.booted)
		}
		m.booted, m.previous = m.previous, ""
	case isBroken:
		m.failed = &v1alpha1.Attempt{Image: m.leaving, Class: v1alpha1.FailureFinalizeFailed, Permanent: true, RetryToken: token}
	default:
		m.booted, m.previous = m.leaving, m.booted
	}
	m.boots, m.isDown, m.staged, m.leaving, m.isIll = m.boots+1, true, "", "", false
	m.meddled = m.meddled && !c.node(name).Spec.Unschedulable // until it is cordoned again
	c.kubelet(name)
}

func (m *testMachine) hasFailed(image, token string) bool {
	return m.failed != nil && m.failed.Image == image && m.failed.RetryToken == token
}

func (m *testMachine) isBrokenOnD() bool { return m.isUnhealthyOn == "" && m.boots%2 == 0 }

// kubelet brings the Node's status in line with the machine.
func (c *cluster) kubelet(name string) {
	c.t.Helper()
	node, m := c.node(name), c.machines[name]
	status := corev1.ConditionTrue
	if m.isDown {
		status = corev1.ConditionUnknown
	} else {
		node.Status.NodeInfo.BootID = fmt.Sprintf("boot-%d", m.boots)
	}
	if m.isIll {
		status = corev1.ConditionFalse
	}
	node.Status.Conditions[0].Status, node.Status.Conditions[0].LastTransitionTime = status, metav1.NewTime(c.now)
	node.Status.Conditions[1].Status = corev1.ConditionTrue
	if m.isUnhealthyOn == m.booted {
		node.Status.Conditions[1].Status = corev1.ConditionFalse
	}
	if err := c.client.Status().Update(context.Background(), node); err != nil {
		c.t.Fatalf("%v", err)
	}
}

// cutPower: what was staged was in memory, and a reboot that was asked for does not
// come any more.
func (c *cluster) cutPower(name string) {
	c.t.Helper()
	m := c.machines[name]
	if m.isDown {
		return
	}
	m.boots, m.isDown, m.staged, m.leaving, m.isIll = m.boots+1, true, "", "", false
	c.kubelet(name)
}

// ail has the kubelet of a node that is up find it not Ready, or Ready again.
func (c *cluster) ail(name string, isIll bool) {
	c.t.Helper()
	if m := c.machines[name]; !m.isDown && m.isIll != isIll {
		m.isIll = isIll
		c.kubelet(name)
	}
}

func (c *cluster) report(name string) {
	c.t.Helper()
	image, m := c.image(name), c.machines[name]
	if image == nil {
		return
	}
	image.Status = v1alpha1.NodeImageStatus{
		ObservedGeneration: image.Generation, BootID: fmt.Sprintf("boot-%d", m.boots), Booted: hostImage(m.booted, false), LastAttempt: m.failed,
	}
	if m.staged != "" {
		image.Status.Staged = hostImage(m.staged, true)
	}
	if err := c.client.Status().Update(context.Background(), image); err != nil {
		c.t.Fatalf("%v", err)
	}
}

// settle lets everything go on, without crashes, until nothing more happens: for
// so long that no deadline is left that a controller with something to wait for
// could have in mind.
func (c *cluster) settle() {
	c.t.Helper()
	c.crashAt, c.rivalAt = 0, 0
	quiet := 0
	for range 3000 {
		before := c.writes
		c.reconcile()
		for name := range c.machines {
			c.act(name)
		}
		c.now = c.now.Add(max(10*time.Second, c.again))
		if quiet++; c.writes != before {
			quiet = 0
		}
		if (quiet == 3 && c.again == 0) || quiet == 50 {
			return
		}
	}
	c.t.Fatalf("no end after 3000 rounds: %+v", c.rollout().Status)
}
