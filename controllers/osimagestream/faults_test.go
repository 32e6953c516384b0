package osimagestream

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// counting counts writes, and lets a test make one fail.
func (w *world) counting() interceptor.Funcs {
	return interceptor.Funcs{
		Create: func(ctx context.Context, next client.WithWatch, object client.Object, options ...client.CreateOption) error {
			w.writes++
			if w.faults.Create != nil {
				return w.faults.Create(ctx, next, object, options...)
			}
			return next.Create(ctx, object, options...)
		},
		Patch: func(ctx context.Context, next client.WithWatch, object client.Object, patch client.Patch, options ...client.PatchOption) error {
			w.writes++
			if w.faults.Patch != nil {
				return w.faults.Patch(ctx, next, object, patch, options...)
			}
			return next.Patch(ctx, object, patch, options...)
		},
		SubResourcePatch: func(ctx context.Context, next client.Client, kind string, object client.Object, patch client.Patch, options ...client.SubResourcePatchOption) error {
			w.writes++
			if w.faults.SubResourcePatch != nil {
				return w.faults.SubResourcePatch(ctx, next, kind, object, patch, options...)
			}
			return next.SubResource(kind).Patch(ctx, object, patch, options...)
		},
	}
}
