package containerfiles

import (
	"strings"
	"testing"
)

func TestExtensions(t *testing.T) {
	plan, err := Extensions(Packages{Install: []string{"usbguard", "libstdc++6"}, NewKernel: []string{"kernel-rt-core"}, OldKernel: []string{"kernel"}})
	if err != nil {
		t.Fatal(err)
	}
	want := "FROM base AS final\nRUN --mount=type=bind,from=extensions,target=/run/extensions <<'END-OF-EXTENSIONS'\n" +
		"PACKAGES='usbguard libstdc++6'\nNEW_KERNEL='kernel-rt-core'\nOLD_KERNEL='kernel'\n"
	if !strings.HasPrefix(plan.Text, want) {
		t.Errorf("got %s", plan.Text[:min(len(plan.Text), 400)])
	}
	checked, err := Check(plan.Text)
	if err != nil {
		t.Fatal(err)
	}
	if checked.From != plan.From || checked.UsesBase != plan.UsesBase || checked.UsesExtensions != plan.UsesExtensions || checked.HasRun != plan.HasRun {
		t.Errorf("the plan is %+v, its text %+v", plan, checked)
	}
	if size := len(plan.Text); size > MaxSize {
		t.Errorf("%d bytes", size)
	}
}

func TestANameThatWouldReachAShellIsRefused(t *testing.T) {
	for _, name := range []string{"a b", "$(reboot)", "a'b", "", "-y", "a;b", "END-OF-EXTENSIONS\nRUN reboot", "../a.rpm"} {
		if _, err := Extensions(Packages{Install: []string{name}}); err == nil {
			t.Errorf("%q was accepted", name)
		}
	}
}
