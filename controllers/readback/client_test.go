package readback

import (
	"context"
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
)

// lateClient writes to one place and reads from a copy.
type lateClient struct {
	client.Client
	copied client.Reader
}

func (l *lateClient) Get(ctx context.Context, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
	return l.copied.Get(ctx, key, object, options...)
}

func TestWhatWasReplacedIsNotRead(t *testing.T) {
	ctx := context.Background()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a"}}
	server := fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme).WithStatusSubresource(node).WithObjects(node).Build()
	late := &lateClient{Client: server}
	catchUp := func() {
		t.Helper()
		var all corev1.NodeList
		if err := server.List(ctx, &all); err != nil {
			t.Fatal(err)
		}
		late.copied = fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme).WithLists(&all).Build()
	}
	catchUp()
	tested := New(late)
	read := func() (*corev1.Node, error) {
		found := &corev1.Node{}
		return found, tested.Get(ctx, client.ObjectKey{Name: "a"}, found)
	}
	for name, write := range map[string]func(*corev1.Node) error{
		"update": func(n *corev1.Node) error { return tested.Update(ctx, n) },
		"patch": func(n *corev1.Node) error {
			return tested.Patch(ctx, n, client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"labels":{"x":"y"}}}`)))
		},
		"status update": func(n *corev1.Node) error { n.Status.Phase = "x"; return tested.Status().Update(ctx, n) },
		"status patch": func(n *corev1.Node) error {
			return tested.Status().Patch(ctx, n, client.RawPatch("application/merge-patch+json", []byte(`{"status":{"phase":"z"}}`)))
		},
	} {
		t.Run(name, func(t *testing.T) {
			found, err := read()
			if err != nil {
				t.Fatal(err)
			}
			metav1.SetMetaDataAnnotation(&found.ObjectMeta, "for", name)
			if err := write(found); err != nil {
				t.Fatal(err)
			}
			if _, err := read(); !errors.Is(err, ErrLate) {
				t.Errorf("what is late is read with %v", err)
			}
			catchUp()
			if got, err := read(); err != nil || got.ResourceVersion != found.ResourceVersion {
				t.Errorf("afterwards version %s, %v; want %s", got.ResourceVersion, err, found.ResourceVersion)
			}
		})
	}
	found, err := read()
	if err != nil {
		t.Fatal(err)
	}
	if err := tested.Patch(ctx, found, client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"labels":{"x":"2"}}}`))); err != nil {
		t.Fatal(err)
	}
	if err := server.Delete(ctx, found); err != nil {
		t.Fatal(err)
	}
	catchUp()
	if _, err := read(); !apierrors.IsNotFound(err) {
		t.Errorf("what is deleted is read with %v", err)
	}
	if left := tested.(*readback).replaced; len(left) != 0 {
		t.Errorf("%v is remembered of what is gone", left)
	}
}
