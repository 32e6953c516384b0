//go:build envtest

package envtest

import (
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// What the API server says to objects that break a rule of the API.
const (
	noName       = "a RFC 1123 subdomain must consist of lower case alphanumeric characters"
	noDigest     = "must end with a valid '@sha256:<digest>' suffix"
	noHost       = "should follow the host[:port][/namespace]/name format"
	notPublished = "spec.defaultStream must reference an existing stream name from status.availableStreams"
	notAvailable = "defaultStream must reference a stream name from availableStreams"
	isRequired   = "Required value"
	tooLong      = "may not be more than"
)

// object is of a kind of the API, with a spec that need not be what the Go types
// would write.
func object(kind, name string, spec any) *unstructured.Unstructured {
	made := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "machineconfiguration.openshift.io/v1", "kind": kind, "metadata": map[string]any{"name": name},
	}}
	if spec != nil {
		made.Object["spec"] = spec
	}
	return made
}

func stream(name, image string) map[string]any {
	return map[string]any{"name": name, "osImage": image, "osExtensionsImage": "registry.example.com/os/extensions" + someDigest}
}

func status(byDefault any, streams ...any) map[string]any {
	return map[string]any{"defaultStream": byDefault, "availableStreams": streams}
}

const goodImage = "registry.example.com:5000/os/one" + someDigest

// TestTheAPIOfOSImageStreams tries what the installed CRD says of the one object:
// everything that is written here relies on it.
func TestTheAPIOfOSImageStreams(t *testing.T) {
	admin := newClient(t, Start(t))
	long := strings.Repeat("a", 254)
	for sentence, test := range map[string]struct {
		name    string
		spec    any
		refused string
	}{
		"the least there can be":            {"cluster", map[string]any{"defaultStream": "rhel-9"}, ""},
		"no spec":                           {"cluster", nil, isRequired},
		"no default":                        {"cluster", map[string]any{}, isRequired},
		"an empty default":                  {"cluster", map[string]any{"defaultStream": ""}, "should be at least 1 chars long"},
		"another name":                      {"mine", map[string]any{"defaultStream": "rhel-9"}, "osimagestream is a singleton, .metadata.name must be 'cluster'"},
		"a default that is no name":         {"cluster", map[string]any{"defaultStream": "RHEL_9"}, noName},
		"a default that is too long":        {"cluster", map[string]any{"defaultStream": long}, tooLong},
		"a default of the greatest length":  {"cluster", map[string]any{"defaultStream": long[1:]}, ""},
		"a default with dots between names": {"cluster", map[string]any{"defaultStream": "rhel-9.6"}, ""},
	} {
		t.Run("created: "+sentence, func(t *testing.T) {
			checkRefusal(t, admin.Create(t.Context(), object("OSImageStream", test.name, test.spec), client.DryRunAll), test.refused)
		})
	}

	cluster := object("OSImageStream", "cluster", map[string]any{"defaultStream": "soon"})
	create(t, admin, cluster)
	patch := func(t *testing.T, part string, value any, options ...client.PatchOption) error {
		t.Helper()
		raw, err := json.Marshal(map[string]any{part: value})
		if err != nil {
			t.Fatal(err)
		}
		return admin.Patch(t.Context(), cluster.DeepCopy(), client.RawPatch("application/merge-patch+json", raw), options...)
	}
	patchStatus := func(t *testing.T, value any, options ...client.SubResourcePatchOption) error {
		t.Helper()
		raw, err := json.Marshal(map[string]any{"status": value})
		if err != nil {
			t.Fatal(err)
		}
		return admin.Status().Patch(t.Context(), cluster.DeepCopy(), client.RawPatch("application/merge-patch+json", raw), options...)
	}
	t.Run("before there is a status any default is taken", func(t *testing.T) {
		checkRefusal(t, patch(t, "spec", map[string]any{"defaultStream": "rhel-9"}), "")
	})

	var many []any
	for i := range 101 {
		many = append(many, stream(fmt.Sprintf("s-%d", i), goodImage))
	}
	for sentence, test := range map[string]struct {
		status  any
		refused string
	}{
		"two streams":                          {status("rhel-9", stream("rhel-9", goodImage), stream("rhel-10", "10.0.0.1/os"+someDigest)), ""},
		"a hundred":                            {status("s-0", many[:100]...), ""},
		"a hundred and one":                    {status("s-0", many...), "must have at most 100 items"},
		"no default":                           {map[string]any{"availableStreams": []any{stream("a", goodImage)}}, isRequired},
		"no streams":                           {map[string]any{"defaultStream": "a"}, isRequired},
		"an empty list of streams":             {map[string]any{"defaultStream": "a", "availableStreams": []any{}}, "should have at least 1 items"},
		"two of one name":                      {status("a", stream("a", goodImage), stream("a", goodImage)), "Duplicate value"},
		"a default that is none of them":       {status("x", stream("a", goodImage)), notAvailable},
		"a default that is no name":            {status("A_b", stream("a", goodImage)), noName},
		"a default that is too long":           {status(long, stream("a", goodImage)), tooLong},
		"a stream that is no name":             {status("a", stream("a", goodImage), stream("B", goodImage)), noName},
		"a stream of a name too long":          {status("a", stream("a", goodImage), stream(long, goodImage)), tooLong},
		"a stream without an extensions image": {status("a", map[string]any{"name": "a", "osImage": goodImage}), isRequired},
		"a stream without an OS image":         {status("a", map[string]any{"name": "a", "osExtensionsImage": goodImage}), isRequired},
		"an image without a digest":            {status("a", stream("a", "registry.example.com/os:1")), noDigest},
		"a digest that is short":               {status("a", stream("a", "registry.example.com/os@sha256:abc")), noDigest},
		"a digest in capitals":                 {status("a", stream("a", "registry.example.com/os"+strings.ToUpper(someDigest))), noDigest},
		"an image of a host without a dot":     {status("a", stream("a", "localhost/os"+someDigest)), noHost},
		"an image with a scheme":               {status("a", stream("a", "https://registry.example.com/os"+someDigest)), noHost},
		"an image in two namespaces":           {status("a", stream("a", "registry.example.com/a/b/os"+someDigest)), noHost},
		"an image that is too long":            {status("a", stream("a", "registry.example.com/"+strings.Repeat("a", 400)+someDigest)), tooLong},
	} {
		t.Run("published: "+sentence, func(t *testing.T) {
			checkRefusal(t, patchStatus(t, test.status, client.DryRunAll), test.refused)
		})
	}

	both := status("rhel-9", stream("rhel-9", goodImage), stream("rhel-10", goodImage))
	if err := patchStatus(t, both); err != nil {
		t.Fatal(err)
	}
	for sentence, test := range map[string]struct {
		byDefault any
		refused   string
	}{
		"another stream that there is": {"rhel-10", ""},
		"the same again":               {"rhel-9", ""},
		"one that there is not":        {"rhel-11", notPublished},
		"what is no name":              {"RHEL_10", noName},
		"none at all":                  {nil, isRequired},
	} {
		t.Run("the default is changed to "+sentence, func(t *testing.T) {
			checkRefusal(t, patch(t, "spec", map[string]any{"defaultStream": test.byDefault}, client.DryRunAll), test.refused)
		})
	}
	t.Run("a stream goes although it is the default in spec, as in an upgrade that was forced", func(t *testing.T) {
		gone := status("rhel-10", stream("rhel-10", goodImage))
		checkRefusal(t, patchStatus(t, gone), "")
		checkRefusal(t, patchStatus(t, maps.Clone(gone)), "")
		for byDefault, refused := range map[string]string{"rhel-9": "", "rhel-11": notPublished, "rhel-10": ""} {
			t.Run(byDefault, func(t *testing.T) {
				checkRefusal(t, patch(t, "spec", map[string]any{"defaultStream": byDefault}, client.DryRunAll), refused)
			})
		}
		checkRefusal(t, patch(t, "metadata", map[string]any{"labels": map[string]any{"edited": "yes"}}), "")
		checkRefusal(t, patch(t, "spec", map[string]any{"defaultStream": "rhel-10"}), "")
	})
}

// TestTheAPIOfAPoolsStream tries spec.osImageStream and status.osImageStream of a
// pool without the policy, which looks at the streams there are.
func TestTheAPIOfAPoolsStream(t *testing.T) {
	admin := newClient(t, Start(t))
	pool := object("MachineConfigPool", "worker", map[string]any{})
	create(t, admin, pool)
	long := strings.Repeat("a", 254)
	for sentence, test := range map[string]struct {
		stream  any
		refused string
	}{
		"a name":                      {map[string]any{"name": "rhel-10"}, ""},
		"another one":                 {map[string]any{"name": "rhel-9.6"}, ""},
		"none":                        {nil, ""},
		"an empty one":                {map[string]any{"name": ""}, "should be at least 1 chars long"},
		"no name in it":               {map[string]any{"name": nil}, isRequired},
		"characters that no name has": {map[string]any{"name": "rhel 10!"}, noName},
		"capitals":                    {map[string]any{"name": "RHEL-10"}, noName},
		"253 bytes":                   {map[string]any{"name": long[1:]}, ""},
		"254 bytes":                   {map[string]any{"name": long}, tooLong},
	} {
		t.Run(sentence, func(t *testing.T) {
			for _, before := range []string{`{"osImageStream":null}`, `{"osImageStream":{"name":"debian-12"}}`} {
				for _, part := range []string{"spec", "status"} {
					raw, err := json.Marshal(map[string]any{part: map[string]any{"osImageStream": test.stream}})
					if err != nil {
						t.Fatal(err)
					}
					write := func(raw string, isDry bool) error {
						patch := client.RawPatch("application/merge-patch+json", []byte(raw))
						switch {
						case part == "status" && isDry:
							return admin.Status().Patch(t.Context(), pool.DeepCopy(), patch, client.DryRunAll)
						case part == "status":
							return admin.Status().Patch(t.Context(), pool.DeepCopy(), patch)
						case isDry:
							return admin.Patch(t.Context(), pool.DeepCopy(), patch, client.DryRunAll)
						}
						return admin.Patch(t.Context(), pool.DeepCopy(), patch)
					}
					if err := write(`{"`+part+`":`+before+`}`, false); err != nil {
						t.Fatal(err)
					}
					checkRefusal(t, write(string(raw), true), test.refused)
				}
			}
		})
	}
}
