//go:build envtest

package envtest

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"

	"github.com/imagemode/imagemode/api/machineconfiguration"
	"github.com/imagemode/imagemode/api/v1alpha1"
)

const agentUser = "system:serviceaccount:" + machineconfiguration.Namespace + ":imagemode-agent"

// TestConfig applies what config/ holds to a real API server, which checks it,
// and sees that the policy does what it is for.
func TestConfig(t *testing.T) {
	server := Start(t)
	admin := newClient(t, server)
	for _, namespace := range []string{machineconfiguration.Namespace, "openshift-config"} {
		create(t, admin, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}})
	}
	for _, folder := range []string{"rbac", "openshift-pull-secret", "pools", "policies", "samples"} {
		for _, object := range readFolder(t, folder) {
			create(t, admin, object)
		}
	}
	for _, name := range []string{"node-a", "node-b"} {
		create(t, admin, &v1alpha1.NodeImage{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec:       v1alpha1.NodeImageSpec{Rollout: "worker", Phase: v1alpha1.PhaseIdle},
		})
	}
	t.Run("agents", func(t *testing.T) { testAgentPolicy(t, server) })
	t.Run("streams", func(t *testing.T) { testStreamPolicies(t, server) })
	t.Run("the platform's pull secret", func(t *testing.T) { testPullSecretRights(t, server) })
	t.Run("pools", func(t *testing.T) { testPoolPolicy(t, admin) })
}

// testPullSecretRights reads as the controller's ServiceAccount.
func testPullSecretRights(t *testing.T, server *rest.Config) {
	config := rest.CopyConfig(server)
	config.Impersonate = rest.ImpersonationConfig{UserName: "system:serviceaccount:" + machineconfiguration.Namespace + ":imagemode-controller"}
	controller := newClient(t, config)
	for name, isAllowed := range map[string]bool{"pull-secret": true, "other": false} {
		err := controller.Get(t.Context(), client.ObjectKey{Namespace: "openshift-config", Name: name}, &corev1.Secret{})
		if apierrors.IsNotFound(err) != isAllowed || apierrors.IsForbidden(err) == isAllowed {
			t.Errorf("Secret %s: allowed %t, error %v", name, isAllowed, err)
		}
	}
}

// testPoolPolicy sets spec.maxUnavailable of a pool, which the API takes any text for.
func testPoolPolicy(t *testing.T, admin client.Client) {
	set := func(value string) error {
		pool := &mcfgv1.MachineConfigPool{ObjectMeta: metav1.ObjectMeta{Name: "worker"}}
		return admin.Patch(t.Context(), pool, client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"maxUnavailable":`+value+`}}`)))
	}
	err := wait.PollUntilContextTimeout(t.Context(), 100*time.Millisecond, time.Minute, true, func(context.Context) (bool, error) {
		return set("-1") != nil, nil
	})
	if err != nil {
		t.Fatalf("the policy is not enforced: %v", err)
	}
	for value, isRefused := range map[string]bool{
		`0`: false, `3`: false, `"0%"`: false, `"50%"`: false, `"100%"`: false, `null`: false,
		`-1`: true, `"3"`: true, `"many"`: true, `"101%"`: true, `"-5%"`: true, `"5.5%"`: true,
	} {
		err := set(value)
		switch {
		case !isRefused && err != nil:
			t.Errorf("%s is refused: %v", value, err)
		case isRefused && (err == nil || !strings.Contains(err.Error(), "of MachineConfigPool worker is neither a number of nodes nor a percentage")):
			t.Errorf("%s: error %v", value, err)
		}
	}
}

// testAgentPolicy writes as the agents' ServiceAccount with a token from node-a.
func testAgentPolicy(t *testing.T, server *rest.Config) {
	agentOnA := newClient(t, impersonate(server, "node-a"))
	agentOfOldToken := newClient(t, impersonate(server, ""))
	waitForPolicy(t, agentOnA)

	tests := map[string]struct {
		agent   client.Client
		write   func(context.Context, client.Client) error
		refused string
	}{
		"an agent writes the status of its own node": {
			agent: agentOnA, write: writeStatus("node-a"),
		},
		"an agent does not write the status of another node": {
			agent: agentOnA, write: writeStatus("node-b"), refused: "may not write the NodeImage of another node",
		},
		"a token that names no node writes nothing": {
			agent: agentOfOldToken, write: writeStatus("node-a"), refused: "may not write the NodeImage of another node",
		},
		"an agent does not write the spec, by its role": {
			agent: agentOnA, write: writeSpec("node-a"), refused: "cannot patch resource",
		},
	}
	for sentence, test := range tests {
		t.Run(sentence, func(t *testing.T) {
			err := test.write(t.Context(), test.agent)
			switch {
			case test.refused == "" && err != nil:
				t.Errorf("refused: %v", err)
			case test.refused != "" && (!apierrors.IsForbidden(err) || !strings.Contains(err.Error(), test.refused)):
				t.Errorf("error is %v, want Forbidden with %q", err, test.refused)
			}
		})
	}
}

// waitForPolicy waits until the server enforces the policy, which it does some
// moments after the policy was created.
func waitForPolicy(t *testing.T, agent client.Client) {
	t.Helper()
	err := wait.PollUntilContextTimeout(t.Context(), 100*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		return apierrors.IsForbidden(writeStatus("node-b")(ctx, agent)), nil
	})
	if err != nil {
		t.Fatalf("the policy is not enforced: %v", err)
	}
}

func writeStatus(node string) func(context.Context, client.Client) error {
	return func(ctx context.Context, agent client.Client) error {
		image := &v1alpha1.NodeImage{ObjectMeta: metav1.ObjectMeta{Name: node}}
		return agent.Status().Patch(ctx, image, client.RawPatch("application/merge-patch+json", []byte(`{"status":{"bootID":"1"}}`)))
	}
}

func writeSpec(node string) func(context.Context, client.Client) error {
	return func(ctx context.Context, agent client.Client) error {
		image := &v1alpha1.NodeImage{ObjectMeta: metav1.ObjectMeta{Name: node}}
		return agent.Patch(ctx, image, client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"phase":"Booted"}}`)))
	}
}

// impersonate returns the configuration of an agent whose token is bound to a
// pod on a node, or to none.
func impersonate(server *rest.Config, node string) *rest.Config {
	config := rest.CopyConfig(server)
	config.Impersonate = rest.ImpersonationConfig{UserName: agentUser, Groups: []string{"system:serviceaccounts", "system:authenticated"}}
	if node != "" {
		config.Impersonate.Extra = map[string][]string{"authentication.kubernetes.io/node-name": {node}}
	}
	return config
}

func newClient(t *testing.T, config *rest.Config) client.Client {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := errors.Join(corev1.AddToScheme(scheme), v1alpha1.AddToScheme(scheme), mcfgv1.Install(scheme)); err != nil {
		t.Fatal(err)
	}
	made, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	return made
}

func create(t *testing.T, admin client.Client, object client.Object) {
	t.Helper()
	if err := admin.Create(t.Context(), object); err != nil {
		t.Fatalf("create %s %s: %v", object.GetObjectKind().GroupVersionKind().Kind, object.GetName(), err)
	}
}

// readFolder returns the objects in the files of a folder of config/.
func readFolder(t *testing.T, folder string) []client.Object {
	t.Helper()
	root, err := moduleRoot()
	if err != nil {
		t.Fatal(err)
	}
	paths, err := filepath.Glob(filepath.Join(root, "config", folder, "*.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var objects []client.Object
	for _, path := range paths {
		if filepath.Base(path) != "kustomization.yaml" {
			objects = append(objects, readFile(t, path)...)
		}
	}
	return objects
}

func readFile(t *testing.T, path string) []client.Object {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	var objects []client.Object
	for decoder := yaml.NewYAMLOrJSONDecoder(file, 4096); ; {
		object := &unstructured.Unstructured{}
		err := decoder.Decode(object)
		if errors.Is(err, io.EOF) {
			return objects
		}
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		objects = append(objects, object)
	}
}
