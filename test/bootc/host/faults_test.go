package host

import (
	"context"
	"os"
	"strings"
	"testing"
)

func (f *fixture) faults(t *testing.T, content string) {
	t.Helper()
	if err := os.WriteFile(f.faultsFile(), []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestAFailureOnPurposeEndsAfterItsTimes(t *testing.T) {
	f, _ := installed(t)
	f.faults(t, `{"fail":{"switch":{"text":"Pulling: connection refused","times":2},"rollback":{"text":"x"}}}`)
	for range 2 {
		if err := f.FailOnPurpose("switch"); err == nil || err.Error() != "Pulling: connection refused" {
			t.Errorf("got %v", err)
		}
	}
	if err := f.FailOnPurpose("switch"); err != nil {
		t.Errorf("a third time: %v", err)
	}
	for range 3 {
		if err := f.FailOnPurpose("rollback"); err == nil {
			t.Error("one without a number ends")
		}
	}
}

func TestAFinalizeThatFailsOnPurposeBootsTheOldImage(t *testing.T) {
	f, first := installed(t)
	target := f.push(t, "second", bootable("etc/new", "x"))
	if err := f.Switch(context.Background(), SwitchOptions{Target: registryImage(target)}); err != nil {
		t.Fatal(err)
	}
	f.faults(t, `{"fail":{"finalize":{"text":"Installing kernel: regfile copy: No space left on device","times":1}}}`)
	if err := f.Finalize(); err == nil {
		t.Fatal("it did not fail")
	}
	f.boot(t)
	if got := f.slots(t); got != "booted="+digestOf(first) {
		t.Errorf("slots %s", got)
	}
}

func TestStatusAsTheSwitchesWantIt(t *testing.T) {
	f, _ := installed(t)
	target := f.push(t, "second", bootable("etc/new", "x"))
	f.faults(t, `{"softRebootCapable":true}`)
	if err := f.Switch(context.Background(), SwitchOptions{Target: registryImage(target), SoftReboot: "auto"}); err != nil {
		t.Fatal(err)
	}
	f.faults(t, `{"incompatible":true,"softRebootCapable":true}`)
	status, err := f.Status()
	if err != nil {
		t.Fatal(err)
	}
	if !status.Status.Booted.Incompatible || !status.Status.Staged.SoftRebootCapable {
		t.Errorf("%+v, %+v", status.Status.Booted, status.Status.Staged)
	}
}

func TestAHostThatWasChangedByHandIsNotUpdated(t *testing.T) {
	f, first := installed(t)
	target := f.push(t, "second", bootable("etc/new", "x"))
	f.faults(t, `{"incompatible":true}`)
	for verb, err := range map[string]error{
		"switch":  f.Switch(context.Background(), SwitchOptions{Target: registryImage(target)}),
		"upgrade": f.Upgrade(context.Background(), UpgradeOptions{}),
	} {
		if err == nil || !strings.Contains(err.Error(), "local rpm-ostree modifications") {
			t.Errorf("%s: %v", verb, err)
		}
	}
	if got := f.slots(t); got != "booted="+digestOf(first) {
		t.Errorf("slots %s", got)
	}
}

func TestASoftRebootThatIsRequiredAndNotPossible(t *testing.T) {
	f, _ := installed(t)
	target := f.push(t, "second", bootable("etc/new", "x"))
	err := f.Switch(context.Background(), SwitchOptions{Target: registryImage(target), SoftReboot: "required"})
	if err == nil || !strings.Contains(err.Error(), "not soft-reboot capable") {
		t.Errorf("got %v", err)
	}
}
