package story

import (
	"context"
	"fmt"
	"slices"
	"strings"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/imagemode/imagemode/api/machineconfiguration"
	"github.com/imagemode/imagemode/test/builders"
	"github.com/imagemode/imagemode/test/e2e/local"
)

// What pools with different OS streams are told with.

// CreatePool makes a pool with a stream of its own.
func (s *Story) CreatePool(ctx context.Context, name, stream string) error {
	return s.Cluster.Client.Create(ctx, builders.MachineConfigPool(name, builders.Stream(stream)))
}

// MoveNode takes a worker into a custom pool by its label; isMember false takes it
// out again.
func (s *Story) MoveNode(ctx context.Context, node, pool string, isMember bool) error {
	value := "null"
	if isMember {
		value = `""`
	}
	patch := fmt.Sprintf(`{"metadata":{"labels":{%q:%s}}}`, builders.NodeRolePrefix+pool, value)
	object := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}
	return s.Cluster.Client.Patch(ctx, object, client.RawPatch("application/merge-patch+json", []byte(patch)))
}

// SwitchStream sets the one field that says which stream a pool runs.
func (s *Story) SwitchStream(ctx context.Context, pool, stream string) error {
	patch := fmt.Sprintf(`{"spec":{"osImageStream":{"name":%q}}}`, stream)
	return s.Cluster.Client.Patch(ctx, builders.MachineConfigPool(pool), client.RawPatch("application/merge-patch+json", []byte(patch)))
}

// PausePool pauses or releases any pool.
func (s *Story) PausePool(ctx context.Context, pool string, paused bool) error {
	return s.setPaused(ctx, pool, paused)
}

// ApplyFile makes a MachineConfig of the workers with one file.
func (s *Story) ApplyFile(ctx context.Context, name, path, text string) error {
	return s.ApplyMachineConfig(ctx, name, Pool, builders.File(path, text))
}

// DeleteFile deletes a MachineConfig.
func (s *Story) DeleteFile(ctx context.Context, name string) error {
	return client.IgnoreNotFound(s.Cluster.Client.Delete(ctx, builders.MachineConfig(name, Pool)))
}

// Streams waits until the streams of the names are published, and gives them.
func (s *Story) Streams(ctx context.Context, names ...string) (map[string]mcfgv1.OSImageStreamSet, error) {
	found := map[string]mcfgv1.OSImageStreamSet{}
	err := until(ctx, "the streams "+strings.Join(names, ", "), func(ctx context.Context) (string, bool, error) {
		object, err := s.streams(ctx)
		if err != nil {
			return err.Error(), false, nil
		}
		clear(found)
		for _, stream := range object.Status.AvailableStreams {
			found[stream.Name] = stream
		}
		isThere := func(name string) bool { return found[name].OSImage != "" }
		return fmt.Sprint(found), !slices.ContainsFunc(names, func(name string) bool { return !isThere(name) }), nil
	})
	return found, err
}

func (s *Story) streams(ctx context.Context) (*mcfgv1.OSImageStream, error) {
	object := &mcfgv1.OSImageStream{}
	return object, s.Cluster.Client.Get(ctx, client.ObjectKey{Name: machineconfiguration.OSImageStreamName}, object)
}

// StreamTraits waits until what a stream can do was read, and gives the annotation.
func (s *Story) StreamTraits(ctx context.Context, stream string) (string, error) {
	traits := ""
	err := until(ctx, "what stream "+stream+" can do", func(ctx context.Context) (string, bool, error) {
		object, err := s.streams(ctx)
		if err != nil {
			return err.Error(), false, nil
		}
		traits = object.Annotations[machineconfiguration.AnnotationStreamTraits]
		return traits, strings.Contains(traits, `"`+stream+`":{"runtimes"`), nil
	})
	return traits, err
}

// PublishPayload makes the ImageStream of a release payload, with the images of
// one stream, the source of streams that wins; empty images take it away.
func (s *Story) PublishPayload(ctx context.Context, version string, images ...string) error {
	if len(images) == 0 {
		return client.IgnoreNotFound(s.Cluster.Client.Delete(ctx, &corev1.ConfigMap{ObjectMeta: inNamespace(machineconfiguration.ConfigMapPayload)}))
	}
	text := "apiVersion: image.openshift.io/v1\nkind: ImageStream\nmetadata: {name: " + version + "}\nspec:\n  tags:\n  - {name: machine-config-operator}\n"
	for i, image := range images {
		text += fmt.Sprintf("  - {name: stream-coreos-%d, from: {kind: DockerImage, name: %q}}\n", i, image)
	}
	return s.applyConfigMap(ctx, machineconfiguration.ConfigMapPayload, map[string]string{machineconfiguration.KeyPayload: text})
}

// PoolBuild waits until the MachineOSConfig of a pool is Ready with an image on
// the given OS image, and gives its build.
func (s *Story) PoolBuild(ctx context.Context, pool, osImage string) (*mcfgv1.MachineOSBuild, error) {
	build := &mcfgv1.MachineOSBuild{}
	err := until(ctx, "an image for pool "+pool+" on "+osImage, func(ctx context.Context) (string, bool, error) {
		rendered, state, err := s.renderedOn(ctx, pool, osImage)
		if err != nil || rendered == "" {
			return state, false, nil
		}
		config := &mcfgv1.MachineOSConfig{}
		if err := s.Cluster.Client.Get(ctx, client.ObjectKey{Name: pool}, config); err != nil {
			return err.Error(), false, nil
		}
		name := config.Annotations[machineconfiguration.AnnotationCurrentMachineOSBuild]
		if err := s.Cluster.Client.Get(ctx, client.ObjectKey{Name: name}, build); err != nil {
			return err.Error(), false, nil
		}
		isReady := meta.IsStatusConditionTrue(config.Status.Conditions, machineconfiguration.ConditionReady)
		isIts := config.Status.CurrentImagePullSpec != "" && config.Status.CurrentImagePullSpec == build.Status.DigestedImagePushSpec
		return describeConditions(config.Status.Conditions), isReady && isIts && build.Spec.MachineConfig.Name == rendered, nil
	})
	return build, err
}

// renderedOn gives the name of the pool's rendered config if it is built on an OS
// image, and else what there is.
func (s *Story) renderedOn(ctx context.Context, pool, osImage string) (name, state string, err error) {
	object := &mcfgv1.MachineConfigPool{}
	if err := s.Cluster.Client.Get(ctx, client.ObjectKey{Name: pool}, object); err != nil {
		return "", err.Error(), err
	}
	rendered := &mcfgv1.MachineConfig{}
	if err := s.Cluster.Client.Get(ctx, client.ObjectKey{Name: object.Spec.Configuration.Name}, rendered); err != nil {
		return "", err.Error(), err
	}
	if rendered.Spec.OSImageURL != osImage {
		return "", fmt.Sprintf("%s is on %s; %s", rendered.Name, rendered.Spec.OSImageURL, conditionsOf(object)), nil
	}
	return rendered.Name, "", nil
}

// PoolRuns waits until a pool says that all its nodes, of which there are so many,
// run the stream, with the given OS image, and are in service.
func (s *Story) PoolRuns(ctx context.Context, pool string, nodes int, stream, osImage string) error {
	return until(ctx, fmt.Sprintf("pool %s to run %s on %d nodes", pool, stream, nodes), func(ctx context.Context) (string, bool, error) {
		rendered, state, err := s.renderedOn(ctx, pool, osImage)
		if err != nil || rendered == "" {
			return state, false, nil
		}
		object := &mcfgv1.MachineConfigPool{}
		if err := s.Cluster.Client.Get(ctx, client.ObjectKey{Name: pool}, object); err != nil {
			return err.Error(), false, nil
		}
		status := object.Status
		state = fmt.Sprintf("%d of %d machines updated to %s, stream %q; %s", status.UpdatedMachineCount, status.MachineCount,
			status.Configuration.Name, status.OSImageStream.Name, conditionsOf(object))
		isUpdated := status.Configuration.Name == rendered && int(status.MachineCount) == nodes && status.UpdatedMachineCount == status.MachineCount
		return state, isUpdated && status.ReadyMachineCount == status.MachineCount && status.OSImageStream.Name == stream, nil
	})
}

// RenderDegraded waits until a pool cannot be rendered and says why.
func (s *Story) RenderDegraded(ctx context.Context, pool string) (reason, message string, err error) {
	err = until(ctx, "pool "+pool+" to be RenderDegraded", func(ctx context.Context) (string, bool, error) {
		object := &mcfgv1.MachineConfigPool{}
		if err := s.Cluster.Client.Get(ctx, client.ObjectKey{Name: pool}, object); err != nil {
			return err.Error(), false, nil
		}
		for _, condition := range object.Status.Conditions {
			if condition.Type == mcfgv1.MachineConfigPoolRenderDegraded && condition.Status == corev1.ConditionTrue {
				reason, message = condition.Reason, condition.Message
				return "", true, nil
			}
		}
		return conditionsOf(object), false, nil
	})
	return reason, message, err
}

// HasRuntimes waits until a node reports exactly these container runtimes.
func (s *Story) HasRuntimes(ctx context.Context, node string, want ...string) error {
	return until(ctx, fmt.Sprintf("node %s to have the runtimes %v", node, want), func(ctx context.Context) (string, bool, error) {
		object := &corev1.Node{}
		if err := s.Cluster.Client.Get(ctx, client.ObjectKey{Name: node}, object); err != nil {
			return err.Error(), false, nil
		}
		var names []string
		for _, handler := range object.Status.RuntimeHandlers {
			if handler.Name != "" { // the default one stands there a second time
				names = append(names, handler.Name)
			}
		}
		slices.Sort(names)
		return fmt.Sprint(names), slices.Equal(names, want), nil
	})
}

// StartOver counts from now on how many workers are out of service at a time.
func (w *Workers) StartOver() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.maxUnavailable = w.unavailable()
}

// DeriveOSImage pushes another version of a stream's OS image into its repository:
// the same layers, and a label that says so.
func DeriveOSImage(ctx context.Context, image, version string) (string, error) {
	repository, _, err := splitReference(image)
	if err != nil {
		return "", err
	}
	return local.Relabel(ctx, image, repository, map[string]string{"org.opencontainers.image.version": version})
}
