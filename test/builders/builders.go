// Package builders makes the objects that tests are about, with everything set
// that the API requires and a test does not care about. What a test does care
// about is given as options:
//
//	builders.MachineConfig("50-motd", "worker", builders.File("/etc/motd", "hello\n"))
package builders

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
)

const (
	// RoleLabel says which pools select a MachineConfig.
	RoleLabel = "machineconfiguration.openshift.io/role"
	// NodeRolePrefix, followed by a role, is the label that says what a node is for.
	NodeRolePrefix = "node-role.kubernetes.io/"
)

// MachineConfigPool returns a pool with the selectors that every cluster has
// for it: the MachineConfigs of its role, the nodes of its role. A pool other
// than master and worker selects worker's MachineConfigs too.
func MachineConfigPool(name string, options ...func(*mcfgv1.MachineConfigPool)) *mcfgv1.MachineConfigPool {
	roles := []string{name}
	if name != "master" && name != "worker" {
		roles = []string{"worker", name}
	}
	pool := &mcfgv1.MachineConfigPool{
		TypeMeta:   typeMeta("MachineConfigPool"),
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: mcfgv1.MachineConfigPoolSpec{
			MachineConfigSelector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
				{Key: RoleLabel, Operator: metav1.LabelSelectorOpIn, Values: roles},
			}},
			NodeSelector: &metav1.LabelSelector{MatchLabels: map[string]string{NodeRolePrefix + name: ""}},
		},
	}
	for _, option := range options {
		option(pool)
	}
	return pool
}

// Paused holds a pool's rollout back.
func Paused(pool *mcfgv1.MachineConfigPool) { pool.Spec.Paused = true }

// MaxUnavailable is how many nodes of a pool may be out of service at a time.
func MaxUnavailable(nodes int) func(*mcfgv1.MachineConfigPool) {
	return func(pool *mcfgv1.MachineConfigPool) {
		value := intstr.FromInt(nodes)
		pool.Spec.MaxUnavailable = &value
	}
}

// Rendered is the name of the rendered MachineConfig that a pool is to have.
func Rendered(name string) func(*mcfgv1.MachineConfigPool) {
	return func(pool *mcfgv1.MachineConfigPool) {
		pool.Spec.Configuration.ObjectReference = corev1.ObjectReference{Name: name}
	}
}

// Stream is the OS stream a pool asks for.
func Stream(name string) func(*mcfgv1.MachineConfigPool) {
	return func(pool *mcfgv1.MachineConfigPool) { pool.Spec.OSImageStream.Name = name }
}

// MachineOSConfig returns a MachineOSConfig for the pool of the same name, with
// a push secret, a push spec and no Containerfile.
func MachineOSConfig(pool string, options ...func(*mcfgv1.MachineOSConfig)) *mcfgv1.MachineOSConfig {
	config := &mcfgv1.MachineOSConfig{
		TypeMeta:   typeMeta("MachineOSConfig"),
		ObjectMeta: metav1.ObjectMeta{Name: pool},
		Spec: mcfgv1.MachineOSConfigSpec{
			MachineConfigPool:       mcfgv1.MachineConfigPoolReference{Name: pool},
			ImageBuilder:            mcfgv1.MachineOSImageBuilder{ImageBuilderType: mcfgv1.JobBuilder},
			RenderedImagePushSecret: mcfgv1.ImageSecretObjectReference{Name: "push"},
			RenderedImagePushSpec:   mcfgv1.ImageTagFormat("registry.example.com/os/" + pool + ":latest"),
		},
	}
	for _, option := range options {
		option(config)
	}
	return config
}

// Containerfile is the text to build with, for every architecture.
func Containerfile(text string) func(*mcfgv1.MachineOSConfig) {
	return func(config *mcfgv1.MachineOSConfig) {
		config.Spec.Containerfile = []mcfgv1.MachineOSContainerfile{
			{ContainerfileArch: mcfgv1.NoArch, Content: text},
		}
	}
}

// PushTo is where images go (host/repository:tag) and the Secret to push with.
func PushTo(spec, secret string) func(*mcfgv1.MachineOSConfig) {
	return func(config *mcfgv1.MachineOSConfig) {
		config.Spec.RenderedImagePushSpec = mcfgv1.ImageTagFormat(spec)
		config.Spec.RenderedImagePushSecret.Name = secret
	}
}

// BasePullSecret is the Secret to pull base images with.
func BasePullSecret(name string) func(*mcfgv1.MachineOSConfig) {
	return func(config *mcfgv1.MachineOSConfig) {
		config.Spec.BaseImagePullSecret = &mcfgv1.ImageSecretObjectReference{Name: name}
	}
}

// MachineOSBuild returns a MachineOSBuild of the pool "worker", without status.
func MachineOSBuild(name string, options ...func(*mcfgv1.MachineOSBuild)) *mcfgv1.MachineOSBuild {
	build := &mcfgv1.MachineOSBuild{
		TypeMeta:   typeMeta("MachineOSBuild"),
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: mcfgv1.MachineOSBuildSpec{
			MachineConfig:         mcfgv1.MachineConfigReference{Name: "rendered-worker"},
			MachineOSConfig:       mcfgv1.MachineOSConfigReference{Name: "worker"},
			RenderedImagePushSpec: mcfgv1.ImageTagFormat("registry.example.com/os/worker:" + name),
		},
	}
	for _, option := range options {
		option(build)
	}
	return build
}

// Node returns a Node of a role that is Ready and schedulable.
func Node(name, role string, options ...func(*corev1.Node)) *corev1.Node {
	node := &corev1.Node{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Node"},
		ObjectMeta: metav1.ObjectMeta{
			Name:   name,
			Labels: map[string]string{NodeRolePrefix + role: "", corev1.LabelArchStable: "amd64"},
		},
		Status: corev1.NodeStatus{
			NodeInfo:   corev1.NodeSystemInfo{Architecture: "amd64", BootID: "boot-1"},
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
		},
	}
	for _, option := range options {
		option(node)
	}
	return node
}

// NotReady makes a Node one whose kubelet is not ready.
func NotReady(node *corev1.Node) { node.Status.Conditions[0].Status = corev1.ConditionFalse }

// Cordoned makes a Node unschedulable.
func Cordoned(node *corev1.Node) { node.Spec.Unschedulable = true }

// Labelled adds a label to a Node.
func Labelled(key, value string) func(*corev1.Node) {
	return func(node *corev1.Node) { node.Labels[key] = value }
}

// DockerConfig returns a pull or push Secret for one registry.
func DockerConfig(namespace, name, registry string) *corev1.Secret {
	return &corev1.Secret{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Type:       corev1.SecretTypeDockerConfigJson,
		Data: map[string][]byte{
			corev1.DockerConfigJsonKey: []byte(`{"auths":{"` + registry + `":{"auth":"dXNlcjpwYXNzd29yZA=="}}}`),
		},
	}
}

func typeMeta(kind string) metav1.TypeMeta {
	return metav1.TypeMeta{APIVersion: mcfgv1.GroupVersion.String(), Kind: kind}
}
