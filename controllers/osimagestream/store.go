package osimagestream

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/imagemode/imagemode/api/machineconfiguration"
)

// annotationDefault of the ConfigMap holds the default stream: the object may be
// deleted while nobody looks, and must come back with the same.
const annotationDefault = "imagemode.dev/default-stream"

// loadCache takes over what the ConfigMap keeps from before a restart.
func (r *reconciler) loadCache(s *scope) {
	configMap := s.configMaps[machineconfiguration.ConfigMapImageLabels]
	if configMap == nil {
		return
	}
	r.cache.load(configMap.Data)
	if r.lastDefault == "" {
		r.lastDefault = configMap.Annotations[annotationDefault]
	}
}

// writeCache writes the ConfigMap where an image is missing in it, or is too
// much, and where the default is another one.
func (r *reconciler) writeCache(ctx context.Context, s *scope) error {
	want := r.cache.encode()
	kept := s.configMaps[machineconfiguration.ConfigMapImageLabels]
	if kept == nil {
		if len(want) == 0 && r.lastDefault == "" {
			return nil
		}
		made := &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: r.options.Namespace, Name: machineconfiguration.ConfigMapImageLabels}, Data: want,
		}
		setAnnotation(made, annotationDefault, r.lastDefault)
		if err := r.client.Create(ctx, made); err != nil {
			return fmt.Errorf("create ConfigMap %s: %w", made.Name, err)
		}
		return nil
	}
	if isKept(want, kept.Data) && kept.Annotations[annotationDefault] == r.lastDefault {
		return nil
	}
	before := kept.DeepCopy()
	kept.Data = want
	setAnnotation(kept, annotationDefault, r.lastDefault)
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if err := r.client.Patch(ctx, kept, patch); err != nil {
		return fmt.Errorf("write ConfigMap %s: %w", kept.Name, err)
	}
	return nil
}
