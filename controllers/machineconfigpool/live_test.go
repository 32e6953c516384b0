package machineconfigpool

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"

	"github.com/imagemode/imagemode/api/v1alpha1"
	"github.com/imagemode/imagemode/test/builders"
)

func TestWhatReachesNodesWithoutAnImage(t *testing.T) {
	const certificate = "/etc/docker/certs.d/registry.example.com/ca.crt"
	keys := builders.Ignition(`{"ignition":{"version":"3.4.0"},"passwd":{"users":[{"name":"core","sshAuthorizedKeys":["ssh-ed25519 AAAA a"]}]}}`)
	for name, test := range map[string]struct {
		options []builders.MachineConfigOption
		bundle  string
		want    *v1alpha1.LiveContent
	}{
		"nothing": {[]builders.MachineConfigOption{builders.File("/etc/motd", "hello\n")}, "", nil},
		"SSH keys": {[]builders.MachineConfigOption{keys}, "", &v1alpha1.LiveContent{
			SSHAuthorizedKeys: []v1alpha1.AuthorizedKeys{{User: "core", Keys: []string{"ssh-ed25519 AAAA a"}}},
		}},
		"a registry's certificate": {[]builders.MachineConfigOption{builders.File(certificate, "PEM\n")}, "", &v1alpha1.LiveContent{
			Files: []v1alpha1.LiveFile{{Path: certificate, Content: []byte("PEM\n"), Mode: new(int32(0o644))}},
		}},
		"the site's trust bundle":           {nil, "PEM", &v1alpha1.LiveContent{TrustBundle: "PEM"}},
		"not the kubelet's own pull secret": {[]builders.MachineConfigOption{builders.File("/var/lib/kubelet/config.json", "{}")}, "", nil},
	} {
		t.Run(name, func(t *testing.T) {
			config := builders.MachineConfig("50-live", "worker", test.options...)
			wanted, err := render("worker", []*mcfgv1.MachineConfig{config}, images{os: baseImage})
			if err != nil {
				t.Fatal(err)
			}
			got, err := liveOf(wanted, test.bundle)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestTooMuchForTheNodesIsRefused(t *testing.T) {
	wanted := &rendered{spec: builders.MachineConfig("50-live", "worker").Spec}
	_, err := liveOf(wanted, strings.Repeat("x", v1alpha1.MaxLiveBytes))
	var refused *renderError
	if !errors.As(err, &refused) || refused.reason != reasonLiveContent {
		t.Errorf("error %v", err)
	}
}
