package machineconfigpool

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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

// TestLiveContentThatTheRolloutRefusesIsSaid, with the field and what can be done; it
// does not keep the pool from its image.
func TestLiveContentThatTheRolloutRefusesIsSaid(t *testing.T) {
	says := func(status metav1.ConditionStatus, reason, message string) *world {
		w := aWorld()
		w.rollout.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionDegraded, Status: status, Reason: reason, Message: message}}
		return w
	}
	const field = "spec.live.sshAuthorizedKeys[0].keys[0] (user root) is no SSH public key"
	for name, tc := range map[string]struct {
		world *world
		want  string // empty: nothing is said
	}{
		"it is refused":            {says("True", "LiveInvalid", field), `ImageRollout worker is reporting LiveInvalid: "` + field + `"`},
		"something is graver":      {says("True", "DrainBlocked", "n1; let the pods go; also: LiveInvalid"), `ImageRollout worker is reporting DrainBlocked: "n1; let the pods go; also: LiveInvalid"`},
		"it was refused before":    {says("False", "AsExpected", ""), ""},
		"something else is wrong":  {says("True", "DrainBlocked", "n1"), ""},
		"nothing has been said":    {aWorld(), ""},
		"there is no rollout, yet": {func() *world { w := aWorld(); w.rollout = nil; return w }(), ""},
	} {
		t.Run(name, func(t *testing.T) {
			status := tc.world.status()
			got := *findCondition(status.Conditions, mcfgv1.MachineConfigPoolNodeDegraded)
			if (got.Reason == reasonLiveContent) != (tc.want != "") || tc.want != "" && (got.Status != "True" || got.Message != tc.want) {
				t.Errorf("NodeDegraded is %s, %s: %s", got.Status, got.Reason, got.Message)
			}
			if updating := findCondition(status.Conditions, mcfgv1.MachineConfigPoolUpdating); tc.want != "" && updating.Status != "True" {
				t.Errorf("Updating is %s, %s", updating.Status, updating.Reason)
			}
		})
	}
}
