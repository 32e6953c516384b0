package host

import (
	"context"
	"io"
	"log"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

func nopLogger() *log.Logger { return log.New(io.Discard, "", 0) }

// TestStages walks through stages, locks, reboots and power cuts. Each step is a
// method of the stand-in; after it the slots are compared.
func TestStages(t *testing.T) {
	ctx := context.Background()
	switchTo := func(locked bool) func(*fixture, string) error {
		return func(f *fixture, target string) error {
			return f.Switch(ctx, SwitchOptions{Target: registryImage(target), DownloadOnly: locked})
		}
	}
	upgrade := func(options UpgradeOptions) func(*fixture, string) error {
		return func(f *fixture, _ string) error { return f.Upgrade(ctx, options) }
	}
	reboot := func(t *testing.T) func(*fixture, string) error {
		return func(f *fixture, _ string) error {
			err := f.Finalize()
			f.boot(t)
			return err
		}
	}
	cut := func(t *testing.T) func(*fixture, string) error {
		return func(f *fixture, _ string) error { f.boot(t); return nil }
	}
	type step = func(*fixture, string) error
	tests := map[string]struct {
		steps []step
		// want is the status at the end, OLD and NEW standing for the digests.
		want string
		// said is the last line of output.
		said string
	}{
		"a switch stages, and is applied at the next reboot": {
			steps: []step{switchTo(false)}, want: "staged=NEW booted=OLD", said: "  Digest: NEW",
		},
		"a reboot boots the stage and keeps the old image as rollback": {
			steps: []step{switchTo(false), reboot(t)}, want: "booted=NEW rollback=OLD",
		},
		"a power cut loses the stage": {
			steps: []step{switchTo(false), cut(t)}, want: "booted=OLD",
		},
		"a locked switch says so in the status": {
			steps: []step{switchTo(true)}, want: "staged=NEW locked booted=OLD", said: "Image downloaded, but will not be applied on reboot",
		},
		"a reboot drops a locked stage": {
			steps: []step{switchTo(true), reboot(t)}, want: "booted=OLD",
		},
		"upgrade --from-downloaded unlocks": {
			steps: []step{switchTo(true), upgrade(UpgradeOptions{FromDownloaded: true})},
			want:  "staged=NEW booted=OLD", said: "Staged deployment will now be applied on reboot",
		},
		"upgrade --from-downloaded of an unlocked stage changes nothing": {
			steps: []step{switchTo(false), upgrade(UpgradeOptions{FromDownloaded: true})},
			want:  "staged=NEW booted=OLD", said: "Staged deployment is already set to apply on reboot",
		},
		"upgrade --download-only locks a stage of the same digest": {
			steps: []step{switchTo(false), upgrade(UpgradeOptions{DownloadOnly: true})},
			want:  "staged=NEW locked booted=OLD", said: "Image downloaded, but will not be applied on reboot",
		},
		"a plain upgrade unlocks an unchanged locked stage": {
			steps: []step{switchTo(true), upgrade(UpgradeOptions{})},
			want:  "staged=NEW booted=OLD", said: "Staged deployment will now be applied on reboot",
		},
		"an unlocked stage boots": {
			steps: []step{switchTo(true), upgrade(UpgradeOptions{FromDownloaded: true}), reboot(t)}, want: "booted=NEW rollback=OLD",
		},
		"the same specification is no change, and no unlock": {
			steps: []step{switchTo(true), switchTo(false)},
			want:  "staged=NEW locked booted=OLD", said: "Image specification is unchanged.",
		},
		"an upgrade of a digest finds nothing": {
			steps: []step{upgrade(UpgradeOptions{})}, want: "booted=OLD", said: "No update available.",
		},
		"rollback boots the old image again": {
			steps: []step{switchTo(false), reboot(t), func(f *fixture, _ string) error { return f.Rollback(false) }, cut(t)},
			want:  "booted=OLD rollback=NEW", said: "Next boot: rollback deployment",
		},
	}
	for sentence, test := range tests {
		t.Run(sentence, func(t *testing.T) {
			f, old := installed(t)
			target := f.push(t, "second", bootable("etc/new", "new"))
			for i, step := range test.steps {
				if err := step(f, target); err != nil {
					t.Fatalf("step %d: %v", i, err)
				}
			}
			name := strings.NewReplacer(digestOf(old), "OLD", digestOf(target), "NEW")
			if got := name.Replace(f.slots(t)); got != test.want {
				t.Errorf("status is %q, want %q", got, test.want)
			}
			lines := strings.Split(strings.TrimRight(name.Replace(f.output.String()), "\n"), "\n")
			if test.said != "" && !slices.Contains(lines, test.said) {
				t.Errorf("said %q, want the line %q", lines, test.said)
			}
		})
	}
}

func TestAnImageThatCannotBootIsRefusedBeforeItsLayersAreFetched(t *testing.T) {
	tests := map[string]struct {
		change func(*image)
		want   string
	}{
		"without a label": {
			change: func(i *image) { i.labels = nil },
			want:   "Target image does not have ostree.bootable label",
		},
		"of another architecture": {
			change: func(i *image) { i.architecture = "s390x" },
			want:   "Image has architecture s390x; expected amd64",
		},
	}
	for sentence, test := range tests {
		t.Run(sentence, func(t *testing.T) {
			f, _ := installed(t)
			refused := bootable()
			test.change(&refused)
			target := f.push(t, "refused", refused)
			err := f.Switch(context.Background(), SwitchOptions{Target: registryImage(target)})
			if err == nil || !strings.HasSuffix(err.Error(), test.want) {
				t.Errorf("error is %v, want %q at its end", err, test.want)
			}
			if len(f.fetched) > 1 {
				t.Errorf("fetched %v, want the configuration alone", f.fetched)
			}
		})
	}
}

func TestErrorsOfTheRegistryKeepTheirWords(t *testing.T) {
	f, first := installed(t)
	missing := strings.Split(first, "@")[0] + "@sha256:" + strings.Repeat("0", 64)
	err := f.Switch(context.Background(), SwitchOptions{Target: registryImage(missing)})
	if err == nil || !strings.Contains(err.Error(), "manifest unknown") {
		t.Errorf("error is %v, want the registry's", err)
	}
}

// An index is what a specification may name; the digest in the status is that of
// the manifest of this machine's platform.
func TestTheDigestOfAnIndexIsThePlatforms(t *testing.T) {
	f, _ := installed(t)
	built := bootable("usr/marker", "index").build(t)
	index := mutate.AppendManifests(empty.Index, mutate.IndexAddendum{
		Add: built, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: "amd64"}},
	})
	tag, err := name.NewTag(f.registry + "/os:index")
	if err != nil {
		t.Fatal(err)
	}
	if err := remote.WriteIndex(tag, index); err != nil {
		t.Fatal(err)
	}
	indexDigest, err := index.Digest()
	if err != nil {
		t.Fatal(err)
	}
	manifestDigest, err := built.Digest()
	if err != nil {
		t.Fatal(err)
	}
	// A tag beside the digest is dropped.
	target := f.registry + "/os:index@" + indexDigest.String()
	if err := f.Switch(context.Background(), SwitchOptions{Target: registryImage(target)}); err != nil {
		t.Fatal(err)
	}
	status, err := f.Status()
	if err != nil {
		t.Fatal(err)
	}
	want := ImageReference{Image: f.registry + "/os@" + indexDigest.String(), Transport: "registry"}
	if diff := cmp.Diff(want, status.Status.Staged.Image.Image); diff != "" {
		t.Errorf("specification (-want +got):\n%s", diff)
	}
	if got := status.Status.Staged.Image.ImageDigest; got != manifestDigest.String() {
		t.Errorf("imageDigest is %s, want the platform manifest's %s", got, manifestDigest)
	}
}

func TestAnUpdateKeepsLocalChangesAndVar(t *testing.T) {
	f, _ := installed(t)
	write := func(path, content string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write(filepath.Join(f.Root, "etc", "local"), "mine")
	write(filepath.Join(f.Sysroot, "var", "lib", "data"), "mine")
	target := f.push(t, "second", bootable("etc/keep", "newer", "var/lib/data", "newer"))
	if err := f.Switch(context.Background(), SwitchOptions{Target: registryImage(target)}); err != nil {
		t.Fatal(err)
	}
	write(filepath.Join(f.Root, "etc", "late"), "written after the stage")
	if err := f.Finalize(); err != nil {
		t.Fatal(err)
	}
	f.boot(t)
	for path, want := range map[string]string{
		filepath.Join(f.Root, "etc", "local"):          "mine",
		filepath.Join(f.Root, "etc", "late"):           "written after the stage",
		filepath.Join(f.Root, "etc", "keep"):           "newer",
		filepath.Join(f.Sysroot, "var", "lib", "data"): "mine",
		filepath.Join(f.Root, "usr", "bin", "program"): "program",
		filepath.Join(f.Root, "usr", "etc", "keep"):    "newer",
	} {
		content, err := os.ReadFile(path)
		if err != nil || string(content) != want {
			t.Errorf("%s holds %q (%v), want %q", path, content, err, want)
		}
	}
}

func TestRestagingFetchesNothing(t *testing.T) {
	f, _ := installed(t)
	target := f.push(t, "second", bootable("usr/large", "large"))
	options := SwitchOptions{Target: registryImage(target), DownloadOnly: true}
	if err := f.Switch(context.Background(), options); err != nil {
		t.Fatal(err)
	}
	f.cutPower(t)
	f.fetched = nil
	if err := f.Switch(context.Background(), options); err != nil {
		t.Fatal(err)
	}
	if len(f.fetched) > 1 {
		t.Errorf("fetched %v, want the configuration alone", f.fetched)
	}
}

func TestOnlyWhatIsNeededStaysOnTheDisk(t *testing.T) {
	f, first := installed(t)
	var last string
	for _, tag := range []string{"second", "third", "fourth"} {
		last = f.push(t, tag, bootable("usr/tag", tag))
		if err := f.Switch(context.Background(), SwitchOptions{Target: registryImage(last)}); err != nil {
			t.Fatal(err)
		}
	}
	deployments, err := f.all()
	if err != nil {
		t.Fatal(err)
	}
	var kept []string
	for _, deployment := range deployments {
		kept = append(kept, deployment.Digest)
	}
	want := []string{digestOf(first), digestOf(last)}
	slices.Sort(want)
	slices.Sort(kept)
	if diff := cmp.Diff(want, kept); diff != "" {
		t.Errorf("deployments (-want +got):\n%s", diff)
	}
}

func TestAMergeThatFailsBootsTheOldImageAndLeavesAStamp(t *testing.T) {
	f, first := installed(t)
	if err := os.Mkdir(filepath.Join(f.Root, "etc", "conflict"), 0o755); err != nil {
		t.Fatal(err)
	}
	target := f.push(t, "second", bootable("etc/conflict", "a file"))
	if err := f.Switch(context.Background(), SwitchOptions{Target: registryImage(target)}); err != nil {
		t.Fatal(err)
	}
	if err := f.Finalize(); err == nil {
		t.Fatal("the merge succeeded")
	}
	f.boot(t)
	if got, want := f.slots(t), "booted="+digestOf(first); got != want {
		t.Errorf("status is %q, want %q", got, want)
	}
	if _, err := os.Stat(filepath.Join(f.Sysroot, "boot", "finalize-failure.stamp")); err != nil {
		t.Error(err)
	}
}

func TestApplyReboots(t *testing.T) {
	f, _ := installed(t)
	target := f.push(t, "second", bootable("usr/marker", "second"))
	if err := f.Switch(context.Background(), SwitchOptions{Target: registryImage(target), Apply: true}); err != nil {
		t.Fatal(err)
	}
	want := []string{
		"systemctl start bootc-finalize-staged.service",
		"systemd-run --quiet -- systemctl reboot --message=Initiated by bootc",
	}
	if diff := cmp.Diff(want, f.commands); diff != "" {
		t.Errorf("commands (-want +got):\n%s", diff)
	}
}
