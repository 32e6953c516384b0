package machineosbuild

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"

	"github.com/google/go-cmp/cmp"

	keys "github.com/imagemode/imagemode/api/machineconfiguration"
	"github.com/imagemode/imagemode/builder/request"
	"github.com/imagemode/imagemode/test/builders"
)

func aJob(t *testing.T) *batchv1.Job { return aJobThat(t, true) }

func aJobThat(t *testing.T, runsPrograms bool) *batchv1.Job {
	t.Helper()
	options, err := Options{
		Namespace: "ns", BuilderImage: "registry.example.com/builder:1", Architecture: "arm64",
		BuilderPod: BuilderPod{
			NodeSelector:  map[string]string{"builds": "yes"},
			Tolerations:   []corev1.Toleration{{Key: "builds", Operator: corev1.TolerationOpExists}},
			PriorityClass: "builds", SELinuxType: "container_engine_t",
			AppArmorProfile: &corev1.AppArmorProfile{Type: corev1.AppArmorProfileTypeUnconfined},
		},
	}.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	return newJob(aBuildScope("").build, workload{unpacks: true, runsPrograms: runsPrograms}, nil, options)
}

func TestJobIsSuspendedAndLimited(t *testing.T) {
	job := aJob(t)
	if !isSuspended(job) {
		t.Error("a pod could start before its inputs are there")
	}
	if *job.Spec.BackoffLimit != 3 || *job.Spec.ActiveDeadlineSeconds != 7200 {
		t.Errorf("backoffLimit %d, activeDeadlineSeconds %d", *job.Spec.BackoffLimit, *job.Spec.ActiveDeadlineSeconds)
	}
	if job.Spec.TTLSecondsAfterFinished != nil {
		t.Error("the Job could go before its result was read")
	}
	rule := job.Spec.PodFailurePolicy.Rules[0]
	if rule.Action != batchv1.PodFailurePolicyActionIgnore || rule.OnPodConditions[0].Type != corev1.DisruptionTarget {
		t.Errorf("an eviction uses up an attempt: %+v", rule)
	}
	final := job.Spec.PodFailurePolicy.Rules[1]
	if exit := final.OnExitCodes; final.Action != batchv1.PodFailurePolicyActionFailJob || *exit.ContainerName != builderContainer ||
		exit.Operator != batchv1.PodFailurePolicyOnExitCodesOpIn || !slices.Equal(exit.Values, []int32{request.ExitFinal}) {
		t.Errorf("a failure that no pod mends uses up all attempts: %+v", final)
	}
	if owner := metav1.GetControllerOf(job); owner == nil || owner.Kind != "MachineOSBuild" {
		t.Errorf("owner %+v", owner)
	}
}

func TestBuilderPodHasNoRightsOutsideItsUserNamespace(t *testing.T) {
	pod := aJob(t).Spec.Template.Spec
	if pod.HostUsers == nil || *pod.HostUsers {
		t.Error("hostUsers is not false")
	}
	if pod.AutomountServiceAccountToken == nil || *pod.AutomountServiceAccountToken || pod.ServiceAccountName != "imagemode-builder" {
		t.Error("the pod gets a token, or another ServiceAccount")
	}
	if pod.HostNetwork || pod.HostPID || pod.HostIPC || pod.RestartPolicy != corev1.RestartPolicyNever {
		t.Error("the pod shares something of the host, or restarts")
	}
	for _, container := range append(pod.InitContainers, pod.Containers...) {
		if security := container.SecurityContext; security.Privileged != nil || security.SeccompProfile.Type != corev1.SeccompProfileTypeRuntimeDefault {
			t.Errorf("container %s: %+v", container.Name, security)
		}
	}
	want := []corev1.Capability{"SYS_ADMIN", "SETFCAP", "MKNOD", "SYS_CHROOT"}
	if diff := cmp.Diff(want, pod.Containers[0].SecurityContext.Capabilities.Add); diff != "" {
		t.Errorf("capabilities (-want +got):\n%s", diff)
	}
	for _, volume := range pod.Volumes {
		if volume.HostPath != nil {
			t.Errorf("volume %s is of the host", volume.Name)
		}
		if volume.Name == "entitlement" && *volume.Secret.DefaultMode != 0o400 || volume.Name == "secrets" && *volume.Projected.DefaultMode != 0o400 {
			t.Errorf("others than its owner may read volume %s", volume.Name)
		}
	}
}

func TestBuilderPodRunsWhereItIsTold(t *testing.T) {
	pod := aJob(t).Spec.Template.Spec
	want := map[string]string{"kubernetes.io/arch": "arm64", "kubernetes.io/os": "linux", "builds": "yes"}
	if diff := cmp.Diff(want, pod.NodeSelector); diff != "" {
		t.Errorf("node selector (-want +got):\n%s", diff)
	}
	if len(pod.Tolerations) != 1 || pod.Tolerations[0].Key != "builds" {
		t.Errorf("tolerations %+v", pod.Tolerations)
	}
	if admitted := aJob(t).Spec.Template.Annotations["openshift.io/required-scc"]; admitted != builderServiceAccount {
		t.Errorf("it may be admitted under other rules than its own: %q", admitted)
	}
	if pod.PriorityClassName != "builds" {
		t.Errorf("priority class %q", pod.PriorityClassName)
	}
	security := pod.Containers[0].SecurityContext
	if security.SELinuxOptions.Type != "container_engine_t" || security.AppArmorProfile.Type != corev1.AppArmorProfileTypeUnconfined {
		t.Errorf("security context %+v", security)
	}
}

func TestResourcesOfABuilder(t *testing.T) {
	const mebibyte = 1 << 20
	for name, test := range map[string]struct {
		pod            BuilderPod
		work           workload
		memory, disk   string
		mostMem, mostD string
	}{
		"one that only appends":       {BuilderPod{}, workload{}, "128Mi", "256Mi", "4Gi", "40Gi"},
		"one of a base of no size":    {BuilderPod{}, workload{unpacks: true}, "512Mi", "4Gi", "4Gi", "40Gi"},
		"one of a small base":         {BuilderPod{}, workload{unpacks: true, baseSize: 256 * mebibyte}, "512Mi", "2Gi", "4Gi", "40Gi"},
		"one of a large base":         {BuilderPod{}, workload{unpacks: true, baseSize: 5120 * mebibyte}, "512Mi", "21Gi", "4Gi", "50Gi"},
		"what the cluster says first": {BuilderPod{Requests: amounts("memory", "2Gi")}, workload{unpacks: true}, "2Gi", "4Gi", "4Gi", "40Gi"},
		"no request over its limit":   {BuilderPod{Limits: amounts("memory", "256Mi")}, workload{unpacks: true}, "256Mi", "4Gi", "256Mi", "40Gi"},
	} {
		t.Run(name, func(t *testing.T) {
			got := test.pod.resources(test.work)
			want := corev1.ResourceRequirements{
				Requests: amounts("memory", test.memory, "ephemeral-storage", test.disk, "cpu", got.Requests.Cpu().String()),
				Limits:   amounts("memory", test.mostMem, "ephemeral-storage", test.mostD),
			}
			if !equality.Semantic.DeepEqual(got, want) {
				t.Errorf("got %+v, want %+v", got, want)
			}
		})
	}
}

func amounts(pairs ...string) corev1.ResourceList {
	list := corev1.ResourceList{}
	for pair := range slices.Chunk(pairs, 2) {
		list[corev1.ResourceName(pair[0])] = resource.MustParse(pair[1])
	}
	return list
}

func TestTheSizeOfTheBaseImageIsReadOnce(t *testing.T) {
	w := newWorld(t)
	w.baseSize = 1 << 30
	t.Cleanup(func() { sizes.Remove(baseImage) })
	w.settle()
	disk := w.job(w.current()).Spec.Template.Spec.Containers[0].Resources.Requests.StorageEphemeral()
	if disk.Value() != 5<<30 {
		t.Errorf("%s of disk are asked for", disk)
	}
	w.baseSize = 1
	w.edit(builders.Containerfile(withoutRun))
	w.settle()
	if again := w.job(w.current()).Spec.Template.Spec.Containers[0].Resources.Requests.StorageEphemeral(); !again.Equal(*disk) {
		t.Errorf("%s of disk are asked for the second time", again)
	}
}

func TestAClusterWithoutUserNamespacesIsToldOf(t *testing.T) {
	w := newWorld(t)
	for range 2 { // until the Job is there
		w.round()
	}
	job := w.job(w.current())
	if job == nil || !isSuspended(job) {
		t.Fatal("no suspended Job")
	}
	// The API server drops what its feature gates do not know.
	job.Spec.Template.Spec.HostUsers = nil
	if err := w.client.Update(t.Context(), job); err != nil {
		t.Fatal(err)
	}
	w.settle()
	build := w.current()
	w.wantPhase(build, mcfgv1.MachineOSBuildFailed)
	if message := conditionOf(build).Message; !strings.Contains(message, "--builder-host-users") {
		t.Errorf("message %q", message)
	}
}

func TestCredentialsAreMountedInTheInitContainerOnly(t *testing.T) {
	pod := aJob(t).Spec.Template.Spec
	secret := map[string]bool{}
	for _, volume := range pod.Volumes {
		secret[volume.Name] = volume.Secret != nil || volume.Projected != nil
	}
	// These are for the user's RUN to read.
	delete(secret, "gpg-keys")
	delete(secret, "entitlement")
	for _, mount := range pod.Containers[0].VolumeMounts {
		if secret[mount.Name] {
			t.Errorf("the builder's container mounts %s, which it cannot delete from", mount.Name)
		}
	}
	mounts := func(container corev1.Container) (paths []string) {
		for _, mount := range container.VolumeMounts {
			paths = append(paths, mount.MountPath)
		}
		slices.Sort(paths)
		return paths
	}
	want := []string{
		"/run/imagemode/build", "/run/imagemode/build/entitlement", "/run/imagemode/build/request.json.gz", "/run/imagemode/build/rpm-gpg",
		"/run/imagemode/build/trust", "/run/imagemode/build/yum.repos.d", "/var/lib/imagemode/storage",
	}
	if diff := cmp.Diff(want, mounts(pod.Containers[0])); diff != "" {
		t.Errorf("mounts of the builder (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"/run/imagemode/build", "/run/imagemode/secrets"}, mounts(pod.InitContainers[0])); diff != "" {
		t.Errorf("mounts of the init container (-want +got):\n%s", diff)
	}
}

// TestWithoutAProgramOneContainerIsEnough: nothing runs that credentials would have
// to be hidden from.
func TestWithoutAProgramOneContainerIsEnough(t *testing.T) {
	pod := aJobThat(t, false).Spec.Template.Spec
	if len(pod.InitContainers) > 0 || !slices.Contains(pod.Containers[0].Args, "--keep-credentials") {
		t.Errorf("init containers %v, arguments %v", pod.InitContainers, pod.Containers[0].Args)
	}
	mounted := map[string]bool{}
	for _, mount := range pod.Containers[0].VolumeMounts {
		if mount.Name == "secrets" && mount.ReadOnly {
			mounted[mount.MountPath+" "+mount.SubPath] = true
		}
	}
	want := map[string]bool{"/run/imagemode/build/pull pull": true, "/run/imagemode/build/push push": true}
	if diff := cmp.Diff(want, mounted); diff != "" {
		t.Errorf("mounts of the Secrets (-want +got):\n%s", diff)
	}
	if slices.Contains(aJob(t).Spec.Template.Spec.Containers[0].Args, "--keep-credentials") {
		t.Error("a build that runs programs keeps the credentials where they find them")
	}
}

func TestSuppliesAreWhatThePodMounts(t *testing.T) {
	s := aBuildScope("", withJob(), func(s *buildScope) {
		s.owner.site.trustBundle = "PEM"
		builders.BasePullSecret("base")(s.owner.config)
		s.owner.secrets["base"] = builders.DockerConfig("ns", "base", "base.example.com")
		s.owner.repositories = repositories{yumRepos: &corev1.ConfigMap{}, gpgKeys: &corev1.Secret{}, entitlement: &corev1.Secret{}}
	})
	packed, err := newRequest(s.build, s.blueprint())
	if err != nil {
		t.Fatal(err)
	}
	objects, err := supplies(s.build, s.job, s.owner, packed)
	if err != nil {
		t.Fatal(err)
	}
	made := map[string]bool{}
	for _, object := range objects {
		made[object.GetName()] = true
		if owner := metav1.GetControllerOf(object); owner == nil || owner.UID != s.job.UID {
			t.Errorf("%s does not go with its Job", object.GetName())
		}
		if object.GetLabels()[keys.LabelMachineOSBuild] == "" || object.GetNamespace() != "ns" {
			t.Errorf("%s is not marked as the build's: %v", object.GetName(), object.GetLabels())
		}
	}
	var wanted []string
	for _, volume := range s.job.Spec.Template.Spec.Volumes {
		if volume.ConfigMap != nil {
			wanted = append(wanted, volume.ConfigMap.Name)
		}
		if volume.Secret != nil {
			wanted = append(wanted, volume.Secret.SecretName)
		}
		if volume.Projected != nil {
			for _, source := range volume.Projected.Sources {
				wanted = append(wanted, source.Secret.Name)
			}
		}
	}
	for _, name := range wanted {
		if !made[name] {
			t.Errorf("the pod mounts %s, which is not made", name)
		}
	}
	if len(wanted) != len(made) {
		t.Errorf("made %v, mounted %v", made, wanted)
	}
	for _, object := range objects {
		if secret, ok := object.(*corev1.Secret); ok && secret.Name == pullSecretName(s.build.Name) {
			if raw := string(secret.Data[corev1.DockerConfigJsonKey]); !strings.Contains(raw, "base.example.com") || !strings.Contains(raw, "registry.example.com") {
				t.Errorf("the pull secret lacks credentials: %d bytes", len(raw))
			}
		}
	}
}

func TestRequestSaysWhatIsToBeBuilt(t *testing.T) {
	owner := aScope(text(withExtensions), spec(func(s *mcfgv1.MachineConfigSpec) {
		s.Extensions, s.KernelArguments = []string{"b", "a"}, []string{"quiet"}
	}), annotated(keys.AnnotationRebuild, "x"), withAgent("registry.example.com"), built(""))
	s := &buildScope{owner: owner, build: &owner.builds[0]}
	packed, err := newRequest(s.build, s.blueprint())
	if err != nil {
		t.Fatal(err)
	}
	got, err := request.Decode(bytes.NewReader(packed))
	if err != nil {
		t.Fatal(err)
	}
	ignition := got.Ignition
	got.Ignition = nil
	want := &request.Request{
		Name: s.build.Name, InputsHash: inputsHashOf(s.build), BaseImage: baseImage, ExtensionsImage: extImage,
		Extensions: []string{"a", "b"}, KernelArguments: []string{"quiet"}, Containerfile: withExtensions, Architecture: "amd64",
		PushSpec: "registry.example.com/os/worker:" + s.build.Name, Rebuild: 1,
		AgentImage: "registry.example.com/imagemode/agent@" + agentDigest,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("request (-want +got):\n%s", diff)
	}
	if !json.Valid(ignition) || !strings.Contains(string(ignition), "/etc/motd") {
		t.Errorf("Ignition config %s", ignition)
	}
}

func TestARequestThatDoesNotFitIsRefused(t *testing.T) {
	noise := make([]byte, 3<<20)
	seed := uint32(1)
	for i := range noise {
		seed = seed*1664525 + 1013904223
		noise[i] = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-_"[seed>>26]
	}
	owner := aScope(spec(func(s *mcfgv1.MachineConfigSpec) {
		s.Config.Raw = builders.MachineConfig("x", "worker", builders.File("/etc/noise", string(noise))).Spec.Config.Raw
	}), built(""))
	s := &buildScope{owner: owner, build: &owner.builds[0]}
	if _, err := newRequest(s.build, s.blueprint()); err == nil || !strings.Contains(err.Error(), "make its files smaller") {
		t.Errorf("error %v", err)
	}
}
