package machineconfigpool

import (
	"context"
	"errors"
	"testing"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/imagemode/imagemode/api/machineconfiguration"
	"github.com/imagemode/imagemode/api/v1alpha1"
	"github.com/imagemode/imagemode/test/builders"
)

// A custom pool whose worker pool, or whose streams, cannot be looked up right now is
// not rendered on the default: that would be another OS.
func TestALookUpThatFailsIsNoDefault(t *testing.T) {
	away := errors.New("the API server is away")
	for name, faults := range map[string]interceptor.Funcs{
		"of the pools": {List: func(ctx context.Context, next client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
			if _, isPools := list.(*mcfgv1.MachineConfigPoolList); isPools {
				return away
			}
			return next.List(ctx, list, options...)
		}},
		"of the streams": {Get: func(ctx context.Context, next client.WithWatch, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
			if _, isStream := object.(*mcfgv1.OSImageStream); isStream {
				return away
			}
			return next.Get(ctx, key, object, options...)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			scheme := runtime.NewScheme()
			for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, mcfgv1.Install, v1alpha1.AddToScheme} {
				if err := add(scheme); err != nil {
					t.Fatal(err)
				}
			}
			object := streamsObject()
			object.Name = machineconfiguration.OSImageStreamName
			faults.Patch = func(context.Context, client.WithWatch, client.Object, client.Patch, ...client.PatchOption) error {
				t.Error("something is written")
				return nil
			}
			faults.Create = func(context.Context, client.WithWatch, client.Object, ...client.CreateOption) error {
				t.Error("something is made")
				return nil
			}
			made := fake.NewClientBuilder().WithScheme(scheme).WithObjects(
				builders.MachineConfigPool("worker", builders.Stream("debian-13")), builders.MachineConfigPool("infra"), object,
			).WithInterceptorFuncs(faults).Build()
			r := &poolReconciler{client: made, options: Options{Namespace: machineconfiguration.Namespace, Clock: clock.RealClock{}}}
			if _, err := r.Reconcile(t.Context(), reconcile.Request{NamespacedName: types.NamespacedName{Name: "infra"}}); !errors.Is(err, away) {
				t.Errorf("error %v", err)
			}
		})
	}
}

// What counts of the OSImageStream is what it says, and not which version of which
// program wrote it: an upgrade renders nothing anew.
func TestWhoWroteTheStreamsIsNoPartOfAConfig(t *testing.T) {
	names := map[string]bool{}
	for _, annotations := range []map[string]string{
		nil, {machineconfiguration.AnnotationReleaseImageVersion: "1"}, {machineconfiguration.AnnotationReleaseImageVersion: "2"},
		{machineconfiguration.AnnotationReleasePayloadImage: "registry.example.com/release" + digest},
	} {
		object := streamsObject()
		object.Annotations = annotations
		wanted, err := (&scope{pool: builders.MachineConfigPool("worker"), streams: object}).render()
		if err != nil {
			t.Fatal(err)
		}
		names[wanted.name] = true
	}
	if len(names) != 1 {
		t.Errorf("names %v", names)
	}
}
