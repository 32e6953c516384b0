//go:build envtest

package osimagestream

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/imagemode/imagemode/api/machineconfiguration"
	"github.com/imagemode/imagemode/controllers/osimagestream/streams"
)

// counted counts the writes of the controller.
func counted(writes *atomic.Int64) interceptor.Funcs {
	return interceptor.Funcs{
		Create: func(ctx context.Context, next client.WithWatch, object client.Object, options ...client.CreateOption) error {
			writes.Add(1)
			return next.Create(ctx, object, options...)
		},
		Patch: func(ctx context.Context, next client.WithWatch, object client.Object, patch client.Patch, options ...client.PatchOption) error {
			writes.Add(1)
			return next.Patch(ctx, object, patch, options...)
		},
		SubResourcePatch: func(ctx context.Context, next client.Client, kind string, object client.Object, patch client.Patch, options ...client.SubResourcePatchOption) error {
			writes.Add(1)
			return next.SubResource(kind).Patch(ctx, object, patch, options...)
		},
	}
}

// rests sees that the writes come to an end: nothing is written for a second and a
// half. On a busy machine the last of them may take its time.
func rests(t *testing.T, writes *atomic.Int64, after string) {
	t.Helper()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); {
		before := writes.Load()
		time.Sleep(1500 * time.Millisecond)
		if writes.Load() == before {
			return
		}
	}
	t.Errorf("after %s: writes without an end when nothing changes", after)
}

// What people do to the object by hand, and to what is kept beside it.
func TestHandsOnTheObject(t *testing.T) {
	var writes atomic.Int64
	c := startWith(t, counted(&writes))
	streamsMap := configMap(machineconfiguration.ConfigMapStreams, "a", "osImage: 127.0.0.1:10/os/a"+digest, "b", "osImage: 127.0.0.1:10/os/b"+digest)
	if err := c.Create(t.Context(), streamsMap); err != nil {
		t.Fatal(err)
	}
	isRight := func(o *mcfgv1.OSImageStream) bool {
		return len(o.Status.AvailableStreams) == 2 && o.Status.DefaultStream == o.Spec.DefaultStream && o.DeletionTimestamp == nil &&
			len(streams.DecodeTraits(o)) == 2 && o.Annotations[machineconfiguration.AnnotationProblems] == ""
	}
	eventually(t, c, "made", isRight)
	patch := func(text string) error {
		object := &mcfgv1.OSImageStream{ObjectMeta: metav1.ObjectMeta{Name: "cluster"}}
		return c.Patch(t.Context(), object, client.RawPatch("application/merge-patch+json", []byte(text)))
	}
	for name, edit := range map[string]func() error{
		"annotations that make no sense": func() error {
			return patch(fmt.Sprintf(`{"metadata":{"annotations":{%q:"{",%q:"[[",%q:"x"}}}`,
				machineconfiguration.AnnotationStreamTraits, machineconfiguration.AnnotationOverrides, machineconfiguration.AnnotationProblems))
		},
		"annotations that are taken away": func() error { return patch(`{"metadata":{"annotations":null}}`) },
		"what a stream cannot do": func() error {
			return patch(fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, machineconfiguration.AnnotationStreamTraits, `{"a":{"runtimes":["crun","runc"],"image":"sha256:1"},"z":{}}`))
		},
		"another default": func() error { return patch(`{"spec":{"defaultStream":"b"}}`) },
		"a status of their own": func() error {
			object := &mcfgv1.OSImageStream{ObjectMeta: metav1.ObjectMeta{Name: "cluster"}}
			return c.Status().Patch(t.Context(), object, client.RawPatch("application/merge-patch+json",
				[]byte(`{"status":{"defaultStream":"evil","availableStreams":[{"name":"evil","osImage":"a.b/c`+digest+`","osExtensionsImage":"a.b/c`+digest+`"}]}}`)))
		},
	} {
		t.Run(name, func(t *testing.T) {
			if err := edit(); err != nil {
				t.Fatal(err)
			}
			eventually(t, c, "put right", isRight)
			rests(t, &writes, name)
		})
	}
	t.Run("a finalizer of somebody keeps a deleted object", func(t *testing.T) {
		if err := patch(`{"metadata":{"finalizers":["example.com/mine"]}}`); err != nil {
			t.Fatal(err)
		}
		object := eventually(t, c, "held", func(o *mcfgv1.OSImageStream) bool { return len(o.Finalizers) == 1 })
		if err := c.Delete(t.Context(), object); err != nil {
			t.Fatal(err)
		}
		rests(t, &writes, "a deletion that is held")
		if err := patch(`{"metadata":{"finalizers":null}}`); err != nil {
			t.Fatal(err)
		}
		again := eventually(t, c, "made again", isRight)
		if again.UID == object.UID || again.Spec.DefaultStream != object.Spec.DefaultStream {
			t.Errorf("default %q, and %q before", again.Spec.DefaultStream, object.Spec.DefaultStream)
		}
	})
	t.Run("many edits in a row end with the last one", func(t *testing.T) {
		before := writes.Load()
		for i := range 100 {
			streamsMap.Data["b"] = fmt.Sprintf("osImage: 127.0.0.1:10/os/b-%d%s", i, digest)
			if err := c.Update(t.Context(), streamsMap); err != nil {
				t.Fatal(err)
			}
		}
		eventually(t, c, "the last one", func(o *mcfgv1.OSImageStream) bool {
			return isRight(o) && string(o.Status.AvailableStreams[1].OSImage) == "127.0.0.1:10/os/b-99"+digest
		})
		rests(t, &writes, "many edits")
		t.Logf("%d writes for 100 edits", writes.Load()-before)
	})
	t.Run("what is kept of images cannot be written", func(t *testing.T) {
		kept := configMap(machineconfiguration.ConfigMapImageLabels, "x", "y")
		kept.Immutable = new(true)
		if err := c.Delete(t.Context(), configMap(machineconfiguration.ConfigMapImageLabels)); client.IgnoreNotFound(err) != nil {
			t.Fatal(err)
		}
		if err := c.Create(t.Context(), kept); err != nil {
			t.Fatal(err)
		}
		streamsMap.Data["c"] = "osImage: 127.0.0.1:10/os/c" + digest
		if err := c.Update(t.Context(), streamsMap); err != nil {
			t.Fatal(err)
		}
		eventually(t, c, "the new stream", func(o *mcfgv1.OSImageStream) bool { return len(o.Status.AvailableStreams) == 3 })
		before := writes.Load()
		time.Sleep(3 * time.Second)
		if more := writes.Load() - before; more > 12 {
			t.Errorf("%d tries in three seconds", more)
		}
		if err := c.Delete(t.Context(), &corev1.ConfigMap{ObjectMeta: kept.ObjectMeta}); err != nil {
			t.Fatal(err)
		}
		delete(streamsMap.Data, "c")
		if err := c.Update(t.Context(), streamsMap); err != nil {
			t.Fatal(err)
		}
		eventually(t, c, "back", isRight)
	})
}
