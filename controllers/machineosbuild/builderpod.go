package machineosbuild

import (
	"context"
	"maps"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/lru"
	"k8s.io/utils/ptr"
)

// BuilderPod is what clusters may want otherwise in builder pods. The zero value
// is for one with user namespaces.
type BuilderPod struct {
	// NodeSelector and Tolerations say where they may run, besides nodes of the
	// images' architecture.
	NodeSelector map[string]string
	Tolerations  []corev1.Toleration
	// Requests and Limits of the builder. What is left out is derived from what is
	// built, and from the size of its base image.
	Requests, Limits corev1.ResourceList
	// PriorityClass by name; empty: the cluster's default.
	PriorityClass string
	// AppArmorProfile of the builder; nil: the container runtime's own. That may
	// deny mounts, which a build needs, also inside a user namespace.
	AppArmorProfile *corev1.AppArmorProfile
	// SELinuxType of the builder, one that may mount; empty: the runtime's own.
	SELinuxType string
	// HostUsers runs builds without a user namespace: root in a builder pod is then
	// root on its node, with a few capabilities.
	HostUsers bool
}

// Sizes of a build that unpacks images, when nothing is known of them. An OS image
// has some gigabytes, twice: as layers and unpacked.
var (
	builderRequests = corev1.ResourceList{
		corev1.ResourceCPU:              resource.MustParse("250m"),
		corev1.ResourceMemory:           resource.MustParse("512Mi"),
		corev1.ResourceEphemeralStorage: resource.MustParse("4Gi"),
	}
	// There is no CPU limit: a build may take what is idle.
	builderLimits = corev1.ResourceList{
		corev1.ResourceMemory:           resource.MustParse("4Gi"),
		corev1.ResourceEphemeralStorage: resource.MustParse("40Gi"),
	}
	// appendRequests are those of a build that only appends to a remote image.
	appendRequests = corev1.ResourceList{
		corev1.ResourceCPU:              resource.MustParse("100m"),
		corev1.ResourceMemory:           resource.MustParse("128Mi"),
		corev1.ResourceEphemeralStorage: resource.MustParse("256Mi"),
	}
)

const (
	gibibyte = 1 << 30
	// Room for a base image, in multiples of its compressed size: itself, unpacked
	// to about two and a half times that, and what a build adds; and the most that
	// a build may take before its pod is ended.
	storageRequestFactor = 4
	storageLimitFactor   = 10
)

// workload is how much a build has to do.
type workload struct {
	// unpacks is true when images are pulled and unpacked.
	unpacks bool
	// runsPrograms is true when programs of an image are run.
	runsPrograms bool
	// baseSize is the compressed size of the base image, in bytes; 0: not known.
	baseSize int64
}

// resources of the builder's container for a workload.
func (b *BuilderPod) resources(work workload) corev1.ResourceRequirements {
	requests, limits := maps.Clone(builderRequests), maps.Clone(builderLimits)
	switch {
	case !work.unpacks:
		requests = maps.Clone(appendRequests)
	case work.baseSize > 0:
		requests[corev1.ResourceEphemeralStorage] = *resource.NewQuantity(gibibyte+storageRequestFactor*work.baseSize, resource.BinarySI)
		if most := storageLimitFactor * work.baseSize; limits.StorageEphemeral().CmpInt64(most) < 0 {
			limits[corev1.ResourceEphemeralStorage] = *resource.NewQuantity(most, resource.BinarySI)
		}
	}
	maps.Copy(requests, b.Requests)
	maps.Copy(limits, b.Limits)
	for name, limit := range limits {
		if request, found := requests[name]; found && request.Cmp(limit) > 0 {
			requests[name] = limit
		}
	}
	return corev1.ResourceRequirements{Requests: requests, Limits: limits}
}

// securityContext of the builder. Its capabilities count inside the pod's user
// namespace only: mounting layers (SYS_ADMIN), file capabilities of packages
// (SETFCAP), whiteouts (MKNOD), and running a step in the image's root
// (SYS_CHROOT). Outside they are those of an unprivileged user.
func (b *BuilderPod) securityContext() *corev1.SecurityContext {
	security := &corev1.SecurityContext{
		RunAsUser: ptr.To(int64(0)),
		Capabilities: &corev1.Capabilities{
			Add: []corev1.Capability{"SYS_ADMIN", "SETFCAP", "MKNOD", "SYS_CHROOT"},
		},
		SeccompProfile:  &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
		AppArmorProfile: b.AppArmorProfile,
	}
	if b.SELinuxType != "" {
		security.SELinuxOptions = &corev1.SELinuxOptions{Type: b.SELinuxType}
	}
	return security
}

// sizes of base images in bytes, by reference by digest.
var sizes = lru.New(memorySize)

// workOf says how much a build has to do. A base image that cannot be read now is
// of unknown size: the builder will say what is the matter with it.
func (r *buildReconciler) workOf(ctx context.Context, s *buildScope, print *blueprint) workload {
	work := workload{
		unpacks:      print.containerfile != "" || installsPackages(&print.rendered.Spec),
		runsPrograms: print.runsPrograms,
	}
	if !work.unpacks {
		return work
	}
	image := print.rendered.Spec.OSImageURL
	if known, found := sizes.Get(image); found {
		work.baseSize = known.(int64)
		return work
	}
	access, err := s.owner.pullAccess()
	if err != nil {
		return work
	}
	if facts, err := r.images.Read(ctx, access, image); err == nil && facts.Size > 0 {
		sizes.Add(image, facts.Size)
		work.baseSize = facts.Size
	}
	return work
}
