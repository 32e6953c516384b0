//go:build systemd

package agent

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// TestSystemdAcceptsTheDeadmanUnits: units that systemd does not like would be
// noticed when a node does not come back.
func TestSystemdAcceptsTheDeadmanUnits(t *testing.T) {
	ctx, host := newTestHost(t)
	service, timer := "/run/imagemode-test/imagemode-rollback.service", "/run/imagemode-test/imagemode-rollback.timer"
	boots := "/run/imagemode-test/imagemode-boots.service"
	for path, content := range map[string]string{service: serviceUnit, timer: fmt.Sprintf(timerUnit, 60), boots: bootsUnit} {
		if err := host.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = host.RemoveFile(path) })
	}
	if err := host.InstallProgram(programPath); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = host.RemoveFile(programPath) })
	output, err := host.Run(ctx, testUnit, []string{"/usr/bin/systemd-analyze", "verify", service, timer, boots}, time.Minute)
	if err != nil || !output.Succeeded() || strings.Contains(output.Stderr, "imagemode-rollback") || strings.Contains(output.Stderr, "imagemode-boots") {
		t.Errorf("%+v, %v", output, err)
	}
}

func TestSystemdInstallsTheProgramOnce(t *testing.T) {
	_, host := newTestHost(t)
	const path = "/var/tmp/imagemode-test-program"
	t.Cleanup(func() { _ = host.RemoveFile(path) })
	for range 2 {
		if err := host.InstallProgram(path); err != nil {
			t.Fatal(err)
		}
	}
	state, err := host.Inspect(path, true)
	if err != nil || state.Mode != 0o755 || state.Kind != 0 {
		t.Errorf("%+v, %v", state, err)
	}
}

func TestSystemdKnowsBootAndUnits(t *testing.T) {
	ctx, host := newTestHost(t)
	id, err := host.BootID(ctx)
	if kernel, softs := splitBootID(id); err != nil || len(kernel) != 36 || softs < 0 {
		t.Errorf("boot id %q, %v", id, err)
	}
	if isActive, err := host.IsActive(ctx, "imagemode-no-such-unit.timer"); err != nil || isActive {
		t.Errorf("a unit that does not exist: active %t, %v", isActive, err)
	}
	if isActive, err := host.IsActive(ctx, "basic.target"); err != nil || !isActive {
		t.Errorf("basic.target: active %t, %v", isActive, err)
	}
	if free, err := host.FreeBytes("/var"); err != nil || free <= 0 {
		t.Errorf("%d bytes free, %v", free, err)
	}
}
