package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/imagemode/imagemode/controllers/machineosbuild"
)

// addBuilderPodFlags adds the flags about builder pods.
func addBuilderPodFlags(flags *pflag.FlagSet, pod *machineosbuild.BuilderPod) {
	flags.StringToStringVar(&pod.NodeSelector, "builder-node-selector", nil, "labels of the nodes that builder pods run on: key=value,...")
	flags.Var((*tolerations)(&pod.Tolerations), "builder-tolerations",
		"taints that builder pods tolerate: key[=value][:effect],... or a JSON list of tolerations")
	flags.Var((*resourceList)(&pod.Requests), "builder-requests",
		"what builder pods request: cpu=…,memory=…,ephemeral-storage=…; what is left out is derived from the build and the size of its base image")
	flags.Var((*resourceList)(&pod.Limits), "builder-limits", "what builder pods may use at most, as in --builder-requests (memory=4Gi,ephemeral-storage=40Gi or ten times the base image)")
	flags.StringVar(&pod.PriorityClass, "builder-priority-class", "", "priority class of builder pods; empty: the cluster's default")
	flags.Var(&appArmor{&pod.AppArmorProfile}, "builder-apparmor-profile",
		"AppArmor profile of builder pods: Unconfined, RuntimeDefault or Localhost/name. A runtime's own profile denies the mounts that a build needs")
	flags.Lookup("builder-apparmor-profile").DefValue = "the container runtime's choice"
	flags.StringVar(&pod.SELinuxType, "builder-selinux-type", "", "SELinux type of builder pods, one that may mount, as container_engine_t; empty: the container runtime's choice")
	flags.BoolVar(&pod.HostUsers, "builder-host-users", false,
		"build without a user namespace, for clusters that have none: root in a builder pod is then root on its node, with few capabilities")
}

// resourceList is a flag's value.
type resourceList corev1.ResourceList

var builderResources = []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage}

func (l *resourceList) Type() string { return "resources" }

func (l *resourceList) String() string {
	var entries []string
	for _, name := range slices.Sorted(maps.Keys(*l)) {
		quantity := (*l)[name]
		entries = append(entries, string(name)+"="+quantity.String())
	}
	return strings.Join(entries, ",")
}

// Set reads name=quantity,... and adds to what was set before.
func (l *resourceList) Set(text string) error {
	if *l == nil {
		*l = resourceList{}
	}
	for _, entry := range strings.Split(text, ",") {
		name, value, _ := strings.Cut(strings.TrimSpace(entry), "=")
		if !slices.Contains(builderResources, corev1.ResourceName(name)) {
			return fmt.Errorf("%q: %q is none of %v", entry, name, builderResources)
		}
		quantity, err := resource.ParseQuantity(value)
		if err != nil || quantity.Sign() <= 0 {
			return fmt.Errorf("%q: %q is no positive quantity, such as 500m or 4Gi", entry, value)
		}
		(*l)[corev1.ResourceName(name)] = quantity
	}
	return nil
}

// appArmor is a flag's value.
type appArmor struct{ profile **corev1.AppArmorProfile }

func (a *appArmor) Type() string { return "profile" }

func (a *appArmor) String() string {
	if a.profile == nil || *a.profile == nil {
		return ""
	}
	if name := (*a.profile).LocalhostProfile; name != nil {
		return string((*a.profile).Type) + "/" + *name
	}
	return string((*a.profile).Type)
}

// Set reads Unconfined, RuntimeDefault or Localhost/name.
func (a *appArmor) Set(text string) error {
	kind, name, isNamed := strings.Cut(text, "/")
	profile := &corev1.AppArmorProfile{Type: corev1.AppArmorProfileType(kind)}
	switch {
	case profile.Type == corev1.AppArmorProfileTypeLocalhost && name != "":
		profile.LocalhostProfile = &name
	case isNamed, profile.Type != corev1.AppArmorProfileTypeUnconfined && profile.Type != corev1.AppArmorProfileTypeRuntimeDefault:
		return fmt.Errorf("%q is none of Unconfined, RuntimeDefault, Localhost/name", text)
	}
	*a.profile = profile
	return nil
}

// tolerations is a flag's value.
type tolerations []corev1.Toleration

func (t *tolerations) Type() string { return "tolerations" }

func (t *tolerations) String() string {
	if t == nil || len(*t) == 0 {
		return ""
	}
	raw, err := json.Marshal(*t)
	if err != nil {
		return err.Error()
	}
	return string(raw)
}

// Set reads a JSON list, or key[=value][:effect] separated by commas. It adds
// to what was set before.
func (t *tolerations) Set(text string) error {
	if strings.HasPrefix(strings.TrimSpace(text), "[") {
		var list []corev1.Toleration
		if err := json.Unmarshal([]byte(text), &list); err != nil {
			return fmt.Errorf("no JSON list of tolerations: %w", err)
		}
		*t = append(*t, list...)
		return nil
	}
	for _, entry := range strings.Split(text, ",") {
		toleration, err := parseToleration(strings.TrimSpace(entry))
		if err != nil {
			return err
		}
		*t = append(*t, toleration)
	}
	return nil
}

var taintEffects = []corev1.TaintEffect{
	corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute,
}

// parseToleration reads key[=value][:effect]. Without a value every value is
// tolerated, without an effect every effect.
func parseToleration(entry string) (corev1.Toleration, error) {
	rest, effect, hasEffect := strings.Cut(entry, ":")
	key, value, hasValue := strings.Cut(rest, "=")
	if key == "" {
		return corev1.Toleration{}, fmt.Errorf("%q has no key; write key[=value][:effect]", entry)
	}
	if hasEffect && !slices.Contains(taintEffects, corev1.TaintEffect(effect)) {
		return corev1.Toleration{}, fmt.Errorf("%q: effect %q is none of %v", entry, effect, taintEffects)
	}
	toleration := corev1.Toleration{Key: key, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffect(effect)}
	if hasValue {
		toleration.Operator, toleration.Value = corev1.TolerationOpEqual, value
	}
	return toleration, nil
}
