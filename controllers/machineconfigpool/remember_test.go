package machineconfigpool

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/imagemode/imagemode/api/machineconfiguration"
	"github.com/imagemode/imagemode/api/v1alpha1"
	"github.com/imagemode/imagemode/controllers/rivals"
)

// withARecord is the world in which image 1 was handed off from this MachineOSConfig,
// while the build of config 2 is in a state.
func withARecord(state mcfgv1.BuildProgress) *world {
	w := aWorld()
	w.osConfig, w.rollout = osConfig(false, image1), handedOff(image1)
	w.osConfig.UID = "present"
	w.builds[1] = build("worker-2", config2, state, "")
	w.record(handOffRecord{OSConfig: "present", Image: image1, PullSecret: "node-pull"})
	return w
}

func (w *world) record(record handOffRecord) {
	text, err := json.Marshal(record)
	if err != nil {
		panic(err)
	}
	metav1.SetMetaDataAnnotation(&w.pool.ObjectMeta, machineconfiguration.AnnotationHandedOff, string(text))
}

func (w *world) scope() *scope {
	return &scope{pool: w.pool, osConfig: w.osConfig, builds: w.builds, rollout: w.rollout}
}

func TestWhatIsPutBackWhileThereIsNoNewerImage(t *testing.T) {
	isDeleted := func(w *world) { w.rollout = nil }
	isEdited := func(w *world) {
		w.rollout.Spec.Image, w.rollout.Spec.NodeSelector, w.rollout.Spec.PullSecretRef = image2, withLabel("mine"), nil
		w.rollout.Annotations = nil
	}
	isLeaving := func(w *world) { w.osConfig.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)} }
	isAbandoned := func(w *world) {
		isLeaving(w)
		w.osConfig.Annotations = map[string]string{machineconfiguration.AnnotationAbandon: ""}
	}
	type changes []func(*world)
	for name, tc := range map[string]struct {
		state   mcfgv1.BuildProgress
		changes changes
		// want is the image; empty: the rollout is left as it is.
		want        string
		isForgotten bool
	}{
		"deleted while a build runs":   {mcfgv1.MachineOSBuilding, changes{isDeleted}, image1, false},
		"deleted after a build failed": {mcfgv1.MachineOSBuildFailed, changes{isDeleted}, image1, false},
		"edited while a build runs":    {mcfgv1.MachineOSBuilding, changes{isEdited}, image1, false},
		"edited after a build failed":  {mcfgv1.MachineOSBuildFailed, changes{isEdited}, image1, false},
		"emptied":                      {mcfgv1.MachineOSBuilding, changes{func(w *world) { w.rollout.Spec = v1alpha1.ImageRolloutSpec{} }}, image1, false},
		"deleted, and nodes cannot pull the newer image": {mcfgv1.MachineOSBuildSucceeded, changes{isDeleted, func(w *world) {
			w.builds[1].Status.DigestedImagePushSpec = image2
			w.osConfig.Status.CurrentImagePullSpec = image2
		}}, image1, false},
		"deleted, and an edit takes that image's place":   {mcfgv1.MachineOSBuilding, changes{isDeleted, func(w *world) { w.osConfig.Status.CurrentImagePullSpec = image2 }}, image1, false},
		"deleted, and the MachineOSConfig is being, too":  {mcfgv1.MachineOSBuilding, changes{isLeaving, isDeleted}, "", false},
		"edited while the MachineOSConfig is deleted":     {mcfgv1.MachineOSBuilding, changes{isLeaving, isEdited}, image1, false},
		"emptied while the MachineOSConfig is deleted":    {mcfgv1.MachineOSBuilding, changes{isLeaving, func(w *world) { w.rollout.Spec = v1alpha1.ImageRolloutSpec{} }}, "", false},
		"deleted with a MachineOSConfig that is given up": {mcfgv1.MachineOSBuilding, changes{isAbandoned, isDeleted}, "", false},
		"the record is of an earlier MachineOSConfig":     {mcfgv1.MachineOSBuilding, changes{isDeleted, func(w *world) { w.osConfig.UID = "later" }}, "", false},
		"there is none":                              {mcfgv1.MachineOSBuilding, changes{isDeleted, func(w *world) { w.pool.Annotations = nil }}, "", false},
		"it is no record":                            {mcfgv1.MachineOSBuilding, changes{isDeleted, func(w *world) { w.pool.Annotations[machineconfiguration.AnnotationHandedOff] = "image1" }}, "", false},
		"no build vouches for it":                    {mcfgv1.MachineOSBuilding, changes{isDeleted, func(w *world) { w.builds = w.builds[1:] }}, "", true},
		"no build vouches for it, and it was edited": {mcfgv1.MachineOSBuilding, changes{func(w *world) { w.builds = w.builds[1:]; w.rollout.Spec.Image = image2 }}, image2, false},
		"one of another MachineOSConfig does":        {mcfgv1.MachineOSBuilding, changes{isDeleted, func(w *world) { w.builds[0].OwnerReferences = ownedBy("other") }}, "", true},
	} {
		t.Run(name, func(t *testing.T) {
			w := withARecord(tc.state)
			for _, change := range tc.changes {
				change(w)
			}
			s := w.scope()
			got, isNeeded := orderFor(w.pool, s.target(), w.rollout, Options{Namespace: "ns"})
			if isNeeded != (tc.want != "") || got.image != tc.want || s.isForgotten() != tc.isForgotten {
				t.Fatalf("needed %t: %+v; forgotten %t", isNeeded, got, s.isForgotten())
			}
			said := awaitedBy(w.status())
			if strings.Contains(said, "ImageRollout worker is gone") != tc.isForgotten {
				t.Errorf("the pool says %q", said)
			}
			if tc.want != image1 {
				return
			}
			want := order{
				image: image1, config: config1, nodeSelector: nodesOf("worker"), maxUnavailable: got.maxUnavailable,
				pullSecret: &v1alpha1.SecretReference{Name: "node-pull", Namespace: "ns"},
			}
			if diff := cmp.Diff(want, got, cmp.AllowUnexported(order{})); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// awaitedBy is what the pool says of what it waits for.
func awaitedBy(status mcfgv1.MachineConfigPoolStatus) string {
	_, message := condition(status, mcfgv1.MachineConfigPoolUpdating)
	return message
}

// A cache that still shows the pool as it was before the last hand-off must not take
// the nodes back.
func TestNothingIsPutBackFromAnOldRecord(t *testing.T) {
	w := withARecord(mcfgv1.MachineOSBuilding)
	stale := w.pool.DeepCopy()
	stale.ResourceVersion = "1"
	w.record(handOffRecord{OSConfig: "present", Image: image2, PullSecret: "node-pull"})
	w.pool.ResourceVersion = "2"
	w.rollout = handedOff(image2)
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, mcfgv1.Install, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	server := fake.NewClientBuilder().WithScheme(scheme).WithObjects(w.pool, w.rollout).Build()
	r := &poolReconciler{client: server, events: events.NewFakeRecorder(9), rivals: rivals.NewWatch(server, "ns", clock.RealClock{})}
	w.pool = stale
	s := w.scope()
	if err := r.handOff(t.Context(), s, s.target(), &rendered{}); !isConflict(err) {
		t.Errorf("error %v, want a conflict", err)
	}
	now := &v1alpha1.ImageRollout{}
	if err := server.Get(t.Context(), client.ObjectKey{Name: "worker"}, now); err != nil || now.Spec.Image != image2 {
		t.Errorf("the rollout has image %s, %v", now.Spec.Image, err)
	}
}

// TestAHandOffThatIsRefusedIsSaid: it is tried for ever, and the log is not where
// users look.
func TestAHandOffThatIsRefusedIsSaid(t *testing.T) {
	w := withARecord(mcfgv1.MachineOSBuilding)
	w.rollout = handedOff(image1)
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, mcfgv1.Install, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	server := fake.NewClientBuilder().WithScheme(scheme).WithObjects(w.pool, w.rollout).WithInterceptorFuncs(interceptor.Funcs{
		Apply: func(context.Context, client.WithWatch, runtime.ApplyConfiguration, ...client.ApplyOption) error {
			return apierrors.NewForbidden(schema.GroupResource{Resource: "imagerollouts"}, "worker", errors.New("policy keep-out"))
		},
	}).Build()
	said := events.NewFakeRecorder(9)
	r := &poolReconciler{client: server, events: said, rivals: rivals.NewWatch(server, "ns", clock.RealClock{})}
	s := w.scope()
	if err := r.handOff(t.Context(), s, s.target(), &rendered{live: &v1alpha1.LiveContent{TrustBundle: "x"}}); err == nil {
		t.Error("the hand-off succeeded")
	}
	select {
	case event := <-said.Events:
		if !strings.HasPrefix(event, "Warning HandOffRefused ") || !strings.Contains(event, "policy keep-out") {
			t.Errorf("event %q", event)
		}
	default:
		t.Error("nothing was said")
	}
}
