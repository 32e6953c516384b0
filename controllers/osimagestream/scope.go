package osimagestream

import (
	"context"
	"fmt"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/imagemode/imagemode/api/machineconfiguration"
	"github.com/imagemode/imagemode/controllers/osimagestream/streams"
)

// scope is everything one reconcile looks at.
type scope struct {
	// existing is OSImageStream cluster; nil where it does not exist.
	existing *mcfgv1.OSImageStream
	// sources in order of precedence, later ones winning.
	sources []streams.Source
	// configMap is imagemode-streams; nil where it does not exist.
	configMap *corev1.ConfigMap
}

// outcome is what the object should say. No streams: its status stays as it is.
type outcome struct {
	streams  []mcfgv1.OSImageStreamSet
	chosen   streams.Default
	problems []streams.Problem
}

// gather reads the object and the sources.
func (r *reconciler) gather(ctx context.Context) (*scope, error) {
	s := &scope{}
	existing := &mcfgv1.OSImageStream{}
	err := r.client.Get(ctx, object.NamespacedName, existing)
	switch {
	case err == nil:
		s.existing = existing
	case !apierrors.IsNotFound(err):
		return nil, fmt.Errorf("read OSImageStream %s: %w", object.Name, err)
	}
	key := types.NamespacedName{Namespace: r.options.Namespace, Name: machineconfiguration.ConfigMapStreams}
	configMap := &corev1.ConfigMap{}
	err = r.client.Get(ctx, key, configMap)
	switch {
	case err == nil:
		s.configMap = configMap
		s.sources = append(s.sources, streams.FromConfigMap("ConfigMap "+key.String(), configMap.Data))
	case !apierrors.IsNotFound(err):
		return nil, fmt.Errorf("read ConfigMap %s: %w", key, err)
	}
	return s, nil
}
