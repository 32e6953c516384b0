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

// twoPools is a cluster with a worker pool on debian-13 and the custom pool infra.
func twoPools(t *testing.T, faults interceptor.Funcs) client.Client {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, mcfgv1.Install, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	object := streamsObject()
	object.Name = machineconfiguration.OSImageStreamName
	return fake.NewClientBuilder().WithScheme(scheme).WithObjects(
		builders.MachineConfigPool("worker", builders.Stream("debian-13")), builders.MachineConfigPool("infra"), object,
	).WithInterceptorFuncs(faults).Build()
}

// With the feature gate OSStreams closed there are no streams, and with it open, or
// when something else keeps them, those of the object.
func TestTheFeatureGateAndWhoKeepsTheStreams(t *testing.T) {
	const runc = "[crio.runtime]\ndefault_runtime = \"runc\"\n"
	mine := builders.MachineConfig("50-mine", "worker", builders.OSImageURL("registry.example.com/mine"+digest))
	dropIn := builders.MachineConfig("60-runc", "worker", builders.File("/etc/crio/crio.conf.d/99-runc", runc))
	for name, tc := range map[string]struct {
		options Options
		configs []*mcfgv1.MachineConfig
		image   string
		reason  string
	}{
		"open":                                     {Options{}, nil, "registry.example.com/os/debian-13" + digest, ""},
		"closed, and no image is named":            {Options{WithoutStreams: true}, nil, "", reasonNoOSImage},
		"closed, and one is, with runc":            {Options{WithoutStreams: true}, []*mcfgv1.MachineConfig{mine, dropIn}, "registry.example.com/mine" + digest, ""},
		"something else keeps them, and runc":      {Options{StreamsElsewhere: true}, []*mcfgv1.MachineConfig{dropIn}, "registry.example.com/os/debian-13" + digest, ""},
		"kept here, and nobody has read the label": {Options{}, []*mcfgv1.MachineConfig{dropIn}, "", "wait"},
	} {
		t.Run(name, func(t *testing.T) {
			made := twoPools(t, interceptor.Funcs{})
			for _, config := range tc.configs {
				if err := made.Create(t.Context(), config.DeepCopy()); err != nil {
					t.Fatal(err)
				}
			}
			r := &poolReconciler{client: made, options: tc.options}
			s, err := r.gather(t.Context(), "worker")
			if err != nil {
				t.Fatal(err)
			}
			wanted, err := s.render()
			var wait *waitError
			got := reasonOf(err)
			if errors.As(err, &wait) {
				got = "wait"
			}
			if got != tc.reason || wanted != nil && wanted.spec.OSImageURL != tc.image {
				t.Errorf("%+v, error %v; want %s, %q", wanted, err, tc.image, tc.reason)
			}
		})
	}
}

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
			faults.Patch = func(context.Context, client.WithWatch, client.Object, client.Patch, ...client.PatchOption) error {
				t.Error("something is written")
				return nil
			}
			faults.Create = func(context.Context, client.WithWatch, client.Object, ...client.CreateOption) error {
				t.Error("something is made")
				return nil
			}
			r := &poolReconciler{client: twoPools(t, faults), options: Options{Namespace: machineconfiguration.Namespace, Clock: clock.RealClock{}}}
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
