//go:build envtest

package nodepool

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/yaml"

	"github.com/imagemode/imagemode/builder/request"
	"github.com/imagemode/imagemode/controllers/osimagestream"
	"github.com/imagemode/imagemode/controllers/osimagestream/streams"
	"github.com/imagemode/imagemode/test/envtest"
)

// patience is how long a test waits for the controller, which may have to
// notice first that NodePools are served.
const patience = time.Minute

// releases stands in for the registry of release images: the version is the
// image's name. A release "down" cannot be read now, "none" does not exist,
// and the registry of "hangs" does not answer.
type releases struct{}

func (releases) Read(ctx context.Context, image string) (*streams.Payload, error) {
	switch image {
	case "hangs":
		<-ctx.Done()
		return nil, ctx.Err()
	case "down":
		return nil, errors.New("the registry is away")
	case "none":
		return nil, &osimagestream.PermanentError{Image: image, Class: request.Image, Err: errors.New("no such manifest")}
	}
	return release(image), nil
}

type server struct {
	*testing.T
	client.Client
}

func start(t *testing.T) *server {
	rest := envtest.Start(t)
	direct, err := client.New(rest, client.Options{Scheme: clientgoscheme.Scheme})
	if err != nil {
		t.Fatal(err)
	}
	s := &server{t, direct}
	mgr, err := ctrl.NewManager(rest, ctrl.Options{
		Scheme: clientgoscheme.Scheme, Metrics: metricsserver.Options{BindAddress: "0"}, Controller: config.Controller{SkipNameValidation: new(true)},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := Add(mgr, Options{Payloads: releases{}}); err != nil {
		t.Fatal(err)
	}
	stopped := make(chan error, 1)
	go func() { stopped <- mgr.Start(t.Context()) }()
	t.Cleanup(func() {
		if err := <-stopped; err != nil {
			t.Error(err)
		}
	})
	s.apply(filepath.Join("testdata", "nodepools.yaml"))
	s.apply(filepath.Join("..", "..", "config", "policies", "nodepool.yaml"))
	s.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "clusters"}})
	s.create(configMap("runc", runcConfig))
	s.create(configMap("other", otherConfig))
	s.eventually("NodePools are served", func() (bool, string) {
		err := direct.Create(t.Context(), pool("probe", "4.22.0", ""), client.DryRunAll)
		return err == nil, fmt.Sprint(err)
	})
	return s
}

func (s *server) apply(path string) {
	s.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		s.Fatal(err)
	}
	for _, document := range strings.Split(string(raw), "\n---\n") {
		object := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(document), object); err != nil {
			s.Fatal(err)
		}
		s.create(object)
	}
}

func (s *server) create(object client.Object) {
	s.Helper()
	if err := s.Create(s.Context(), object); err != nil {
		s.Fatal(err)
	}
}

func (s *server) eventually(what string, isSo func() (bool, string)) {
	s.Helper()
	last := ""
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		done, state := isSo()
		if done {
			return
		}
		last = state
	}
	s.Fatalf("%s: not within %v; %s", what, patience, last)
}

func configMap(name, text string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "clusters", Name: name}, Data: map[string]string{keyConfig: text}}
}

// pool is a NodePool; version stands in for its release image.
func pool(name, version, stream string, configs ...string) *unstructured.Unstructured {
	object := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"release": map[string]any{"image": version}}}}
	object.SetGroupVersionKind(kind)
	object.SetNamespace("clusters")
	object.SetName(name)
	if stream != "" {
		_ = unstructured.SetNestedField(object.Object, stream, "spec", "osImageStream", "name")
	}
	var list []any
	for _, config := range configs {
		list = append(list, map[string]any{"name": config})
	}
	if list != nil {
		_ = unstructured.SetNestedSlice(object.Object, list, "spec", "config")
	}
	return object
}

// outcome is what the controller said of a NodePool.
type outcome struct {
	Status, Reason, Message string
	Stream                  string
	Secret                  map[string]string
}

func (s *server) outcome(name string) outcome {
	s.Helper()
	object := pool(name, "", "")
	if err := s.Get(s.Context(), client.ObjectKeyFromObject(object), object); err != nil {
		s.Fatal(err)
	}
	decoded, err := decode(object)
	if err != nil {
		s.Fatal(err)
	}
	said, _ := findCondition(decoded.Status.Conditions)
	got := outcome{Status: said.Status, Reason: said.Reason, Message: said.Message, Stream: decoded.Status.OSImageStream.Name}
	secret := &corev1.Secret{}
	if err := s.Get(s.Context(), client.ObjectKey{Namespace: "clusters", Name: name + secretSuffix}, secret); err == nil {
		got.Secret = map[string]string{}
		for key, value := range secret.Data {
			got.Secret[key] = string(value)
		}
	} else if client.IgnoreNotFound(err) != nil {
		s.Fatal(err)
	}
	return got
}

// runs waits until the Secret says what is wanted.
func (s *server) runs(name, stream, runtimes, reason string) outcome {
	s.Helper()
	var got outcome
	s.eventually(name+" runs "+stream, func() (bool, string) {
		got = s.outcome(name)
		return got.Stream == stream && got.Status == "True" && got.Reason == reason && got.Secret[keyStream] == stream && got.Secret[keyRuntimes] == runtimes,
			fmt.Sprintf("%+v", got)
	})
	return got
}

// fails waits until the condition says why not.
func (s *server) fails(name, message string) {
	s.Helper()
	s.eventually(name+" fails", func() (bool, string) {
		got := s.outcome(name)
		return got.Status == "False" && got.Reason == reasonFailed && strings.Contains(got.Message, message), fmt.Sprintf("%+v", got)
	})
}

func (s *server) patch(name, patch string) error {
	return s.Patch(s.Context(), pool(name, "", ""), client.RawPatch("application/merge-patch+json", []byte(patch)))
}

func (s *server) mustPatch(name, patch string) {
	s.Helper()
	if err := s.patch(name, patch); err != nil {
		s.Fatal(err)
	}
}

// The rows of the document on hosted control planes. NodePools are served only
// after the controller has started.
func TestHostedNodePools(t *testing.T) {
	s := start(t)
	t.Run("new, none, 5.0", func(t *testing.T) {
		s.create(pool("new", "5.0.0", ""))
		got := s.runs("new", "rhel-10", "crun", reasonValid)
		want := map[string]string{
			keyStream: "rhel-10", keyVersion: "5.0.0", keyRuntime: "crun", keyRuntimes: "crun", keyHash: got.Secret[keyHash],
			keyOSImage:    "registry.example.com/ocp/5.0.0-rhel-coreos-10" + digest,
			keyExtensions: "registry.example.com/ocp/5.0.0-rhel-coreos-10-extensions" + digest,
		}
		if diff := cmp.Diff(want, got.Secret); diff != "" {
			t.Error(diff)
		}
		s.mustPatch("new", `{"spec":{"osImageStream":{"name":"rhel-10"}}}`)
		time.Sleep(time.Second)
		if after := s.runs("new", "rhel-10", "crun", reasonValid); after.Secret[keyHash] != got.Secret[keyHash] {
			t.Error("naming the default rolls nodes")
		}
	})
	t.Run("new, rhel-10, 5.0, is the same as the default", func(t *testing.T) {
		s.create(pool("ten", "5.0.0", "rhel-10"))
		if got, other := s.runs("ten", "rhel-10", "crun", reasonValid), s.outcome("new"); got.Secret[keyHash] != other.Secret[keyHash] {
			t.Errorf("hashes %s and %s", got.Secret[keyHash], other.Secret[keyHash])
		}
	})
	t.Run("new, rhel-9, 5.0, beside one with rhel-10", func(t *testing.T) {
		s.create(pool("nine", "5.0.0", "rhel-9"))
		s.runs("nine", "rhel-9", "crun,runc", reasonValid)
		s.runs("ten", "rhel-10", "crun", reasonValid)
	})
	t.Run("an upgrade without a stream moves", func(t *testing.T) {
		s.create(pool("upgraded", "4.22.0", "", "other"))
		s.runs("upgraded", "rhel-9", "crun,runc", reasonValid)
		s.mustPatch("upgraded", `{"spec":{"release":{"image":"5.0.0"}}}`)
		s.runs("upgraded", "rhel-10", "crun", reasonValid)
	})
	t.Run("an upgrade with rhel-9 stays", func(t *testing.T) {
		s.create(pool("pinned", "4.22.0", "rhel-9"))
		s.runs("pinned", "rhel-9", "crun,runc", reasonValid)
		s.mustPatch("pinned", `{"spec":{"release":{"image":"5.0.0"}}}`)
		s.eventually("the new release's image", func() (bool, string) {
			got := s.outcome("pinned")
			return got.Secret[keyVersion] == "5.0.0" && got.Stream == "rhel-9", fmt.Sprintf("%+v", got)
		})
	})
	t.Run("an upgrade with runc stays, and says so", func(t *testing.T) {
		s.create(pool("runc", "4.22.0", "", "runc"))
		s.runs("runc", "rhel-9", "crun,runc", reasonValid)
		s.mustPatch("runc", `{"spec":{"release":{"image":"5.0.0"}}}`)
		if got := s.runs("runc", "rhel-9", "crun,runc", reasonKeptByRunc); !strings.Contains(got.Message, "ContainerRuntimeConfig use-runc") || got.Secret[keyRuntime] != "runc" {
			t.Errorf("%+v", got)
		}
	})
	t.Run("rhel-10 with runc", func(t *testing.T) {
		s.create(pool("both", "5.0.0", "rhel-10", "runc"))
		s.fails("both", "incompatible with runc")
		if got := s.outcome("both"); got.Secret != nil {
			t.Errorf("%+v", got)
		}
	})
	t.Run("rhel-10 before 5.0", func(t *testing.T) {
		s.create(pool("early", "4.22.0", "rhel-10"))
		s.fails("early", "requires release 5.0")
		s.create(pool("nightly", "5.0.0-0.nightly-2026-05-01", "rhel-10"))
		s.runs("nightly", "rhel-10", "crun", reasonValid)
	})
	t.Run("a configuration that is missing leaves what nodes run", func(t *testing.T) {
		s.mustPatch("nine", `{"spec":{"config":[{"name":"lost"}]}}`)
		s.fails("nine", "ConfigMap lost of spec.config does not exist")
		if got := s.outcome("nine"); got.Secret[keyStream] != "rhel-9" || got.Stream != "rhel-9" {
			t.Errorf("%+v", got)
		}
	})
	t.Run("a registry that is away changes nothing", func(t *testing.T) {
		before := s.outcome("ten")
		s.mustPatch("ten", `{"spec":{"release":{"image":"down"}}}`)
		time.Sleep(time.Second)
		if diff := cmp.Diff(before, s.outcome("ten")); diff != "" {
			t.Error(diff)
		}
	})
	t.Run("a release that does not exist is said, and changes nothing", func(t *testing.T) {
		before := s.outcome("new")
		s.mustPatch("new", `{"spec":{"release":{"image":"none"}}}`)
		s.eventually("says so", func() (bool, string) {
			got := s.outcome("new")
			isSaid := got.Status == "Unknown" && strings.Contains(got.Message, "image none cannot be read: it does not exist")
			return isSaid && got.Stream == before.Stream && cmp.Equal(got.Secret, before.Secret), fmt.Sprintf("%+v", got)
		})
		s.mustPatch("new", `{"spec":{"release":{"image":"5.0.0"}}}`)
		s.runs("new", "rhel-10", "crun", reasonValid)
	})
	t.Run("a registry that hangs holds up no other node pool", func(t *testing.T) {
		s.create(pool("hanging", "hangs", ""))
		s.create(pool("behind", "5.0.0", ""))
		s.runs("behind", "rhel-10", "crun", reasonValid)
	})
	t.Run("a Secret of somebody else stays, and that is said", func(t *testing.T) {
		s.create(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "clusters", Name: "taken" + secretSuffix}, StringData: map[string]string{"mine": "yes"}})
		s.create(pool("taken", "5.0.0", ""))
		s.eventually("says so", func() (bool, string) {
			got := s.outcome("taken")
			return got.Status == "Unknown" && strings.Contains(got.Message, "Secret taken-os-image belongs to somebody else") && got.Secret["mine"] == "yes" && len(got.Secret) == 1,
				fmt.Sprintf("%+v", got)
		})
	})
	t.Run("a name of the greatest length", func(t *testing.T) {
		name := strings.Repeat("n", 253)
		s.create(pool(name, "5.0.0", ""))
		s.eventually("its Secret", func() (bool, string) {
			var list corev1.SecretList
			if err := s.List(t.Context(), &list, client.InNamespace("clusters")); err != nil {
				t.Fatal(err)
			}
			for _, secret := range list.Items {
				if strings.HasPrefix(secret.Name, "nnn") && strings.HasSuffix(secret.Name, secretSuffix) {
					return string(secret.Data[keyStream]) == "rhel-10", secret.Name
				}
			}
			return false, "none"
		})
	})
	t.Run("policies", func(t *testing.T) { testPolicies(t, s) })
	t.Run("where a hypershift-operator runs only the Secret is written", func(t *testing.T) {
		s.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "hypershift"}})
		deployment := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{
			"replicas": int64(1), "selector": map[string]any{"matchLabels": map[string]any{"a": "b"}},
			"template": map[string]any{
				"metadata": map[string]any{"labels": map[string]any{"a": "b"}},
				"spec":     map[string]any{"containers": []any{map[string]any{"name": "c", "image": "i"}}},
			},
		}}}
		deployment.SetGroupVersionKind(kindDeployment)
		deployment.SetNamespace("hypershift")
		deployment.SetName("operator")
		s.create(deployment)
		s.create(pool("foreign", "5.0.0", ""))
		s.eventually("the Secret", func() (bool, string) {
			got := s.outcome("foreign")
			return got.Secret[keyStream] == "rhel-10", fmt.Sprintf("%+v", got)
		})
		if got := s.outcome("foreign"); got.Status != "" || got.Stream != "" {
			t.Errorf("%+v", got)
		}
	})
}

func testPolicies(t *testing.T, s *server) {
	refused := func(name, patch, message string) func() (bool, string) {
		return func() (bool, string) {
			err := s.Patch(t.Context(), pool(name, "", ""), client.RawPatch("application/merge-patch+json", []byte(patch)), client.DryRunAll)
			return err != nil && strings.Contains(err.Error(), message), fmt.Sprint(err)
		}
	}
	s.eventually("no way back", refused("new", `{"spec":{"osImageStream":{"name":"rhel-9"}}}`, "downgrade from rhel-10 to rhel-9 is not allowed"))
	s.eventually("no removal", refused("pinned", `{"spec":{"osImageStream":null}}`, "cannot be removed once set"))
	object := pool("old", "4.22.0", "")
	s.create(object)
	status := client.RawPatch("application/merge-patch+json", []byte(`{"status":{"version":"4.22.0"}}`))
	if err := s.Status().Patch(t.Context(), object, status); err != nil {
		t.Fatal(err)
	}
	s.eventually("no rhel-10 before 5.0", refused("old", `{"spec":{"osImageStream":{"name":"rhel-10"}}}`, "requires release 5.0 or later, and this NodePool runs 4.22.0"))
	for name, image := range map[string]string{"a version that begins with 5": "5.0.0-0.nightly", "one of two digits": "10.1.0"} {
		object := pool("of-"+strings.Split(image, ".")[0], image, "")
		s.create(object)
		if err := s.Status().Patch(t.Context(), object, client.RawPatch("application/merge-patch+json", []byte(`{"status":{"version":"`+image+`"}}`))); err != nil {
			t.Fatal(err)
		}
		if err := s.patch(object.GetName(), `{"spec":{"osImageStream":{"name":"rhel-10"}}}`); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	s.eventually("no emptied field", refused("pinned", `{"spec":{"osImageStream":{"name":null}}}`, "cannot be removed once set"))
	s.eventually("no unknown stream", refused("pinned", `{"spec":{"osImageStream":{"name":"rhel-11"}}}`, "Unsupported value"))
	if err := s.patch("pinned", `{"spec":{"osImageStream":{"name":"rhel-10"}}}`); err != nil {
		t.Errorf("forward: %v", err)
	}
	if err := s.patch("new", `{"metadata":{"labels":{"edited":"yes"}}}`); err != nil {
		t.Errorf("an edit of something else: %v", err)
	}
}
