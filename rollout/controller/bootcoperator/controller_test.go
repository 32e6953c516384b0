package bootcoperator

import (
	"context"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/managedfields"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/imagemode/imagemode/api/v1alpha1"
)

var (
	imageA = "registry.example/os@sha256:" + strings.Repeat("a", 64)
	imageB = "registry.example/os@sha256:" + strings.Repeat("b", 64)
)

func digestOf(image string) string { return image[strings.Index(image, "@")+1:] }

// bench is the backend on an API server in memory; writes counts what it writes.
type bench struct {
	t      *testing.T
	client client.Client
	writes int
	// refuses is what the API server says to a BootcNodePool; nil: it takes it.
	refuses error
	r       *Reconciler
}

func newBench(t *testing.T, change func(*v1alpha1.ImageRolloutSpec)) *bench {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	for _, kind := range []string{"BootcNodePool", "BootcNode"} {
		scheme.AddKnownTypeWithName(groupVersion.WithKind(kind), &unstructured.Unstructured{})
		scheme.AddKnownTypeWithName(groupVersion.WithKind(kind+"List"), &unstructured.UnstructuredList{})
	}
	rollout := &v1alpha1.ImageRollout{ObjectMeta: metav1.ObjectMeta{Name: "worker", UID: "rollout-uid", Generation: 1}}
	limit := intstr.FromString("10%")
	rollout.Spec = v1alpha1.ImageRolloutSpec{
		Image: imageB, NodeSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"pool": "worker"}}, MaxUnavailable: &limit,
		PullSecretRef: &v1alpha1.SecretReference{Name: "pull", Namespace: "ns"},
	}
	change(&rollout.Spec)
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "n1-uid", Labels: map[string]string{"pool": "worker"}}}
	node.Status.NodeInfo.BootID = "boot-1"
	b := &bench{t: t}
	b.client = fake.NewClientBuilder().WithScheme(scheme).WithTypeConverters(managedfields.NewDeducedTypeConverter()).
		WithStatusSubresource(&v1alpha1.ImageRollout{}, &v1alpha1.NodeImage{}).WithObjects(rollout, node).
		WithInterceptorFuncs(interceptor.Funcs{
			Apply: func(ctx context.Context, c client.WithWatch, object runtime.ApplyConfiguration, options ...client.ApplyOption) error {
				b.writes++
				if named, isNamed := object.(interface{ GetKind() string }); b.refuses != nil && isNamed && named.GetKind() == "BootcNodePool" {
					return b.refuses
				}
				return c.Apply(ctx, object, options...)
			},
			SubResourceApply: func(ctx context.Context, c client.Client, name string, object runtime.ApplyConfiguration, options ...client.SubResourceApplyOption) error {
				b.writes++
				return c.SubResource(name).Apply(ctx, object, options...)
			},
		}).Build()
	b.r = &Reconciler{Client: b.client, Live: b.client}
	return b
}

func (b *bench) pass() {
	b.t.Helper()
	if _, err := b.r.Reconcile(context.Background(), ctrl.Request{NamespacedName: client.ObjectKey{Name: "worker"}}); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) pool() map[string]any {
	b.t.Helper()
	pool, err := b.r.readPool(context.Background(), "worker")
	if err != nil {
		b.t.Fatal(err)
	}
	if pool == nil {
		return nil
	}
	spec, _, _ := unstructured.NestedMap(pool.Object, "spec")
	return spec
}

func (b *bench) condition(kind string) string {
	b.t.Helper()
	rollout := &v1alpha1.ImageRollout{}
	if err := b.client.Get(context.Background(), client.ObjectKey{Name: "worker"}, rollout); err != nil {
		b.t.Fatal(err)
	}
	found := meta.FindStatusCondition(rollout.Status.Conditions, kind)
	if found == nil {
		return ""
	}
	return string(found.Status) + " " + found.Reason
}

func TestARolloutBecomesAPool(t *testing.T) {
	b := newBench(t, func(s *v1alpha1.ImageRolloutSpec) { s.Reboot.Policy = v1alpha1.RebootSoftIfCapable })
	b.pass()
	want := map[string]any{
		"nodeSelector":  map[string]any{"matchLabels": map[string]any{"pool": "worker"}},
		"image":         map[string]any{"ref": imageB},
		"rollout":       map[string]any{"paused": false, "maxUnavailable": "10%"},
		"disruption":    map[string]any{"rebootPolicy": "AllowSoftReboot"},
		"pullSecretRef": map[string]any{"name": "pull", "namespace": "ns"},
	}
	if diff := cmp.Diff(want, b.pool()); diff != "" {
		t.Errorf("pool (-want +got):\n%s", diff)
	}
	if got := b.condition("Progressing"); got != "True Updating" {
		t.Errorf("Progressing %s", got)
	}
	writes := b.writes
	b.pass()
	if b.writes != writes {
		t.Errorf("%d writes though nothing changed", b.writes-writes)
	}
}

func TestWhatTheOperatorCannotDoIsRefused(t *testing.T) {
	tests := map[string]func(*v1alpha1.ImageRolloutSpec){
		"spec.windows":              func(s *v1alpha1.ImageRolloutSpec) { s.Windows = []v1alpha1.MaintenanceWindow{{Cron: "0 1 * * *"}} },
		"spec.canary":               func(s *v1alpha1.ImageRolloutSpec) { s.Canary = &v1alpha1.CanarySpec{} },
		"spec.drain.deleteEmptyDir": func(s *v1alpha1.ImageRolloutSpec) { s.Drain.DeleteEmptyDir = new(false) },
		"spec.live":                 func(s *v1alpha1.ImageRolloutSpec) { s.Live = &v1alpha1.LiveContent{TrustBundle: "x"} },
	}
	for field, change := range tests {
		t.Run(field, func(t *testing.T) {
			b := newBench(t, change)
			b.pass()
			if b.pool() != nil || b.condition("Degraded") != "True NotSupported" {
				t.Errorf("pool %v, Degraded %s", b.pool(), b.condition("Degraded"))
			}
		})
	}
}

// TestWhatKeepsAPoolFromBeingWrittenIsSaid: it is tried again for ever.
func TestWhatKeepsAPoolFromBeingWrittenIsSaid(t *testing.T) {
	b := newBench(t, func(*v1alpha1.ImageRolloutSpec) {})
	b.refuses = apierrors.NewBadRequest("unknown field spec.disruption")
	b.pass()
	if b.pool() != nil || b.condition("Degraded") != "True PoolRefused" || b.condition("Progressing") != "False PoolRefused" {
		t.Errorf("Degraded %s, Progressing %s", b.condition("Degraded"), b.condition("Progressing"))
	}
	b.refuses = nil
	b.pass()
	if b.pool() == nil || b.condition("Degraded") != "False AsExpected" {
		t.Errorf("then: Degraded %s", b.condition("Degraded"))
	}
	b = newBench(t, func(s *v1alpha1.ImageRolloutSpec) {
		s.NodeSelector.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: "a b", Operator: metav1.LabelSelectorOpExists}}
	})
	b.pass()
	if b.pool() != nil || b.condition("Degraded") != "True InvalidSelector" {
		t.Errorf("with a selector that is not valid: Degraded %s", b.condition("Degraded"))
	}
}

func TestNothingIsHandedOverWithoutAnImage(t *testing.T) {
	b := newBench(t, func(s *v1alpha1.ImageRolloutSpec) { s.Image = "" })
	b.pass()
	if b.pool() != nil || b.condition("Progressing") != "False NoImage" {
		t.Errorf("pool %v, Progressing %s", b.pool(), b.condition("Progressing"))
	}
}

func TestWhatTheOperatorReportsIsShown(t *testing.T) {
	b := newBench(t, func(*v1alpha1.ImageRolloutSpec) {})
	b.pass()
	pool, err := b.r.readPool(context.Background(), "worker")
	if err != nil {
		t.Fatal(err)
	}
	now := "2026-05-01T12:00:00Z"
	pool.Object["status"] = map[string]any{
		"nodeCount": int64(1), "degradedCount": int64(1),
		"conditions": []any{
			map[string]any{"type": "UpToDate", "status": "False", "reason": "RolloutInProgress", "message": "0/1", "lastTransitionTime": now},
			map[string]any{"type": "Degraded", "status": "True", "reason": "NodeDegraded", "message": "n1: no space", "lastTransitionTime": now},
		},
	}
	if err := b.client.Update(context.Background(), pool); err != nil {
		t.Fatal(err)
	}
	node := &unstructured.Unstructured{Object: map[string]any{
		"spec": map[string]any{"desiredImage": imageB, "desiredImageState": "Staged"},
		"status": map[string]any{
			"booted":     map[string]any{"image": imageA, "imageDigest": digestOf(imageA)},
			"staged":     map[string]any{"image": imageB, "imageDigest": digestOf(imageB)},
			"conditions": []any{map[string]any{"type": "Degraded", "status": "True", "reason": "Error", "message": "no space", "lastTransitionTime": now}},
		},
	}}
	node.SetGroupVersionKind(groupVersion.WithKind("BootcNode"))
	node.SetName("n1")
	if err := b.client.Create(context.Background(), node); err != nil {
		t.Fatal(err)
	}
	b.pass()
	if got := []string{b.condition("Progressing"), b.condition("Degraded")}; !cmp.Equal(got, []string{"True Updating", "True NodeDegraded"}) {
		t.Errorf("conditions %v", got)
	}
	image := &v1alpha1.NodeImage{}
	if err := b.client.Get(context.Background(), client.ObjectKey{Name: "n1"}, image); err != nil {
		t.Fatal(err)
	}
	if image.Status.Booted.Digest != digestOf(imageA) || image.Status.BootID != "boot-1" || image.Spec.Phase != v1alpha1.PhaseStaged || image.Status.LastAttempt.Message != "no space" {
		t.Errorf("NodeImage %+v", image)
	}
	b.pass() // the generation of the NodeImage is in its status now
	writes := b.writes
	b.pass()
	if b.writes != writes {
		t.Errorf("%d writes though nothing changed", b.writes-writes)
	}
}
