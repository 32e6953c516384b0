package machineosbuild

import (
	"maps"
	"path"
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"

	keys "github.com/imagemode/imagemode/api/machineconfiguration"
	"github.com/imagemode/imagemode/builder/request"
)

// What builder pods are made with.
const (
	// builderServiceAccount has no rights, and its token is not mounted.
	builderServiceAccount = "imagemode-builder"
	// builderContainer writes the result; copyContainer goes before it.
	builderContainer = "build"
	copyContainer    = "copy-credentials"
	// annotationRequiredSCC names the security context constraints that OpenShift
	// admits a pod under; those for builders are called as their ServiceAccount.
	annotationRequiredSCC = "openshift.io/required-scc"
)

// Directories in a builder pod.
const (
	// inputsDirectory is a memory volume. The builder reads the credentials from
	// there and unlinks them before any text of a user runs.
	inputsDirectory = "/run/imagemode/build"
	// secretsDirectory is where the init container finds the Secrets. The
	// builder's container does not have it.
	secretsDirectory = "/run/imagemode/secrets"
	// storageDirectory holds images and layers. It is on a volume, because
	// overlay does not work on a container's own overlay.
	storageDirectory = "/var/lib/imagemode/storage"
)

const (
	// backoffLimit is the number of further attempts of a failed build, each in a
	// new pod: what a registry or a repository refuses now it may give later.
	backoffLimit = 3
	// succeededJobTTL leaves time to look at a Job that is done; failedJobTTL
	// leaves a day to find out what went wrong.
	succeededJobTTL = int32(10 * 60)
	failedJobTTL    = int32(24 * 60 * 60)
)

var (
	copyRequests = corev1.ResourceList{
		corev1.ResourceCPU:    resource.MustParse("10m"),
		corev1.ResourceMemory: resource.MustParse("32Mi"),
	}
	// inputsSize holds two sets of credentials, of at most 1 MiB each.
	inputsSize = resource.MustParse("4Mi")
)

// newJob returns the Job of a build. It is suspended: its inputs are made when
// its UID is known, as their owner, and only then may a pod start.
func newJob(build *mcfgv1.MachineOSBuild, work workload, proxy []corev1.EnvVar, options Options) *batchv1.Job {
	labels := inputLabels(build)
	return &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:       options.Namespace,
			Name:            jobName(build.Name),
			Labels:          labels,
			Annotations:     map[string]string{keys.AnnotationFullName: build.Name},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(build, mcfgv1.GroupVersion.WithKind("MachineOSBuild"))},
		},
		Spec: batchv1.JobSpec{
			Suspend:               ptr.To(true),
			BackoffLimit:          ptr.To(int32(backoffLimit)),
			ActiveDeadlineSeconds: ptr.To(int64(options.BuilderDeadline.Seconds())),
			PodFailurePolicy:      failurePolicy(),
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels, Annotations: map[string]string{
					keys.AnnotationFullName: build.Name,
					annotationRequiredSCC:   builderServiceAccount,
				}},
				Spec: builderPod(build, work, proxy, options),
			},
		},
	}
}

// failurePolicy keeps evictions and preemption from using up an attempt, and ends
// the Job at a failure that each further attempt would meet again: a registry that
// has refused a password counts how often it is tried.
func failurePolicy() *batchv1.PodFailurePolicy {
	return &batchv1.PodFailurePolicy{Rules: []batchv1.PodFailurePolicyRule{{
		Action: batchv1.PodFailurePolicyActionIgnore,
		OnPodConditions: []batchv1.PodFailurePolicyOnPodConditionsPattern{
			{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue},
		},
	}, {
		Action: batchv1.PodFailurePolicyActionFailJob,
		OnExitCodes: &batchv1.PodFailurePolicyOnExitCodesRequirement{
			ContainerName: ptr.To(builderContainer),
			Operator:      batchv1.PodFailurePolicyOnExitCodesOpIn,
			Values:        []int32{request.ExitFinal},
		},
	}}}
}

// endsAtFinalFailure says whether a Job was made with that policy.
func endsAtFinalFailure(job *batchv1.Job) bool {
	return job.Spec.PodFailurePolicy != nil && slices.ContainsFunc(job.Spec.PodFailurePolicy.Rules, func(rule batchv1.PodFailurePolicyRule) bool {
		return rule.Action == batchv1.PodFailurePolicyActionFailJob
	})
}

func builderPod(build *mcfgv1.MachineOSBuild, work workload, proxy []corev1.EnvVar, options Options) corev1.PodSpec {
	selector := map[string]string{corev1.LabelArchStable: options.Architecture, corev1.LabelOSStable: "linux"}
	maps.Copy(selector, options.BuilderPod.NodeSelector)
	pod := corev1.PodSpec{
		RestartPolicy:                 corev1.RestartPolicyNever,
		ServiceAccountName:            builderServiceAccount,
		AutomountServiceAccountToken:  ptr.To(false),
		EnableServiceLinks:            ptr.To(false),
		HostUsers:                     ptr.To(options.BuilderPod.HostUsers),
		PriorityClassName:             options.BuilderPod.PriorityClass,
		TerminationGracePeriodSeconds: ptr.To(int64(10)),
		NodeSelector:                  selector,
		Tolerations:                   options.BuilderPod.Tolerations,
		Containers:                    []corev1.Container{buildImage(work, proxy, options)},
		Volumes:                       builderVolumes(build),
	}
	if work.runsPrograms {
		pod.InitContainers = []corev1.Container{copyCredentials(options)}
		pod.Volumes = append(pod.Volumes, repositoryVolumes(build)...)
		pod.Containers[0].VolumeMounts = append(pod.Containers[0].VolumeMounts, repositoryMounts...)
	} else {
		mountCredentials(&pod.Containers[0])
	}
	return pod
}

// runsPrograms says what a Job's pods were made for.
func runsPrograms(job *batchv1.Job) bool { return len(job.Spec.Template.Spec.InitContainers) > 0 }

// mountCredentials gives the builder the Secrets themselves: there is no program
// to hide them from, and a container less is a second less.
func mountCredentials(builder *corev1.Container) {
	builder.Args = append(builder.Args, "--keep-credentials")
	for _, file := range []string{request.FilePullAuth, request.FilePushAuth} {
		builder.VolumeMounts = append(builder.VolumeMounts, corev1.VolumeMount{
			Name: "secrets", MountPath: path.Join(inputsDirectory, path.Dir(file)), SubPath: path.Dir(file), ReadOnly: true,
		})
	}
}

// copyCredentials copies the credentials to a volume on which the builder can
// delete them: a mounted Secret cannot be deleted from.
func copyCredentials(options Options) corev1.Container {
	return corev1.Container{
		Name:                     copyContainer,
		Image:                    options.BuilderImage,
		Args:                     []string{"copy-credentials", "--from", secretsDirectory, "--to", inputsDirectory},
		TerminationMessagePolicy: corev1.TerminationMessageFallbackToLogsOnError,
		Resources:                corev1.ResourceRequirements{Requests: copyRequests},
		SecurityContext: &corev1.SecurityContext{
			RunAsUser:                ptr.To(int64(0)),
			AllowPrivilegeEscalation: ptr.To(false),
			ReadOnlyRootFilesystem:   ptr.To(true),
			Capabilities:             &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
			SeccompProfile:           &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
		},
		VolumeMounts: []corev1.VolumeMount{
			{Name: "secrets", MountPath: secretsDirectory, ReadOnly: true},
			{Name: "inputs", MountPath: inputsDirectory},
		},
	}
}

// buildImage is the builder.
func buildImage(work workload, proxy []corev1.EnvVar, options Options) corev1.Container {
	return corev1.Container{
		Name:  builderContainer,
		Image: options.BuilderImage,
		Args: []string{
			"build", "--dir", inputsDirectory, "--storage", storageDirectory,
			"--result", corev1.TerminationMessagePathDefault,
		},
		Env:                      proxy,
		TerminationMessagePolicy: corev1.TerminationMessageFallbackToLogsOnError,
		Resources:                options.BuilderPod.resources(work),
		SecurityContext:          options.BuilderPod.securityContext(),
		VolumeMounts: []corev1.VolumeMount{
			{Name: "inputs", MountPath: inputsDirectory},
			{Name: "request", MountPath: path.Join(inputsDirectory, request.FileRequest), SubPath: request.FileRequest, ReadOnly: true},
			{Name: "trust", MountPath: path.Join(inputsDirectory, path.Dir(request.FileTrustBundle)), ReadOnly: true},
			{Name: "storage", MountPath: storageDirectory},
		},
	}
}

// repositoryMounts are for programs that install packages.
var repositoryMounts = []corev1.VolumeMount{
	{Name: "yum-repos", MountPath: path.Join(inputsDirectory, request.DirYumRepos), ReadOnly: true},
	{Name: "gpg-keys", MountPath: path.Join(inputsDirectory, request.DirGPGKeys), ReadOnly: true},
	{Name: "entitlement", MountPath: path.Join(inputsDirectory, request.DirEntitlement), ReadOnly: true},
}

// builderVolumes give the builder the layout that it expects of its directory.
// Where the cluster has no trust bundle, that directory stays empty.
func builderVolumes(build *mcfgv1.MachineOSBuild) []corev1.Volume {
	secrets := &corev1.ProjectedVolumeSource{
		DefaultMode: ptr.To(int32(0o400)),
		Sources: []corev1.VolumeProjection{
			projectSecret(pullSecretName(build.Name), request.FilePullAuth),
			projectSecret(pushSecretName(build.Name), request.FilePushAuth),
		},
	}
	inputs := &corev1.EmptyDirVolumeSource{Medium: corev1.StorageMediumMemory, SizeLimit: &inputsSize}
	asked := &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: requestName(build.Name)}}
	trust := &corev1.ConfigMapVolumeSource{
		LocalObjectReference: corev1.LocalObjectReference{Name: trustBundleName(build.Name)},
		Items:                []corev1.KeyToPath{{Key: keys.KeyTrustBundle, Path: path.Base(request.FileTrustBundle)}},
		Optional:             ptr.To(true),
	}
	return []corev1.Volume{
		{Name: "secrets", VolumeSource: corev1.VolumeSource{Projected: secrets}},
		{Name: "inputs", VolumeSource: corev1.VolumeSource{EmptyDir: inputs}},
		{Name: "request", VolumeSource: corev1.VolumeSource{ConfigMap: asked}},
		{Name: "trust", VolumeSource: corev1.VolumeSource{ConfigMap: trust}},
		{Name: "storage", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
	}
}

// repositoryVolumes are what repositoryMounts mounts. Each volume is something that
// a kubelet looks for before it starts the pod.
func repositoryVolumes(build *mcfgv1.MachineOSBuild) []corev1.Volume {
	return []corev1.Volume{
		{Name: "yum-repos", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
			LocalObjectReference: corev1.LocalObjectReference{Name: yumReposName(build.Name)}, Optional: ptr.To(true),
		}}},
		{Name: "gpg-keys", VolumeSource: optionalSecret(gpgKeysName(build.Name), 0o444)},
		{Name: "entitlement", VolumeSource: optionalSecret(entitlementName(build.Name), 0o400)},
	}
}

func optionalSecret(name string, mode int32) corev1.VolumeSource {
	return corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: name, DefaultMode: &mode, Optional: ptr.To(true)}}
}

func projectSecret(name, file string) corev1.VolumeProjection {
	return corev1.VolumeProjection{Secret: &corev1.SecretProjection{
		LocalObjectReference: corev1.LocalObjectReference{Name: name},
		Items:                []corev1.KeyToPath{{Key: corev1.DockerConfigJsonKey, Path: file}},
	}}
}
