package agent

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/imagemode/imagemode/api/v1alpha1"
)

const anchor = "/etc/pki/ca-trust/source/anchors/site.crt"

// takes has the rollout hold live content and the node be told to take it.
func (b *bench) takes(live *v1alpha1.LiveContent) {
	b.t.Helper()
	rollout := &v1alpha1.ImageRollout{}
	rollout.Name = "worker"
	if err := client.IgnoreNotFound(b.client.Delete(context.Background(), rollout.DeepCopy())); err != nil {
		b.t.Fatal(err)
	}
	rollout.Spec.Live = live
	if err := b.client.Create(context.Background(), rollout); err != nil {
		b.t.Fatal(err)
	}
	hash, err := live.Hash()
	if err != nil {
		b.t.Fatal(err)
	}
	b.orderSpec(func(s *v1alpha1.NodeImageSpec) {
		s.DesiredImage, s.Phase, s.LiveHash = imageA.String(), v1alpha1.PhaseStaged, hash
	})
}

func site(content string) *v1alpha1.LiveContent {
	return &v1alpha1.LiveContent{
		SSHAuthorizedKeys: []v1alpha1.AuthorizedKeys{{User: "core", Keys: []string{"ssh-ed25519 AAAA admin"}}},
		Files:             []v1alpha1.LiveFile{{Path: anchor, Content: []byte(content)}},
		TrustBundle:       "bundle",
	}
}

func TestLiveContentIsTakenOverWithoutAReboot(t *testing.T) {
	b := newBench(t)
	b.machine.files["/usr/bin/update-ca-trust"] = []byte("program")
	b.takes(site("one"))
	b.pass()
	if got := b.machine.files; string(got[anchor]) != "one" || string(got["/etc/pki/ca-trust/source/anchors/imagemode-trust-bundle.crt"]) != "bundle" {
		t.Errorf("files %q", got)
	}
	if diff := cmp.Diff(map[string][]string{"core": {"ssh-ed25519 AAAA admin"}}, b.machine.keys); diff != "" {
		t.Errorf("keys (-want +got):\n%s", diff)
	}
	want, _ := site("one").Hash()
	if got := b.object().Status.LiveHash; got != want {
		t.Errorf("status.liveHash %q, want %q", got, want)
	}
	if diff := cmp.Diff([]string{"/usr/bin/update-ca-trust"}, b.machine.calls); diff != "" {
		t.Errorf("commands (-want +got):\n%s", diff)
	}

	b.machine.files[anchor] = []byte("edited") // it is put right, from the node's own record
	if err := b.client.Delete(context.Background(), &v1alpha1.ImageRollout{ObjectMeta: metav1.ObjectMeta{Name: "worker"}}); err != nil {
		t.Fatal(err)
	}
	b.pause(surveyInterval)
	b.pass()
	if got := string(b.machine.files[anchor]); got != "one" {
		t.Errorf("an edited file holds %q", got)
	}

	b.takes(nil)
	b.pass()
	b.pass()
	if len(b.machine.keys) != 0 || b.machine.files[anchor] != nil || b.object().Status.LiveHash != "" {
		t.Errorf("left: keys %v, %s %q, status %q", b.machine.keys, anchor, b.machine.files[anchor], b.object().Status.LiveHash)
	}
	if slices.Contains(b.machine.calls, "reboot") {
		t.Error("the node was rebooted")
	}
}

// TestLiveContentFollowsAfterEachBoot: a node that went back has the /etc of that
// time, also if its record says that it has the content.
func TestLiveContentFollowsAfterEachBoot(t *testing.T) {
	b := newBench(t)
	b.takes(site("one"))
	b.pass()
	b.machine.files[anchor] = []byte("as it was before")
	b.machine.reboot()
	b.startAgent(b.agent.options.PullSecretDir)
	b.pass()
	if got := string(b.machine.files[anchor]); got != "one" {
		t.Errorf("after a boot the file holds %q", got)
	}
}

func TestLiveContentThatCannotBeAppliedIsSaid(t *testing.T) {
	tests := map[string]struct {
		live *v1alpha1.LiveContent
		want string
	}{
		"a user that does not exist":   {&v1alpha1.LiveContent{SSHAuthorizedKeys: []v1alpha1.AuthorizedKeys{{User: "nobody-knows", Keys: []string{"k"}}}}, "user nobody-knows does not exist"},
		"a path outside the folders":   {&v1alpha1.LiveContent{Files: []v1alpha1.LiveFile{{Path: "/etc/shadow"}}}, `"/etc/shadow" is in none of the folders`},
		"a path that climbs out of it": {&v1alpha1.LiveContent{Files: []v1alpha1.LiveFile{{Path: "/etc/containers/certs.d/../../shadow"}}}, "is in none of the folders"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.takes(test.live)
			b.pass()
			got := meta.FindStatusCondition(b.object().Status.Conditions, v1alpha1.ConditionLiveFailed)
			if got == nil || !strings.Contains(got.Message, test.want) || b.object().Status.LiveHash != "" {
				t.Errorf("condition %+v, liveHash %q", got, b.object().Status.LiveHash)
			}
		})
	}
	t.Run("content that is not the one that is meant", func(t *testing.T) {
		b := newBench(t)
		b.takes(site("one"))
		b.orderSpec(func(s *v1alpha1.NodeImageSpec) {
			s.DesiredImage, s.Phase, s.LiveHash = imageA.String(), v1alpha1.PhaseStaged, strings.Repeat("0", 64)
		})
		b.pass()
		if b.machine.files[anchor] != nil {
			t.Error("it was applied")
		}
		b.expectCondition(v1alpha1.ConditionLiveFailed, metav1.ConditionTrue, "NotApplied")
	})
}

func TestWithKeys(t *testing.T) {
	ours := keysBegin + "\nssh-ed25519 B\n" + keysEnd + "\n"
	tests := map[string]struct {
		present string
		keys    []string
		want    string
	}{
		"a file of its own":                {"", []string{"ssh-ed25519 B"}, ours},
		"beside a user's own keys":         {"ssh-rsa A\n", []string{"ssh-ed25519 B"}, "ssh-rsa A\n" + ours},
		"again":                            {"ssh-rsa A\n" + ours, []string{"ssh-ed25519 B"}, "ssh-rsa A\n" + ours},
		"in place of those before":         {ours + "ssh-rsa A\n", []string{"ssh-ed25519 C"}, "ssh-rsa A\n" + strings.Replace(ours, "19 B", "19 C", 1)},
		"removed":                          {"ssh-rsa A\n" + ours, nil, "ssh-rsa A\n"},
		"removed where nothing else is":    {ours, nil, ""},
		"a key that would be two lines":    {"", []string{"ssh-ed25519\nB"}, ours},
		"our lines without an end":         {"ssh-rsa A\n" + keysBegin + "\nssh-ed25519 X\n", nil, "ssh-rsa A\n"},
		"a file without an end of line":    {"ssh-rsa A", []string{"ssh-ed25519 B"}, "ssh-rsa A\n" + ours},
		"nothing to do for no keys at all": {"", nil, ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, withKeys(test.present, test.keys)); diff != "" {
				t.Errorf("file (-want +got):\n%s", diff)
			}
		})
	}
}

func TestKeysStayInTheHome(t *testing.T) {
	root := t.TempDir()
	home := filepath.Join(root, "var/home/core")
	if err := os.MkdirAll(home, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(root, "etc"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/var/home", filepath.Join(root, "home")); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(root, "etc/passwd"), []byte("root:x:0:0::/root:/bin/sh\ncore:x:0:0:Core:/home/core:/bin/bash\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	host := NewSystemdHost(root)
	if err := host.SetAuthorizedKeys("core", []string{"ssh-ed25519 B"}); err != nil {
		t.Fatal(err)
	}
	written, err := os.ReadFile(filepath.Join(home, ".ssh/authorized_keys"))
	if err != nil || !strings.Contains(string(written), "ssh-ed25519 B") {
		t.Errorf("%q, %v", written, err)
	}
	if err := host.SetAuthorizedKeys("nobody", []string{"k"}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("an unknown user: %v", err)
	}
	if err := host.SetAuthorizedKeys("nobody", nil); err != nil {
		t.Errorf("an unknown user without keys: %v", err)
	}

	// The user replaces ~/.ssh by a link to where only root may write.
	if err := os.RemoveAll(filepath.Join(home, ".ssh")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(root, "etc"), filepath.Join(home, ".ssh")); err != nil {
		t.Fatal(err)
	}
	if err := host.SetAuthorizedKeys("core", []string{"ssh-ed25519 B"}); err == nil {
		t.Error("a link out of the home was followed")
	}
	if _, err := os.Stat(filepath.Join(root, "etc/authorized_keys")); err == nil {
		t.Error("a file was written outside of the home")
	}
}
