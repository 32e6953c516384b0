package main

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"

	keys "github.com/imagemode/imagemode/api/machineconfiguration"
)

// parse runs the command with arguments and returns what it would run with.
func parse(t *testing.T, arguments ...string) (Options, error) {
	t.Helper()
	var got Options
	command := newCommand(func(_ *cobra.Command, options Options) error {
		got = options
		return nil
	})
	command.SetArgs(arguments)
	return got, command.Execute()
}

func TestDefaults(t *testing.T) {
	got, err := parse(t, "--builder-image=builder:1")
	if err != nil {
		t.Fatal(err)
	}
	if got.Namespace != keys.Namespace || got.MetricsBindAddress != ":8443" || got.LeaderElect {
		t.Errorf("%+v", got)
	}
	for _, name := range controllerNames() {
		if !got.runs(name) {
			t.Errorf("controller %s is off", name)
		}
	}
}

func TestControllersAreSwitched(t *testing.T) {
	for flag, want := range map[string][]string{
		"*":                               controllerNames(),
		"osimagestream":                   {"osimagestream"},
		"*,-machineosbuild,-imagerollout": {"osimagestream", "machineconfigpool", "nodepool"},
		"-machineosbuild,*":               controllerNames(),
		"machineconfigpool,imagerollout":  {"machineconfigpool", "imagerollout"},
		"machineosbuild,-machineosbuild":  nil,
	} {
		t.Run(flag, func(t *testing.T) {
			options, err := parse(t, "--builder-image=builder:1", "--controllers="+flag)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, name := range controllerNames() {
				if options.runs(name) {
					got = append(got, name)
				}
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestBadFlagsAreNamed(t *testing.T) {
	for name, test := range map[string]struct {
		arguments []string
		says      string
	}{
		"no builder image":      {nil, "--builder-image is empty"},
		"an unknown controller": {[]string{"--builder-image=b", "--controllers=*,-machineos"}, `"machineos" is no controller`},
		"no namespace":          {[]string{"--builder-image=b", "--namespace="}, "--namespace is empty"},
		"no resource":           {[]string{"--builder-image=b", "--builder-requests=disk=1Gi"}, "is not name=quantity"},
		"no quantity":           {[]string{"--builder-image=b", "--builder-limits=memory=much"}, "is no quantity"},
		"less than nothing":     {[]string{"--builder-image=b", "--builder-limits=memory=-1"}, "is not positive"},
		"no time":               {[]string{"--builder-image=b", "--builder-deadline=0s"}, "--builder-deadline"},
		"no time to start":      {[]string{"--builder-image=b", "--builder-pending-deadline=0s"}, "--builder-pending-deadline"},
		"no builds at a time":   {[]string{"--builder-image=b", "--max-concurrent-builds=0"}, "--max-concurrent-builds 0 is less than 1"},
		"a negative history":    {[]string{"--builder-image=b", "--failed-builds-history-limit=-1"}, "cannot be negative"},
		"half a default build":  {[]string{"--builder-image=b", "--default-push-repository=r.example.com/os"}, "--default-push-secret belong together"},
		"another way to prune":  {[]string{"--builder-image=b", "--prune=some"}, "write true, dry-run or false"},
		"half a pair of images": {[]string{"--builder-image=b", "--base-os-image=x"}, "belong together"},
		"a toleration's effect": {[]string{"--builder-image=b", "--builder-tolerations=a:Never"}, `effect "Never"`},
		"a toleration's key":    {[]string{"--builder-image=b", "--builder-tolerations=:NoSchedule"}, "has no key"},
		"tolerations' JSON":     {[]string{"--builder-image=b", "--builder-tolerations=[{]"}, "no JSON list"},
		"an argument":           {[]string{"--builder-image=b", "worker"}, "worker"},
		"a flag nobody knows":   {[]string{"--builder-imag=b"}, "builder-imag"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := parse(t, test.arguments...); err == nil || !strings.Contains(err.Error(), test.says) {
				t.Errorf("error %v, want %q", err, test.says)
			}
		})
	}
}

func TestNoBuilderImageIsNeededWithoutBuilds(t *testing.T) {
	if _, err := parse(t, "--controllers=*,-machineosbuild"); err != nil {
		t.Error(err)
	}
}

func TestTolerations(t *testing.T) {
	master := corev1.Toleration{Key: "node-role.kubernetes.io/master", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule}
	for flag, want := range map[string][]corev1.Toleration{
		"node-role.kubernetes.io/master:NoSchedule": {master},
		"a=b,c": {
			{Key: "a", Operator: corev1.TolerationOpEqual, Value: "b"}, {Key: "c", Operator: corev1.TolerationOpExists},
		},
		`[{"key":"node-role.kubernetes.io/master","operator":"Exists","effect":"NoSchedule"}]`: {master},
	} {
		t.Run(flag, func(t *testing.T) {
			got, err := parse(t, "--builder-image=b", "--builder-tolerations="+flag)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got.BuilderTolerations); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestNoHomeDirectoryIsLookedInto(t *testing.T) {
	// t.Setenv restores what forgetHome changes.
	t.Setenv("HOME", "/root")
	t.Setenv("XDG_CONFIG_HOME", "")
	if err := forgetHome(); err != nil {
		t.Fatal(err)
	}
	if got := os.Getenv("HOME"); got != "/nonexistent" {
		t.Errorf("HOME is %q", got)
	}
}
