package main

import (
	"bytes"
	"os"
	"slices"
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
	for _, name := range switchNames() {
		if !got.runs(name) {
			t.Errorf("controller %s is off", name)
		}
	}
}

// without is all switches but some.
func without(names ...string) []string {
	return slices.DeleteFunc(switchNames(), func(name string) bool { return slices.Contains(names, name) })
}

func TestControllersAreSwitched(t *testing.T) {
	withoutPools := []string{"osimagestream", "machineosbuild", "nodepool", "rollout"}
	for flag, want := range map[string][]string{
		"*":                              switchNames(),
		"osimagestream":                  {"osimagestream"},
		"-render,-pool-status":           without("render", "pool-status"),
		"*,-machineosbuild,-rollout":     without("machineosbuild", "rollout"),
		"-machineosbuild,*":              without("machineosbuild"),
		"machineconfigpool,rollout":      append(slices.Clone(poolSwitches), "rollout"),
		"-machineconfigpool":             withoutPools,
		"-machineconfigpool,render":      {"render"},
		"*,-machineconfigpool,hand-off":  {"osimagestream", "hand-off", "machineosbuild", "nodepool", "rollout"},
		"machineosbuild,-machineosbuild": nil,
		"*,-render,render":               switchNames(),
	} {
		t.Run(flag, func(t *testing.T) {
			options, err := parse(t, "--builder-image=builder:1", "--controllers="+flag)
			if err != nil {
				t.Fatal(err)
			}
			checkSwitches(t, options, want)
		})
	}
}

func checkSwitches(t *testing.T, options Options, want []string) {
	t.Helper()
	var got []string
	for _, name := range switchNames() {
		if options.runs(name) {
			got = append(got, name)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestFeatureGates(t *testing.T) {
	for flag, test := range map[string]struct {
		switches      []string
		defaultBuilds bool
	}{
		"OSStreams=true":                                     {switchNames(), true},
		"OSStreams=false":                                    {without("osimagestream", "nodepool"), true},
		"BootcNodeManagement=false":                          {without("hand-off", "rollout"), true},
		"DefaultBuilds=false":                                {switchNames(), false},
		"DefaultBuilds=false, OSStreams=0":                   {without("osimagestream", "nodepool"), false},
		"OSStreams=false,OSStreams=true,DefaultBuilds=false": {switchNames(), false},
	} {
		t.Run(flag, func(t *testing.T) {
			options, err := parse(t, "--builder-image=builder:1", "--feature-gates="+flag)
			if err != nil {
				t.Fatal(err)
			}
			checkSwitches(t, options, test.switches)
			if got := options.FeatureGates.on(gateDefaultBuilds); got != test.defaultBuilds {
				t.Errorf("default builds: %t, want %t", got, test.defaultBuilds)
			}
		})
	}
	t.Run("a gate opens nothing that a switch closed", func(t *testing.T) {
		options, err := parse(t, "--builder-image=b", "--feature-gates=BootcNodeManagement=true", "--controllers=-rollout")
		if err != nil {
			t.Fatal(err)
		}
		checkSwitches(t, options, without("rollout"))
	})
}

func TestHelpNamesEverySwitchAndGate(t *testing.T) {
	command := newCommand(nil)
	var help bytes.Buffer
	command.SetOut(&help)
	command.SetArgs([]string{"--help"})
	if err := command.Execute(); err != nil {
		t.Fatal(err)
	}
	for _, name := range append(switchNames(), gateNames()...) {
		if !strings.Contains(help.String(), name+": ") && !strings.Contains(help.String(), name+" (default true): ") {
			t.Errorf("--help does not say what %s does", name)
		}
	}
}

func TestBadFlagsAreNamed(t *testing.T) {
	for name, test := range map[string]struct {
		arguments []string
		says      string
	}{
		"no builder image":      {nil, "--builder-image is empty"},
		"an unknown controller": {[]string{"--builder-image=b", "--controllers=*,-machineos"}, `"machineos" is no controller`},
		"a gate nobody knows":   {[]string{"--builder-image=b", "--feature-gates=Streams=true"}, `"Streams" is no feature gate; there are OSStreams`},
		"a gate half open":      {[]string{"--builder-image=b", "--feature-gates=OSStreams"}, "write NAME=true or NAME=false"},
		"the list of names":     {[]string{"--builder-image=b", "--controllers=rendre"}, "there are osimagestream, render, pool-status"},
		"no namespace":          {[]string{"--builder-image=b", "--namespace="}, "--namespace is empty"},
		"an agent by tag":       {[]string{"--builder-image=b", "--agent-image=r.example.com/agent:1"}, `--agent-image "r.example.com/agent:1" is not by digest`},
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
		"a resource":            {[]string{"--builder-image=b", "--builder-requests=disk=1Gi"}, `"disk" is none of`},
		"an amount":             {[]string{"--builder-image=b", "--builder-limits=memory=much"}, `"much" is no positive quantity`},
		"an AppArmor profile":   {[]string{"--builder-image=b", "--builder-apparmor-profile=Localhost"}, "none of Unconfined"},
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
			if diff := cmp.Diff(want, got.BuilderPod.Tolerations); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestBuilderPodFlags(t *testing.T) {
	got, err := parse(t, "--builder-image=b", "--builder-requests=cpu=2,memory=1Gi", "--builder-requests=ephemeral-storage=9Gi", "--builder-limits=memory=8Gi",
		"--builder-apparmor-profile=Localhost/builds", "--builder-selinux-type=container_engine_t", "--builder-priority-class=low", "--builder-host-users")
	if err != nil {
		t.Fatal(err)
	}
	pod := got.BuilderPod
	if said := (*resourceList)(&pod.Requests).String(); said != "cpu=2,ephemeral-storage=9Gi,memory=1Gi" {
		t.Errorf("requests %s", said)
	}
	if said := (*resourceList)(&pod.Limits).String(); said != "memory=8Gi" {
		t.Errorf("limits %s", said)
	}
	if said := (&appArmor{&pod.AppArmorProfile}).String(); said != "Localhost/builds" {
		t.Errorf("AppArmor profile %s", said)
	}
	if pod.SELinuxType != "container_engine_t" || pod.PriorityClass != "low" || !pod.HostUsers {
		t.Errorf("%+v", pod)
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
