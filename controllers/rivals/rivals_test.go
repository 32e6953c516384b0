package rivals

import (
	"context"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/imagemode/imagemode/api/machineconfiguration"
)

func TestRivalsAreFoundAndForgotten(t *testing.T) {
	zero := int32(0)
	meta := func(name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: machineconfiguration.Namespace, Name: name}
	}
	builder := meta(machineconfiguration.DeploymentMachineOSBuilder)
	for name, test := range map[string]struct {
		objects []client.Object
		want    Found
	}{
		"nothing":                       {nil, Found{}},
		"a builder":                     {[]client.Object{&appsv1.Deployment{ObjectMeta: builder}}, Found{Builder: true}},
		"a builder that is scaled to 0": {[]client.Object{&appsv1.Deployment{ObjectMeta: builder, Spec: appsv1.DeploymentSpec{Replicas: &zero}}}, Found{}},
		"a daemon":                      {[]client.Object{&appsv1.DaemonSet{ObjectMeta: meta(machineconfiguration.DaemonSetMachineConfigDaemon)}}, Found{Daemon: true}},
	} {
		t.Run(name, func(t *testing.T) {
			clock := clocktesting.NewFakePassiveClock(time.Unix(1000, 0))
			live := fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme).WithObjects(test.objects...).Build()
			watch := NewWatch(live, machineconfiguration.Namespace, clock)
			expect := func(when string, want Found) {
				t.Helper()
				if got, err := watch.Look(context.Background()); err != nil || got != want {
					t.Errorf("%s: %+v, %v; want %+v", when, got, err, want)
				}
			}
			expect("at first", test.want)
			for _, object := range test.objects {
				if err := live.Delete(context.Background(), object); err != nil {
					t.Fatal(err)
				}
			}
			expect("within the interval", test.want)
			clock.SetTime(clock.Now().Add(Interval))
			expect("after it", Found{})
		})
	}
}
