//go:build envtest

package controller

import (
	"context"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/imagemode/imagemode/api/v1alpha1"
	"github.com/imagemode/imagemode/test/envtest"
)

const goodImage = "registry.example:5000/os@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

// TestTheAPIServerRefuses: what makes no sense is refused when it is written, by
// a message that names the field.
func TestTheAPIServerRefuses(t *testing.T) {
	server, err := client.New(envtest.Start(t), client.Options{Scheme: newScheme(t)})
	if err != nil {
		t.Fatal(err)
	}
	tests := map[string]struct {
		spec string
		want string // empty: accepted
	}{
		"nothing at all":                 {"{}", ""},
		"an image by digest":             {"image: " + goodImage, ""},
		"an image by tag":                {"image: registry.example/os:latest", "a tag can move and is not accepted"},
		"an upper-case repository":       {"image: registry.example/OS@" + strings.Split(goodImage, "@")[1], "in lower case"},
		"a port that does not exist":     {"image: registry.example:99999/os@" + strings.Split(goodImage, "@")[1], "image must name a repository and a digest"},
		"the highest port":               {"image: Registry.example:65535/a/b_c@" + strings.Split(goodImage, "@")[1], ""},
		"an option in place of an image": {"image: --apply", "image must name a repository and a digest"},
		"a percentage above 100":         {"maxUnavailable: 101%", "maxUnavailable must be a number of nodes"},
		"a negative maxUnavailable":      {"maxUnavailable: -1", "maxUnavailable must be a number of nodes"},
		"a failure budget of 0":          {"failureBudget: 0", "failureBudget must be a number of nodes"},
		"a failure budget of 0 %":        {"failureBudget: 0%", "failureBudget must be a number of nodes (1 or more) or a percentage from 1% to 100%"},
		"a failure budget of 1 %":        {"failureBudget: 1%", ""},
		"a failure budget of all":        {"failureBudget: 100%", ""},
		"a zone that is no label":        {"topologyKey: a b/c d", "spec.topologyKey: Invalid value: \"a b/c d\": topologyKey must be the key of a label"},
		"a zone with two slashes":        {"topologyKey: a/b/c", "topologyKey must be the key of a label"},
		"a zone that ends with a dash":   {"topologyKey: a-", "topologyKey must be the key of a label"},
		"a zone with a name of 64":       {"topologyKey: a/" + strings.Repeat("x", 64), "topologyKey must be the key of a label"},
		"a zone of another label":        {"topologyKey: a-1.example.com/Rack_No.1", ""},
		"a zone without a prefix":        {"topologyKey: rack", ""},
		"a Secret by a path":             {"pullSecretRef: {name: a/b, namespace: ns}", "spec.pullSecretRef.name: Invalid value: \"a/b\": name must be the name of a Secret"},
		"a Secret in upper case":         {"pullSecretRef: {name: Pull, namespace: ns}", "name must be the name of a Secret"},
		"a namespace with a dot":         {"pullSecretRef: {name: pull, namespace: a.b}", "spec.pullSecretRef.namespace: Invalid value: \"a.b\": namespace must be the name of a namespace"},
		"a Secret":                       {"pullSecretRef: {name: pull.secret-1, namespace: openshift-machine-config-operator}", ""},
		"a canary of both kinds":         {"canary: {nodes: 1, nodeSelector: {}}", "set either nodes or nodeSelector"},
		"a canary of no kind":            {"canary: {soak: 1m}", "set either nodes or nodeSelector"},
		"a soak for ever":                {"soak: 25h", "soak must be between 0s and 24h"},
		"a window without an end":        {"windows: [{cron: '0 1 * * *', duration: 0s}]", "duration must be between 1m and 168h"},
		"a window in local time":         {"windows: [{cron: '0 1 * * *', duration: 1h, timeZone: Local}]", "name an IANA time zone"},
		"a gate that says nothing":       {"gates: [{name: a}]", "set exactly one of nodeCondition, pods and job"},
		"a gate that says two things":    {"gates: [{name: a, nodeCondition: {type: X}, pods: {namespace: a, selector: {}}}]", "set exactly one of nodeCondition, pods and job"},
		// What the API cannot check holds the rollout: see TestAGateThatIsNotValidDisturbsNoNode.
		"a gate with a selector that makes no sense": {"gates: [{name: a, pods: {namespace: a, selector: {matchLabels: {'a b': c}}}}]", ""},
		"a drain that may take no time":              {"drain: {timeout: 0s}", "timeout must be longer than 0s"},
		"a drain policy that does not exist":         {"drain: {onTimeout: Panic}", `Unsupported value: "Panic"`},
		"a rollback at once":                         {"rollback: {deadline: 1s}", "deadline must be between 1m and 24h"},
		"a rollback in centuries":                    {"rollback: {deadline: 2562047h}", "deadline must be between 1m and 24h"},
		"a drift policy that does not exist":         {"drift: Ignore", `Unsupported value: "Ignore"`},
		"everything that there is, if correct":       {"{canary: {nodes: 2, soak: 5m}, soak: 1m, failureBudget: 20%, topologyKey: '', drift: Correct, reboot: {policy: SoftIfCapable, timeout: 20m}, rollback: {enabled: false}, windows: [{cron: '0 1 * * *', duration: 1h, timeZone: Europe/Berlin}], gates: [{name: a, nodeCondition: {type: X}}, {name: b, job: {cronJob: check}}], drain: {onTimeout: Force, skipPodSelector: {matchLabels: {a: b}}}}", ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			spec := map[string]any{}
			if err := yaml.Unmarshal([]byte(test.spec), &spec); err != nil {
				t.Fatal(err)
			}
			rollout := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
			rollout.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("ImageRollout"))
			rollout.SetName("worker")
			err := server.Create(context.Background(), rollout, client.DryRunAll)
			switch {
			case test.want == "" && err != nil:
				t.Errorf("refused: %v", err)
			case test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)):
				t.Errorf("error %v, want one that says %q", err, test.want)
			}
		})
	}
	t.Run("defaults", func(t *testing.T) {
		rollout := &v1alpha1.ImageRollout{}
		rollout.Name = "worker"
		if err := server.Create(context.Background(), rollout, client.DryRunAll); err != nil {
			t.Fatal(err)
		}
		if rollout.Spec.TopologyKey == nil || *rollout.Spec.TopologyKey != "topology.kubernetes.io/zone" || rollout.Spec.Drift != v1alpha1.DriftReport || rollout.Spec.MaxConcurrentStaging != 10 {
			t.Errorf("%+v", rollout.Spec)
		}
	})
}
