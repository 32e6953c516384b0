//go:build envtest

package envtest

import (
	"context"
	"strings"
	"testing"
	"time"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/imagemode/imagemode/test/builders"
)

const (
	unknownStream = "must reference a valid stream from the cluster OSImageStream resource"
	someDigest    = "@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
)

// testStreamPolicies tries what users do with pools and the OSImageStream: before
// there is one, before it has a status, and with streams that come and go.
func testStreamPolicies(t *testing.T, server *rest.Config) {
	scheme := runtime.NewScheme()
	if err := mcfgv1.Install(scheme); err != nil {
		t.Fatal(err)
	}
	admin, err := client.New(server, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	// The server needs a moment to know the kind of the parameter.
	waitUntil(t, func(ctx context.Context) bool {
		return admin.Create(ctx, builders.MachineConfigPool("early", builders.Stream("any"))) == nil
	})
	stream := &mcfgv1.OSImageStream{ObjectMeta: metav1.ObjectMeta{Name: "cluster"}, Spec: mcfgv1.OSImageStreamSpec{DefaultStream: "a"}}
	create(t, admin, stream)
	create(t, admin, builders.MachineConfigPool("soon", builders.Stream("any")))
	publish(t, admin, stream, "a", "b")
	waitForStreams(t, admin)
	create(t, admin, builders.MachineConfigPool("infra", builders.Stream("b")))
	publish(t, admin, stream, "a")
	waitUntil(t, func(ctx context.Context) bool {
		return isRefused(admin.Create(ctx, builders.MachineConfigPool("probe", builders.Stream("b")), client.DryRunAll), unknownStream)
	})
	for sentence, test := range map[string]struct{ pool, patch, refused string }{
		"an unknown stream is refused":                    {"early", `{"spec":{"osImageStream":{"name":"x"}}}`, unknownStream},
		"a known one is taken":                            {"early", `{"spec":{"osImageStream":{"name":"a"}}}`, ""},
		"a pool whose stream has gone can be paused":      {"infra", `{"spec":{"paused":true}}`, ""},
		"and can keep a stream that it has named already": {"infra", `{"spec":{"osImageStream":{"name":"b"},"paused":false}}`, ""},
		"but cannot go to another unknown one":            {"infra", `{"spec":{"osImageStream":{"name":"c"}}}`, unknownStream},
		"a stream can be taken away":                      {"soon", `{"spec":{"osImageStream":null}}`, ""},
	} {
		t.Run(sentence, func(t *testing.T) {
			err := admin.Patch(t.Context(), builders.MachineConfigPool(test.pool), client.RawPatch("application/merge-patch+json", []byte(test.patch)), client.DryRunAll)
			if test.refused == "" && err != nil || test.refused != "" && !isRefused(err, test.refused) {
				t.Errorf("error %v, want %q", err, test.refused)
			}
		})
	}
	t.Run("the object stays", func(t *testing.T) {
		if err := admin.Delete(t.Context(), stream); !isRefused(err, "Deletion of OSImageStream resources is not allowed") {
			t.Errorf("error %v", err)
		}
	})
}

func publish(t *testing.T, admin client.Client, stream *mcfgv1.OSImageStream, names ...string) {
	t.Helper()
	stream.Status = mcfgv1.OSImageStreamStatus{DefaultStream: names[0]}
	for _, name := range names {
		stream.Status.AvailableStreams = append(stream.Status.AvailableStreams, mcfgv1.OSImageStreamSet{
			Name: name, OSImage: "registry.example.com/os" + someDigest, OSExtensionsImage: "registry.example.com/os" + someDigest,
		})
	}
	if err := admin.Status().Update(t.Context(), stream); err != nil {
		t.Fatal(err)
	}
}

// waitForStreams waits until the policy knows the streams: a known one passes,
// another does not.
func waitForStreams(t *testing.T, admin client.Client) {
	t.Helper()
	waitUntil(t, func(ctx context.Context) bool {
		return admin.Create(ctx, builders.MachineConfigPool("probe", builders.Stream("b")), client.DryRunAll) == nil &&
			isRefused(admin.Create(ctx, builders.MachineConfigPool("probe", builders.Stream("x")), client.DryRunAll), unknownStream)
	})
}

func waitUntil(t *testing.T, isSo func(context.Context) bool) {
	t.Helper()
	err := wait.PollUntilContextTimeout(t.Context(), 100*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		return isSo(ctx), nil
	})
	if err != nil {
		t.Fatalf("the policy is not enforced: %v", err)
	}
}

func isRefused(err error, message string) bool {
	return err != nil && strings.Contains(err.Error(), message)
}
