package host

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// withMounts lets the host mount, and nothing else.
func (f *fixture) withMounts(t *testing.T) {
	f.Execute = func(name string, arguments ...string) error {
		if name != "mount" && name != "umount" {
			return nil
		}
		output, err := exec.Command(name, arguments...).CombinedOutput()
		if err != nil {
			t.Logf("%s %v: %s", name, arguments, output)
		}
		return err
	}
	t.Cleanup(func() {
		if err := f.dropNextRoot(); err != nil {
			t.Error(err)
		}
	})
}

// next is a file of the root that a soft reboot would lead to; empty: it is not there.
func (f *fixture) next(t *testing.T, path string) string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(f.nextRoot(), path))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	return string(content)
}

func TestASoftRebootIsPreparedAsAMachineBoots(t *testing.T) {
	f, first := installed(t)
	f.withMounts(t)
	target := f.push(t, "second", bootable("etc/new", "x"))
	f.faults(t, `{"softRebootCapable":true}`)
	if err := f.Switch(context.Background(), SwitchOptions{Target: registryImage(target), SoftReboot: "auto"}); err != nil {
		t.Fatal(err)
	}
	if got := f.next(t, "etc/new"); got != "x" {
		t.Errorf("the next root's file holds %q", got)
	}
	if err := os.WriteFile(filepath.Join(f.nextRoot(), "usr/bin/program"), nil, 0o755); err == nil {
		t.Error("its /usr can be written")
	}
	if err := os.WriteFile(filepath.Join(f.Sysroot, "var/data"), []byte("shared"), 0o644); err != nil {
		t.Fatal(err)
	}
	if got := f.next(t, "var/data"); got != "shared" {
		t.Errorf("its /var has %q", got)
	}
	if got := f.next(t, "sysroot/var/data"); got != "shared" {
		t.Errorf("its /sysroot has %q", got)
	}
	if err := f.Finalize(); err != nil {
		t.Fatal(err)
	}
	f.Root = f.nextRoot() // what systemd does then
	if got := f.slots(t); got != "booted="+digestOf(target)+" rollback="+digestOf(first) {
		t.Errorf("after the soft reboot: %s", got)
	}
}

func TestWhatTakesAPreparedSoftRebootBack(t *testing.T) {
	for name, do := range map[string]func(*fixture) error{
		"locking the stage": func(f *fixture) error {
			return f.Upgrade(context.Background(), UpgradeOptions{DownloadOnly: true})
		},
		"another stage": func(f *fixture) error {
			return f.Switch(context.Background(), SwitchOptions{Target: registryImage(f.push(t, "third", bootable("etc/other", "y")))})
		},
	} {
		t.Run(name, func(t *testing.T) {
			f, _ := installed(t)
			f.withMounts(t)
			target := f.push(t, "second", bootable("etc/new", "x"))
			f.faults(t, `{"softRebootCapable":true}`)
			if err := f.Switch(context.Background(), SwitchOptions{Target: registryImage(target), SoftReboot: "auto"}); err != nil {
				t.Fatal(err)
			}
			if err := do(f); err != nil {
				t.Fatal(err)
			}
			if isMounted, err := isMountPoint(f.nextRoot()); isMounted || err != nil {
				t.Errorf("a root is mounted for a soft reboot: %t, %v", isMounted, err)
			}
		})
	}
}

func TestASoftRebootThatStays(t *testing.T) {
	f, _ := installed(t)
	f.withMounts(t)
	target := f.push(t, "second", bootable("etc/new", "x"))
	f.faults(t, `{"softRebootCapable":true,"softRebootStays":true}`)
	if err := f.Switch(context.Background(), SwitchOptions{Target: registryImage(target), SoftReboot: "auto"}); err != nil {
		t.Fatal(err)
	}
	if got := f.next(t, "etc/new"); got != "" {
		t.Errorf("the next root is the image's: %q", got)
	}
	if got := f.next(t, "etc/keep"); got != "image" {
		t.Errorf("the next root's file holds %q", got)
	}
}
