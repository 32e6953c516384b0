package machineconfigpool

import (
	"context"
	"encoding/json"
	"fmt"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// defaultManager owns the fields of the MachineOSConfigs that pools get by
// themselves. It owns them without force: a field that somebody else has written
// is theirs.
const defaultManager = "imagemode-default"

// DefaultBuild is the MachineOSConfig of pools that have none.
type DefaultBuild struct {
	// PushRepository is where their images go, host[:port]/path without a tag;
	// images of all pools share it, told apart by their tags. Empty: pools without
	// a MachineOSConfig have no image built.
	PushRepository string
	// PushSecret names the Secret to push with, BasePullSecret that to pull base
	// images with, which may be empty.
	PushSecret, BasePullSecret string
}

// defaultFor returns the MachineOSConfig that a pool is to have by default; nil:
// nothing is to be written. One that a user has written, or changed any field of,
// is the user's.
func defaultFor(pool *mcfgv1.MachineConfigPool, existing *mcfgv1.MachineOSConfig, wanted DefaultBuild) *unstructured.Unstructured {
	if wanted.PushRepository == "" || pool.DeletionTimestamp != nil {
		return nil
	}
	if existing != nil && (existing.DeletionTimestamp != nil || existing.Name != pool.Name || isUsers(existing) || wanted.isIn(existing)) {
		return nil
	}
	return wanted.objectFor(pool.Name)
}

// isUsers reports whether anybody but this controller owns a field of the spec.
func isUsers(config *mcfgv1.MachineOSConfig) bool {
	isDefault := false
	for _, entry := range config.ManagedFields {
		var fields map[string]json.RawMessage
		if entry.FieldsV1 == nil || json.Unmarshal(entry.FieldsV1.Raw, &fields) != nil || fields["f:spec"] == nil {
			continue
		}
		if entry.Manager != defaultManager {
			return true
		}
		isDefault = true
	}
	return !isDefault
}

// isIn reports whether a MachineOSConfig says all of it already.
func (d DefaultBuild) isIn(config *mcfgv1.MachineOSConfig) bool {
	basePull := ""
	if config.Spec.BaseImagePullSecret != nil {
		basePull = config.Spec.BaseImagePullSecret.Name
	}
	return string(config.Spec.RenderedImagePushSpec) == d.pushSpec() &&
		config.Spec.RenderedImagePushSecret.Name == d.PushSecret && basePull == d.BasePullSecret
}

func (d DefaultBuild) pushSpec() string { return d.PushRepository + ":latest" }

// objectFor is unstructured: the type would send zero values of fields that are
// not ours.
func (d DefaultBuild) objectFor(pool string) *unstructured.Unstructured {
	spec := map[string]any{
		"machineConfigPool":       map[string]any{"name": pool},
		"imageBuilder":            map[string]any{"imageBuilderType": string(mcfgv1.JobBuilder)},
		"renderedImagePushSecret": map[string]any{"name": d.PushSecret},
		"renderedImagePushSpec":   d.pushSpec(),
	}
	if d.BasePullSecret != "" {
		spec["baseImagePullSecret"] = map[string]any{"name": d.BasePullSecret}
	}
	object := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	object.SetGroupVersionKind(mcfgv1.GroupVersion.WithKind("MachineOSConfig"))
	object.SetName(pool)
	return object
}

// +kubebuilder:rbac:groups=machineconfiguration.openshift.io,resources=machineosconfigs,verbs=create;patch

// buildByDefault gives the pool a MachineOSConfig of its own accord.
func (r *poolReconciler) buildByDefault(ctx context.Context, scope *scope) error {
	object := defaultFor(scope.pool, scope.osConfig, r.options.DefaultBuild)
	if object == nil {
		return nil
	}
	err := r.client.Apply(ctx, client.ApplyConfigurationFromUnstructured(object), client.FieldOwner(defaultManager))
	if err != nil {
		return fmt.Errorf("apply the default MachineOSConfig %s: %w", object.GetName(), err)
	}
	r.events.Eventf(scope.pool, nil, corev1.EventTypeNormal, "DefaultMachineOSConfig", "Build",
		"MachineOSConfig %s is applied by default (--default-push-repository); write one of that name to build something else", object.GetName())
	return nil
}
