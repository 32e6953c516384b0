package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// quantities is a flag's value.
type quantities corev1.ResourceList

func (q *quantities) Type() string { return "resources" }

func (q *quantities) String() string {
	if q == nil {
		return ""
	}
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(*q)) {
		amount := (*q)[name]
		parts = append(parts, string(name)+"="+amount.String())
	}
	return strings.Join(parts, ",")
}

// Set reads name=quantity, separated by commas. It adds to what was set before.
func (q *quantities) Set(text string) error {
	for _, part := range strings.Split(text, ",") {
		name, amount, found := strings.Cut(strings.TrimSpace(part), "=")
		if !found || !slices.Contains(builderResources, corev1.ResourceName(name)) {
			return fmt.Errorf("%q is not name=quantity, with one of the names %v", part, builderResources)
		}
		parsed, err := resource.ParseQuantity(amount)
		if err != nil {
			return fmt.Errorf("%s: %q is no quantity: %w", name, amount, err)
		}
		if parsed.Sign() <= 0 {
			return fmt.Errorf("%s: %s is not positive", name, amount)
		}
		if *q == nil {
			*q = quantities{}
		}
		(*q)[corev1.ResourceName(name)] = parsed
	}
	return nil
}

// builderResources are those that a builder pod can ask for.
var builderResources = []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage}
