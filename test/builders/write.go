package builders

import (
	"context"
	"encoding/json"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// CreateWithStatus creates an object and then reports its status.
func CreateWithStatus(ctx context.Context, c client.Client, object client.Object) error {
	wanted := object.DeepCopyObject().(client.Object)
	if err := c.Create(ctx, object); err != nil {
		return err
	}
	return ReportStatus(ctx, c, wanted)
}

// ReportStatus writes the status of an object as a merge patch, as kubelets do:
// controllers that write to the object at the same time are no conflict. What the
// server has and the object lacks stays as it is. An object without a status is
// not written.
func ReportStatus(ctx context.Context, c client.Client, object client.Object) error {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	if err != nil || content["status"] == nil {
		return err
	}
	status, err := json.Marshal(map[string]any{"status": content["status"]})
	if err != nil {
		return err
	}
	return c.Status().Patch(ctx, object, client.RawPatch(types.MergePatchType, status))
}
