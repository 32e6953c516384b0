//go:build envtest

package envtest

import (
	"context"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"

	"github.com/imagemode/imagemode/api/machineconfiguration"
	"github.com/imagemode/imagemode/test/builders"
)

// annotatedWith sets an annotation of a MachineOSConfig.
func annotatedWith(key, value string) func(*mcfgv1.MachineOSConfig) {
	return func(config *mcfgv1.MachineOSConfig) { metav1.SetMetaDataAnnotation(&config.ObjectMeta, key, value) }
}

const deepRepository = "registry.example.com/a/b/c:latest"

// TestMachineOSConfigPolicy writes MachineOSConfigs as a user does.
func TestMachineOSConfigPolicy(t *testing.T) {
	admin := newClient(t, Start(t))
	// It is stored before there is a policy, and would not be taken afterwards.
	old := builders.MachineOSConfig("old", builders.PushTo(deepRepository, "push"), builders.Containerfile("FROM x AS base\n"))
	create(t, admin, old)
	for _, object := range readFolder(t, "policies") {
		if strings.Contains(object.GetName(), "machineosconfig") {
			create(t, admin, object)
		}
	}
	waitForRefusal(t, admin)

	digest := "registry.example.com/os/seed@sha256:" + strings.Repeat("0", 64)
	for sentence, test := range map[string]struct {
		change  func(*mcfgv1.MachineOSConfig)
		refused string
	}{
		"the usual one":                          {func(*mcfgv1.MachineOSConfig) {}, ""},
		"a text that begins with configs":        {builders.Containerfile("FROM configs AS final\nRUN true\n"), ""},
		"a stage whose name only begins so":      {builders.Containerfile("FROM x AS baseline\nFROM configs\n"), ""},
		"a stage with a name that is taken":      {builders.Containerfile("FROM x AS tools\nFROM y as Configs\n"), "the names base, configs and extensions are taken"},
		"a repository deeper than the API names": {builders.PushTo(deepRepository, "push"), `an image in "` + deepRepository + `" cannot be named by digest`},
		"upper-case letters in a repository":     {builders.PushTo("registry.example.com/OS/Worker:latest", "push"), `registries take no "registry.example.com/OS/Worker:latest": write lower-case letters and digits`},
		"upper-case letters in a host":           {builders.PushTo("Registry.example.com/os/worker:Latest", "push"), ""},
		"marks that follow each other":           {builders.PushTo("registry.example.com/os/a..b:latest", "push"), "with single . _ - between them"},
		"a repository that ends with a mark":     {builders.PushTo("registry.example.com/os/worker-:latest", "push"), "with single . _ - between them"},
		"marks that may follow each other":       {builders.PushTo("registry.example.com/os/a__b--c_d.e:latest", "push"), ""},
		"a port that TCP does not have":          {builders.PushTo("registry.example.com:99999/os/worker:latest", "push"), `"registry.example.com:99999" has no port of TCP; they go from 1 to 65535`},
		"port 0":                                 {builders.PushTo("registry.example.com:00/os/worker:latest", "push"), "has no port of TCP"},
		"the highest port":                       {builders.PushTo("registry.example.com:65535/os/worker:latest", "push"), ""},
		"a service of the cluster":               {builders.PushTo("image-registry.openshift-image-registry.svc:5000/os/worker:latest", "push"), ""},
		"a host that begins with a hyphen":       {builders.PushTo("-registry.example.com/os/worker:latest", "push"), "is not the name of a host"},
		"a repository without a namespace":       {builders.PushTo("registry.example.com:5000/os:latest", "push"), ""},
		"a pre-built image by digest":            {annotatedWith(machineconfiguration.AnnotationPreBuiltImage, digest), ""},
		"a pre-built image by tag":               {annotatedWith(machineconfiguration.AnnotationPreBuiltImage, "registry.example.com/os/seed:1"), "an image by digest is wanted"},
		"a Secret for nodes":                     {annotatedWith(machineconfiguration.AnnotationNodePullSecret, "node-pull"), ""},
		"no Secret's name":                       {annotatedWith(machineconfiguration.AnnotationNodePullSecret, "Node Pull"), "the name of a Secret is wanted"},
	} {
		t.Run(sentence, func(t *testing.T) {
			config := builders.MachineOSConfig("worker")
			test.change(config)
			err := admin.Create(t.Context(), config, client.DryRunAll)
			checkRefusal(t, err, test.refused)
		})
	}
	for sentence, test := range map[string]struct {
		change  func(*mcfgv1.MachineOSConfig)
		refused string
	}{
		"an edit of something else":    {func(c *mcfgv1.MachineOSConfig) { c.Spec.RenderedImagePushSecret.Name = "other" }, ""},
		"an annotation":                {annotatedWith(machineconfiguration.AnnotationRebuild, "now"), ""},
		"a mistake in place of it":     {builders.PushTo("registry.example.com/d/e/f:latest", "push"), "cannot be named by digest"},
		"another mistake in the text":  {builders.Containerfile("FROM x AS extensions\n"), "are taken"},
		"what is right in place of it": {builders.PushTo("registry.example.com/os/old:latest", "push"), ""},
	} {
		t.Run("of a stored one: "+sentence, func(t *testing.T) {
			config := &mcfgv1.MachineOSConfig{}
			if err := admin.Get(t.Context(), client.ObjectKeyFromObject(old), config); err != nil {
				t.Fatal(err)
			}
			test.change(config)
			checkRefusal(t, admin.Update(t.Context(), config, client.DryRunAll), test.refused)
		})
	}
}

func checkRefusal(t *testing.T, err error, refused string) {
	t.Helper()
	switch {
	case refused == "" && err != nil:
		t.Errorf("refused: %v", err)
	case refused != "" && (!apierrors.IsInvalid(err) && !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), refused)):
		t.Errorf("error is %v, want a refusal with %q", err, refused)
	}
}

// waitForRefusal waits until the server enforces the policy.
func waitForRefusal(t *testing.T, admin client.Client) {
	t.Helper()
	err := wait.PollUntilContextTimeout(t.Context(), 100*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		err := admin.Create(ctx, builders.MachineOSConfig("probe", builders.PushTo(deepRepository, "push")), client.DryRunAll)
		return err != nil, nil
	})
	if err != nil {
		t.Fatalf("the policy is not enforced: %v", err)
	}
}
