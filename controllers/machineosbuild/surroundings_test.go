package machineosbuild

import (
	"context"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	keys "github.com/imagemode/imagemode/api/machineconfiguration"
)

func TestUpdaterConflictNamesWhoAndTheWayOut(t *testing.T) {
	for name, test := range map[string]struct {
		rivals       rivals
		isRollingOut bool
		says         []string
	}{
		"nobody else":                       {rivals{}, true, nil},
		"another builder":                   {rivals{builder: true}, false, []string{"machine-os-builder", "--controllers=-machineosbuild"}},
		"another updater of nodes":          {rivals{daemon: true}, true, []string{"machine-config-daemon", "--controllers=-hand-off,-rollout"}},
		"an updater of nodes that is meant": {rivals{daemon: true}, false, nil},
		"both":                              {rivals{builder: true, daemon: true}, true, []string{"machine-os-builder", "machine-config-daemon"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := aScope(func(s *scope) { s.rivals, s.isRollingOut = test.rivals, test.isRollingOut })
			s.config.Status.Conditions = []metav1.Condition{{Type: keys.ConditionUpdaterConflict, Status: metav1.ConditionTrue}}
			status := configStatus(s, decide(s), pullCheck{}, s.now)
			found := apimeta.FindStatusCondition(status.Conditions, keys.ConditionUpdaterConflict)
			if (found != nil) != (test.says != nil) {
				t.Fatalf("condition %+v", found)
			}
			for _, text := range test.says {
				if !strings.Contains(found.Message, text) {
					t.Errorf("%q does not say %s", found.Message, text)
				}
			}
		})
	}
}

func TestOtherUpdatersAreFoundAndForgotten(t *testing.T) {
	zero := int32(0)
	meta := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: keys.Namespace, Name: name} }
	now := time.Unix(1000, 0)
	for name, test := range map[string]struct {
		objects []client.Object
		want    rivals
	}{
		"nothing":                       {nil, rivals{}},
		"a builder":                     {[]client.Object{&appsv1.Deployment{ObjectMeta: meta(keys.DeploymentMachineOSBuilder)}}, rivals{builder: true}},
		"a builder that is scaled to 0": {[]client.Object{&appsv1.Deployment{ObjectMeta: meta(keys.DeploymentMachineOSBuilder), Spec: appsv1.DeploymentSpec{Replicas: &zero}}}, rivals{}},
		"a daemon":                      {[]client.Object{&appsv1.DaemonSet{ObjectMeta: meta(keys.DaemonSetMachineConfigDaemon)}}, rivals{daemon: true}},
	} {
		t.Run(name, func(t *testing.T) {
			live := fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme).WithObjects(test.objects...).Build()
			watch := &rivalWatch{live: live, namespace: keys.Namespace, now: func() time.Time { return now }}
			if got, err := watch.look(context.Background()); err != nil || got != test.want {
				t.Errorf("%+v, %v; want %+v", got, err, test.want)
			}
			for _, object := range test.objects {
				if err := live.Delete(context.Background(), object); err != nil {
					t.Fatal(err)
				}
			}
			now = now.Add(rivalInterval)
			if got, err := watch.look(context.Background()); err != nil || got != (rivals{}) {
				t.Errorf("afterwards %+v, %v", got, err)
			}
		})
	}
}
