//go:build envtest

package agent

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/imagemode/imagemode/api/v1alpha1"
	"github.com/imagemode/imagemode/test/envtest"
)

// TestAnAgentThatActsAsItsNode: as a service of the host the agent has the
// kubelet's credential, and writes its own node's NodeImage only.
func TestAnAgentThatActsAsItsNode(t *testing.T) {
	config := envtest.Start(t)
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	as := func(user rest.ImpersonationConfig) client.Client {
		own := rest.CopyConfig(config)
		own.Impersonate = user
		made, err := client.New(own, client.Options{Scheme: scheme})
		if err != nil {
			t.Fatal(err)
		}
		return made
	}
	admin := as(rest.ImpersonationConfig{})
	for _, file := range []string{"rbac/agent_role.yaml", "agent/service/nodes.yaml", "policies/node_own_image.yaml"} {
		applyFile(t, admin, filepath.Join("../../config", file))
	}
	for _, name := range []string{"node-a", "node-b"} {
		image := &v1alpha1.NodeImage{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.NodeImageSpec{Rollout: "worker", Phase: v1alpha1.PhaseIdle}}
		if err := admin.Create(t.Context(), image); err != nil {
			t.Fatal(err)
		}
	}
	node := as(rest.ImpersonationConfig{UserName: "system:node:node-a", Groups: []string{"system:nodes", "system:authenticated"}})
	writeStatus := func(ctx context.Context, name string) error {
		image := &v1alpha1.NodeImage{ObjectMeta: metav1.ObjectMeta{Name: name}}
		return node.Status().Patch(ctx, image, client.RawPatch("application/merge-patch+json", []byte(`{"status":{"bootID":"1"}}`)))
	}
	// The server enforces a policy some moments after it was created.
	err := wait.PollUntilContextTimeout(t.Context(), 100*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		return apierrors.IsForbidden(writeStatus(ctx, "node-b")), nil
	})
	if err != nil {
		t.Fatalf("a node may write another node's status: %v", err)
	}
	if err := writeStatus(t.Context(), "node-b"); !strings.Contains(err.Error(), "a node writes only its own NodeImage") {
		t.Errorf("refused by something else: %v", err)
	}
	if err := writeStatus(t.Context(), "node-a"); err != nil {
		t.Errorf("its own status: %v", err)
	}
	spec := client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"phase":"Booted"}}`))
	if err := node.Patch(t.Context(), &v1alpha1.NodeImage{ObjectMeta: metav1.ObjectMeta{Name: "node-a"}}, spec); !apierrors.IsForbidden(err) {
		t.Errorf("its own spec: %v", err)
	}
}

func applyFile(t *testing.T, admin client.Client, path string) {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, document := range strings.Split(string(content), "\n---\n") {
		object := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(document), &object.Object); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		if err := admin.Create(t.Context(), object); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
	}
}
