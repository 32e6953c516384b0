package machineconfigpool

import (
	"context"
	"encoding/json"
	"fmt"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/imagemode/imagemode/api/machineconfiguration"
	"github.com/imagemode/imagemode/api/v1alpha1"
)

// handOffRecord is the one thing about a hand-off that nothing else tells once the
// ImageRollout was edited or deleted: a MachineOSConfig names its newest image, which
// its nodes may never have been given.
type handOffRecord struct {
	// OSConfig is the UID of the MachineOSConfig at the time: a later one of the
	// same name starts anew.
	OSConfig types.UID `json:"machineOSConfig"`
	Image    string    `json:"image"`
	// PullSecret is the name of the Secret that the nodes pull it with; empty: none.
	PullSecret string `json:"pullSecret,omitempty"`
}

// recordOf reads the record on a pool; nil where there is none that is about this
// MachineOSConfig.
func recordOf(pool *mcfgv1.MachineConfigPool, osConfig *mcfgv1.MachineOSConfig) *handOffRecord {
	var record handOffRecord
	text := pool.Annotations[machineconfiguration.AnnotationHandedOff]
	if osConfig == nil || json.Unmarshal([]byte(text), &record) != nil || record.OSConfig != osConfig.UID || record.Image == "" {
		return nil
	}
	return &record
}

// lastImage is the image that was handed off last, with the config in it.
type lastImage struct {
	image, config, pullSecret string
}

func (l *lastImage) secretIn(namespace string) *v1alpha1.SecretReference {
	if l.pullSecret == "" {
		return nil
	}
	return &v1alpha1.SecretReference{Name: l.pullSecret, Namespace: namespace}
}

// lastImage takes the pool's record at its word only where a build vouches for it: an
// annotation alone takes no node to an image.
func (s *scope) lastImage() *lastImage {
	record := recordOf(s.pool, s.osConfig)
	if record == nil {
		return nil
	}
	for i := range s.builds {
		build := &s.builds[i]
		if isBuildOf(build, s.osConfig) && isTrue(build.Status.Conditions, mcfgv1.MachineOSBuildSucceeded) &&
			string(build.Status.DigestedImagePushSpec) == record.Image {
			return &lastImage{record.Image, build.Spec.MachineConfig.Name, record.PullSecret}
		}
	}
	return nil
}

// isForgotten reports whether the pool's rollout is gone and cannot be put back before
// there is a newer image.
func (s *scope) isForgotten() bool {
	return s.rollout == nil && recordOf(s.pool, s.osConfig) != nil && s.lastImage() == nil
}

// mayPutBack reports whether what somebody has made of a rollout is undone while there
// is no newer image. A MachineOSConfig that is being deleted builds the image that its
// nodes go to, and without a rollout it has none to wait for: one that is gone stays so.
func mayPutBack(osConfig *mcfgv1.MachineOSConfig, existing *v1alpha1.ImageRollout) bool {
	return osConfig.DeletionTimestamp == nil || (existing != nil && existing.Spec.Image != "")
}

// remember writes down what is about to be handed off, before it is.
func (r *poolReconciler) remember(ctx context.Context, scope *scope, target target, order order) error {
	record := recordOf(scope.pool, scope.osConfig)
	if scope.osConfig == nil || (record != nil && target.image() == "") {
		return nil
	}
	next := handOffRecord{OSConfig: scope.osConfig.UID, Image: order.image}
	if order.pullSecret != nil {
		next.PullSecret = order.pullSecret.Name
	}
	if record != nil && *record == next {
		return nil
	}
	text, err := json.Marshal(next)
	if err != nil {
		return err
	}
	err = r.patchPool(ctx, scope, func(pool *mcfgv1.MachineConfigPool) {
		metav1.SetMetaDataAnnotation(&pool.ObjectMeta, machineconfiguration.AnnotationHandedOff, string(text))
	})
	if err != nil {
		return fmt.Errorf("note on MachineConfigPool %s which image it hands off: %w", scope.pool.Name, err)
	}
	return nil
}

// confirm sees that what is about to be put back is from the latest record: the cache
// may still show the one before the last hand-off, and the nodes would go back.
func (r *poolReconciler) confirm(ctx context.Context, scope *scope, target target) error {
	if target.image() != "" || target.last == nil {
		return nil
	}
	if err := r.patchPool(ctx, scope, func(*mcfgv1.MachineConfigPool) {}); err != nil {
		return fmt.Errorf("look at MachineConfigPool %s again: %w", scope.pool.Name, err)
	}
	return nil
}
