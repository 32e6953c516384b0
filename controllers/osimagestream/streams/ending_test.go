package streams

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func pool(name, stream string) mcfgv1.MachineConfigPool {
	return mcfgv1.MachineConfigPool{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       mcfgv1.MachineConfigPoolSpec{OSImageStream: mcfgv1.OSImageStreamReference{Name: stream}},
	}
}

func TestRequests(t *testing.T) {
	for name, tc := range map[string]struct {
		pools []mcfgv1.MachineConfigPool
		of    string
		want  Request
	}{
		"a custom pool names its own":         {[]mcfgv1.MachineConfigPool{pool("infra", "b"), pool("worker", "a")}, "infra", Request{Explicit: "b", Worker: "a"}},
		"a custom pool inherits worker's":     {[]mcfgv1.MachineConfigPool{pool("infra", ""), pool("worker", "a")}, "infra", Request{Worker: "a"}},
		"a custom pool, worker names none":    {[]mcfgv1.MachineConfigPool{pool("infra", ""), pool("worker", "")}, "infra", Request{}},
		"a custom pool without a worker pool": {[]mcfgv1.MachineConfigPool{pool("infra", "")}, "infra", Request{}},
		"master names its own":                {[]mcfgv1.MachineConfigPool{pool("master", "b"), pool("worker", "a")}, "master", Request{Explicit: "b"}},
		"master does not inherit":             {[]mcfgv1.MachineConfigPool{pool("master", ""), pool("worker", "a")}, "master", Request{}},
		"worker does not inherit from itself": {[]mcfgv1.MachineConfigPool{pool("worker", "a")}, "worker", Request{Explicit: "a"}},
		"worker names none":                   {[]mcfgv1.MachineConfigPool{pool("worker", "")}, "worker", Request{}},
		"arbiter does not inherit":            {[]mcfgv1.MachineConfigPool{pool("arbiter", ""), pool("worker", "a")}, "arbiter", Request{}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, Requests(tc.pools)[tc.of]); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestEnding(t *testing.T) {
	object := &mcfgv1.OSImageStream{
		Spec:   mcfgv1.OSImageStreamSpec{DefaultStream: "a"},
		Status: mcfgv1.OSImageStreamStatus{DefaultStream: "a", AvailableStreams: sets("a", "b", "c")},
	}
	uses := Uses(object, Requests([]mcfgv1.MachineConfigPool{pool("worker", "b"), pool("infra", ""), pool("master", ""), pool("lost", "x")}))
	if diff := cmp.Diff([]Use{{"a", []string{"master"}}, {"b", []string{"infra", "worker"}}}, uses); diff != "" {
		t.Fatal(diff)
	}
	for name, tc := range map[string]struct {
		traits map[string]Traits
		next   *Source
		want   []string
	}{
		"nothing is known of the next release": {},
		"the next release has all":             {next: &Source{Streams: sets("a", "b", "c")}},
		"a stream that nobody uses may go":     {next: &Source{Streams: sets("a", "b")}},
		"a stream in use goes":                 {next: &Source{Streams: sets("a", "d")}, want: []string{"the next release has no OS image stream b, which is used by MachineConfigPools infra, worker; move them to another one first (a)"}},
		"a deprecated one in use":              {traits: map[string]Traits{"a": {Deprecated: true}, "c": {Deprecated: true}}, want: []string{"the next release has no OS image stream a, which is used by MachineConfigPools master; move them to another one first (b)"}},
		"a next release without any": {next: &Source{}, want: []string{
			"the next release has no OS image stream a, which is used by MachineConfigPools master; move them to another one first (there is none yet)",
			"the next release has no OS image stream b, which is used by MachineConfigPools infra, worker; move them to another one first (there is none yet)",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, ending := range Ending(uses, tc.traits, tc.next, object.Status.AvailableStreams) {
				got = append(got, ending.Message)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}
