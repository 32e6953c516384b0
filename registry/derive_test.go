package registry_test

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/opencontainers/go-digest"

	"github.com/imagemode/imagemode/builder/request"
	"github.com/imagemode/imagemode/registry"
	"github.com/imagemode/imagemode/registry/registrytest"
)

func accessTo(r *registrytest.Registry) registry.Access {
	return registry.Access{TrustBundle: r.CAFile, AuthFile: r.NoAuth, Architecture: "amd64"}
}

// layerOf stands for a gzip tar: no registry looks into it.
func layerOf(text string) registry.NewLayer {
	return registry.NewLayer{
		Data: []byte(text), Digest: digest.FromString(text),
		DiffID: digest.FromString("tar of " + text), CreatedBy: "test",
	}
}

func TestDeriveAppendsWithoutFetchingLayers(t *testing.T) {
	for name, test := range map[string]struct {
		docker bool
		target string
	}{
		"OCI, in the same repository":             {false, "os/base"},
		"OCI, in another repository":              {false, "os/worker"},
		"docker schema 2, in the same repository": {true, "os/base"},
		"docker schema 2, in another repository":  {true, "os/worker"},
	} {
		t.Run(name, func(t *testing.T) {
			server := registrytest.New(t)
			base := server.Push(t, "os/base", registrytest.ImageSpec{Labels: registrytest.Bootable(), Docker: test.docker, Layers: 3})
			server.Requests()
			access := accessTo(server)
			derived, transfer, err := registry.Derive(context.Background(),
				registry.Source{Access: access, Image: base},
				registry.Target{Access: access, Repository: server.Host + "/" + test.target, Tags: []string{"one", "two"}},
				registry.Change{Layers: []registry.NewLayer{layerOf("a")}, Labels: map[string]string{"a": "b", "containers.bootc": ""}})
			if err != nil {
				t.Fatal(err)
			}
			if transfer.Copied != 0 {
				t.Errorf("layers were copied: %s", transfer)
			}
			checkNoLayerFetched(t, server, base, access)
			for _, tag := range []string{"one", "two"} {
				checkDerived(t, access, server.Host+"/"+test.target+":"+tag, derived)
			}
		})
	}
}

func checkNoLayerFetched(t *testing.T, server *registrytest.Registry, base string, access registry.Access) {
	t.Helper()
	requests := server.Requests()
	image, err := registry.Inspect(context.Background(), access, base)
	if err != nil {
		t.Fatal(err)
	}
	for _, layer := range image.Layers {
		for _, request := range requests {
			if strings.HasPrefix(request, "GET ") && strings.Contains(request, layer.Digest.String()) {
				t.Errorf("a layer of the base was fetched: %s", request)
			}
		}
	}
}

func checkDerived(t *testing.T, access registry.Access, ref string, derived *registry.Image) {
	t.Helper()
	got, err := registry.Inspect(context.Background(), access, ref)
	if err != nil {
		t.Fatal(err)
	}
	if got.Digest != derived.Digest {
		t.Errorf("%s is %s, want %s", ref, got.Digest, derived.Digest)
	}
	want := map[string]string{"org.opencontainers.image.version": "12.1", "a": "b"}
	if diff := cmp.Diff(want, got.Parsed.Config.Labels); diff != "" {
		t.Error(diff)
	}
	if len(got.Layers) != 4 || len(got.Parsed.RootFS.DiffIDs) != 4 || got.Layers[3].Digest != digest.FromString("a") {
		t.Errorf("layers %v, diff ids %v", got.Layers, got.Parsed.RootFS.DiffIDs)
	}
	if len(got.Parsed.History) != 4 || got.Parsed.History[3].CreatedBy != "test" {
		t.Errorf("history %v", got.Parsed.History)
	}
}

func TestDeriveGivesTheSameDigestAgain(t *testing.T) {
	server := registrytest.New(t)
	base := server.Push(t, "os/base", registrytest.ImageSpec{Labels: registrytest.Bootable()})
	access := accessTo(server)
	var digests []digest.Digest
	for range 2 {
		derived, _, err := registry.Derive(context.Background(), registry.Source{Access: access, Image: base},
			registry.Target{Access: access, Repository: server.Host + "/os/worker"},
			registry.Change{Layers: []registry.NewLayer{layerOf("a")}})
		if err != nil {
			t.Fatal(err)
		}
		digests = append(digests, derived.Digest)
	}
	if digests[0] != digests[1] {
		t.Errorf("%v", digests)
	}
}

func TestDeriveToAnotherRegistryCopies(t *testing.T) {
	from, to := registrytest.New(t), registrytest.New(t)
	base := from.Push(t, "os/base", registrytest.ImageSpec{Labels: registrytest.Bootable(), Layers: 2})
	derived, transfer, err := registry.Derive(context.Background(),
		registry.Source{Access: accessTo(from), Image: base},
		registry.Target{Access: accessTo(to), Repository: to.Host + "/os/worker", Tags: []string{"a"}},
		registry.Change{Layers: []registry.NewLayer{layerOf("a")}})
	if err != nil {
		t.Fatal(err)
	}
	if transfer.Copied != 2 || transfer.CopiedBytes == 0 {
		t.Errorf("%s", transfer)
	}
	if found, err := registry.Exists(context.Background(), accessTo(to), derived.Reference()); found != registry.Present {
		t.Errorf("%s %v", found, err)
	}
}

func TestExistsHasThreeAnswers(t *testing.T) {
	server := registrytest.New(t)
	base := server.Push(t, "os/base", registrytest.ImageSpec{Labels: registrytest.Bootable()})
	missing := server.Host + "/os/base@sha256:" + strings.Repeat("0", 64)
	auth := filepath.Join(t.TempDir(), "config.json")
	if err := os.WriteFile(auth, server.AddUser("user", "secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	access := accessTo(server)
	access.AuthFile = auth
	unreachable := "127.0.0.1:1/os/base@sha256:" + strings.Repeat("0", 64)
	tests := map[string]struct {
		access registry.Access
		image  string
		status int
		want   registry.Existence
		class  request.FailureClass
	}{
		"there":                             {access: access, image: base, want: registry.Present},
		"not there":                         {access: access, image: missing, want: registry.Gone},
		"a repository that is not":          {access: access, image: strings.Replace(missing, "os/base", "os/none", 1), want: registry.Gone},
		"no credentials":                    {access: accessTo(server), image: base, want: registry.Unknown, class: request.Authentication},
		"a certificate that is not trusted": {access: registry.Access{AuthFile: auth}, image: base, want: registry.Unknown, class: request.Network},
		"no registry":                       {access: access, image: unreachable, want: registry.Unknown, class: request.Network},
		"a registry that is down":           {access: access, image: base, status: 503, want: registry.Unknown, class: request.Registry},
		"one that forbids":                  {access: access, image: base, status: 403, want: registry.Unknown, class: request.Authentication},
		"one that says 404":                 {access: access, image: base, status: 404, want: registry.Gone},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			server.Fail(func(r *http.Request) int {
				if strings.Contains(r.URL.Path, "/manifests/") {
					return test.status
				}
				return 0
			})
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			got, err := registry.Exists(ctx, test.access, test.image)
			if got != test.want || (err == nil) != (test.want != registry.Unknown) {
				t.Fatalf("got %s, %v; want %s", got, err, test.want)
			}
			if err != nil && registry.Classify(err) != test.class {
				t.Errorf("class %s of %v, want %s", registry.Classify(err), err, test.class)
			}
		})
	}
}

func TestARegistryThatIsDownForAMomentIsAskedAgain(t *testing.T) {
	server := registrytest.New(t)
	base := server.Push(t, "os/base", registrytest.ImageSpec{Labels: registrytest.Bootable()})
	var asked atomic.Int32
	server.Fail(func(r *http.Request) int {
		if strings.Contains(r.URL.Path, "/manifests/") && asked.Add(1) == 1 {
			return http.StatusBadGateway
		}
		return 0
	})
	if found, err := registry.Exists(context.Background(), accessTo(server), base); found != registry.Present {
		t.Errorf("%s %v", found, err)
	}
}

func TestAWrongArchitectureIsSaid(t *testing.T) {
	server := registrytest.New(t)
	base := server.Push(t, "os/base", registrytest.ImageSpec{Architecture: "arm64"})
	image, err := registry.Inspect(context.Background(), accessTo(server), base)
	if err != nil || image.Parsed.Architecture != "arm64" {
		t.Errorf("%v %v", image, err)
	}
}

func TestReferenceTakesTheDigestOfTwo(t *testing.T) {
	ref, err := registry.Reference("registry.example.com/a:tag@sha256:" + strings.Repeat("0", 64))
	if err != nil {
		t.Fatal(err)
	}
	if got := ref.StringWithinTransport(); !strings.HasSuffix(got, "/a@sha256:"+strings.Repeat("0", 64)) {
		t.Error(got)
	}
}
