package story

import (
	"context"
	"fmt"
	"os"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/imagemode/imagemode/api/machineconfiguration"
	"github.com/imagemode/imagemode/test/e2e/local"
)

// deploy applies config/default with the images in the local registry, gives it
// the credentials, certificates and streams of that registry, and waits until
// the controller and all agents are up.
func (s *Story) deploy(ctx context.Context) error {
	if err := s.applyCRDs(ctx); err != nil {
		return err
	}
	if err := s.applyOverlay(ctx); err != nil {
		return err
	}
	if err := s.applyRegistryAccess(ctx); err != nil {
		return err
	}
	s.Log.Line("applied the CRDs, config/default, the registry's credentials and the OS streams")
	if err := until(ctx, "the controller", s.controllerIsUp); err != nil {
		return err
	}
	s.Log.Line("the controller is available")
	if err := until(ctx, "the agents", s.agentsAreUp); err != nil {
		return err
	}
	s.Log.Line("an agent is ready on each worker")
	return until(ctx, "the pool's first rendered config", s.poolIsRendered)
}

// applyCRDs waits for them, too: applying an object of a kind that is not
// established fails.
func (s *Story) applyCRDs(ctx context.Context) error {
	if _, err := s.Cluster.Kubectl(ctx, "apply", "--server-side", "--force-conflicts", "-k", "config/crd"); err != nil {
		return err
	}
	_, err := s.Cluster.Kubectl(ctx, "wait", "--for=condition=Established", "--timeout=60s", "customresourcedefinitions", "--all")
	return err
}

// applyOverlay applies test/e2e/config with the names of the images, from a
// kustomization of its own outside the checkout.
func (s *Story) applyOverlay(ctx context.Context) error {
	images, err := local.Images()
	if err != nil {
		return err
	}
	directory, err := os.MkdirTemp("", "imagemode-overlay-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(directory)
	if err := writeOverlay(directory, s.Cluster.Root, images, s.controllerPatches()...); err != nil {
		return err
	}
	_, err = s.Cluster.Kubectl(ctx, "apply", "--server-side", "--force-conflicts", "-k", directory)
	return err
}

// applyRegistryAccess makes what a user has for the registry: three Secrets,
// the CA, and the list of the OS images in it.
func (s *Story) applyRegistryAccess(ctx context.Context) error {
	for _, user := range local.Credentials {
		if err := s.applyCredentials(ctx, user); err != nil {
			return err
		}
	}
	authorities, err := os.ReadFile(local.CAFile)
	if err != nil {
		return err
	}
	bundle := map[string]string{machineconfiguration.KeyTrustBundle: string(authorities) + s.AlsoTrusted}
	if err := s.applyConfigMap(ctx, machineconfiguration.ConfigMapTrustBundle, bundle); err != nil {
		return err
	}
	streams, err := local.Streams()
	if err != nil {
		return err
	}
	return s.applyConfigMap(ctx, machineconfiguration.ConfigMapStreams, streams)
}

func (s *Story) applyCredentials(ctx context.Context, user string) error {
	config, err := local.DockerConfig(user)
	if err != nil {
		return err
	}
	return s.applySecret(ctx, user, corev1.SecretTypeDockerConfigJson, corev1.DockerConfigJsonKey, config)
}

func (s *Story) applyConfigMap(ctx context.Context, name string, data map[string]string) error {
	configMap := &corev1.ConfigMap{ObjectMeta: inNamespace(name)}
	_, err := controllerutil.CreateOrUpdate(ctx, s.Cluster.Client, configMap, func() error {
		configMap.Data = data
		return nil
	})
	return err
}

func (s *Story) controllerIsUp(ctx context.Context) (string, bool, error) {
	deployment := &appsv1.Deployment{ObjectMeta: inNamespace("imagemode-controller")}
	if err := s.get(ctx, deployment); err != nil {
		return err.Error(), false, nil
	}
	status := deployment.Status
	state := fmt.Sprintf("%d of %d replicas available", status.AvailableReplicas, *deployment.Spec.Replicas)
	current := status.ObservedGeneration == deployment.Generation && status.UpdatedReplicas == status.Replicas
	return state, current && status.AvailableReplicas == *deployment.Spec.Replicas, nil
}

func (s *Story) agentsAreUp(ctx context.Context) (string, bool, error) {
	agents := &appsv1.DaemonSet{ObjectMeta: inNamespace("imagemode-agent")}
	if err := s.get(ctx, agents); err != nil {
		return err.Error(), false, nil
	}
	status, want := agents.Status, int32(len(s.Workers.Names()))
	state := fmt.Sprintf("%d of %d ready", status.NumberReady, want)
	current := status.ObservedGeneration == agents.Generation && status.UpdatedNumberScheduled == want
	return state, current && status.NumberReady == want, nil
}

func (s *Story) poolIsRendered(ctx context.Context) (string, bool, error) {
	pool, err := s.pool(ctx)
	if err != nil {
		return err.Error(), false, nil
	}
	return conditionsOf(pool), pool.Spec.Configuration.Name != "", nil
}

func (s *Story) get(ctx context.Context, object client.Object) error {
	return s.Cluster.Client.Get(ctx, client.ObjectKeyFromObject(object), object)
}

func inNamespace(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: machineconfiguration.Namespace, Name: name}
}

// splitReference splits an image reference into repository and digest.
func splitReference(reference string) (repository, digest string, err error) {
	repository, digest, ok := strings.Cut(reference, "@")
	if !ok {
		return "", "", fmt.Errorf("image %q is not named by digest", reference)
	}
	return repository, digest, nil
}
