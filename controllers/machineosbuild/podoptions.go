package machineosbuild

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"
)

// PodOptions are what a cluster's administrator says of builder pods.
type PodOptions struct {
	// Requests and Limits take the place of what is derived from the build and the
	// size of its base image, resource by resource.
	Requests, Limits corev1.ResourceList
	// PriorityClass of the pods; empty: the cluster's default.
	PriorityClass string
	// WithoutUserNamespaces is for clusters that have none: the capabilities of a
	// builder then count on its node, which is the next best, and no more than an
	// administrator of the cluster may do anyway.
	WithoutUserNamespaces bool
	// SELinuxType of the builder, where the default one may not mount; empty: the
	// default one.
	SELinuxType string
	// WithoutAppArmor is for nodes whose profile for containers denies mounts.
	WithoutAppArmor bool
}

// What a build needs that appends a layer: it keeps nothing on disk but its inputs.
// Its memory was measured at less than 100 MB, most of it the config.
var appendRequests = corev1.ResourceList{
	corev1.ResourceCPU:              resource.MustParse("100m"),
	corev1.ResourceMemory:           resource.MustParse("192Mi"),
	corev1.ResourceEphemeralStorage: resource.MustParse("256Mi"),
}

// What a build needs that runs programs, and the least it is given.
var (
	runRequests = corev1.ResourceList{
		corev1.ResourceCPU:              resource.MustParse("250m"),
		corev1.ResourceMemory:           resource.MustParse("512Mi"),
		corev1.ResourceEphemeralStorage: resource.MustParse("4Gi"),
	}
	// There is no CPU limit: a build may take what is idle.
	builderLimits = corev1.ResourceList{
		corev1.ResourceMemory:           resource.MustParse("4Gi"),
		corev1.ResourceEphemeralStorage: resource.MustParse("40Gi"),
	}
)

// A base image that is pulled takes its size as layers that are fetched and some
// two and a half times that unpacked; what a text adds to it, and its layers again
// on the way to the registry, may be as much. The limit leaves room for a text
// that unpacks a lot.
const (
	storageFactor      = 5
	storageLimitFactor = 4
)

// resourcesFor gives requests and limits of a builder; baseSize is that of the base
// image's compressed layers in bytes, 0: it is not known.
func resourcesFor(runsPrograms bool, baseSize int64, options PodOptions) corev1.ResourceRequirements {
	found := corev1.ResourceRequirements{Requests: appendRequests.DeepCopy(), Limits: builderLimits.DeepCopy()}
	if runsPrograms {
		found.Requests = runRequests.DeepCopy()
		raise(found.Requests, corev1.ResourceEphemeralStorage, baseSize*storageFactor)
		raise(found.Limits, corev1.ResourceEphemeralStorage, baseSize*storageFactor*storageLimitFactor)
	}
	for name, quantity := range options.Limits {
		found.Limits[name] = quantity
	}
	for name, quantity := range options.Requests {
		found.Requests[name] = quantity
	}
	for name, limit := range found.Limits {
		// The API refuses a request above its limit.
		if request, isSet := found.Requests[name]; isSet && request.Cmp(limit) > 0 {
			found.Requests[name] = limit
		}
	}
	return found
}

func raise(list corev1.ResourceList, name corev1.ResourceName, bytes int64) {
	if wanted := *resource.NewQuantity(bytes, resource.BinarySI); wanted.Cmp(list[name]) > 0 {
		list[name] = wanted
	}
}

// confine sets what the security modules of a node are to do with the builder.
func (o PodOptions) confine(security *corev1.SecurityContext) *corev1.SecurityContext {
	if o.SELinuxType != "" {
		security.SELinuxOptions = &corev1.SELinuxOptions{Type: o.SELinuxType}
	}
	if o.WithoutAppArmor {
		security.AppArmorProfile = &corev1.AppArmorProfile{Type: corev1.AppArmorProfileTypeUnconfined}
	}
	return security
}

// hostUsers is false where the pod has a user namespace of its own.
func (o PodOptions) hostUsers() *bool { return ptr.To(o.WithoutUserNamespaces) }
