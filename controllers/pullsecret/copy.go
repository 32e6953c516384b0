package pullsecret

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

const (
	// lookInterval is how soon a change of the original is noticed.
	lookInterval = time.Minute
	// conflictDelay is how long a write that met another writer waits.
	conflictDelay = 200 * time.Millisecond
	// annotationCopyOf marks the copy, with the original's name.
	annotationCopyOf = "imagemode.dev/copy-of"
)

// original is the platform's own pull secret.
var original = types.NamespacedName{Namespace: "openshift-config", Name: "pull-secret"}

// Options of the controller.
type Options struct {
	// Copy is where the copy goes: a namespace whose Secrets the manager's cache
	// holds. Required.
	Copy types.NamespacedName
}

// Add adds the controller to mgr.
func Add(mgr ctrl.Manager, options Options) error {
	r := &reconciler{client: mgr.GetClient(), live: mgr.GetAPIReader(), copy: options.Copy}
	isCopy := predicate.NewPredicateFuncs(func(object client.Object) bool {
		return client.ObjectKeyFromObject(object) == options.Copy
	})
	start := func(_ context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		queue.Add(reconcile.Request{NamespacedName: options.Copy})
		return nil
	}
	err := ctrl.NewControllerManagedBy(mgr).
		Named("pullsecret").
		For(&corev1.Secret{}, builder.WithPredicates(isCopy)).
		WatchesRawSource(source.Func(start)).
		Complete(r)
	if err != nil {
		return fmt.Errorf("add controller pullsecret: %w", err)
	}
	return nil
}

// reconciler keeps the copy.
type reconciler struct {
	client client.Client
	// live reads the original, which no cache holds.
	live client.Reader
	copy types.NamespacedName
	// isRefused: the last look at the original was forbidden, which is logged once.
	isRefused bool
}

// +kubebuilder:rbac:groups="",namespace=openshift-machine-config-operator,resources=secrets,verbs=get;list;watch;create;patch;delete

// Reconcile brings the copy to what the original is.
func (r *reconciler) Reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	err := r.follow(ctx)
	if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) {
		return reconcile.Result{RequeueAfter: conflictDelay}, nil
	}
	return reconcile.Result{RequeueAfter: lookInterval}, err
}

func (r *reconciler) follow(ctx context.Context) error {
	from, mayRead, err := r.readOriginal(ctx)
	if err != nil || !mayRead {
		return err
	}
	kept := &corev1.Secret{}
	err = r.client.Get(ctx, r.copy, kept)
	switch {
	case err != nil && !apierrors.IsNotFound(err):
		return fmt.Errorf("read Secret %s: %w", r.copy, err)
	case err == nil && kept.Annotations[annotationCopyOf] != original.String():
		return nil // somebody else's, whatever is in it
	case from == nil && err == nil:
		return client.IgnoreNotFound(r.client.Delete(ctx, kept, client.Preconditions{UID: &kept.UID, ResourceVersion: &kept.ResourceVersion}))
	case from == nil:
		return nil
	case err != nil || kept.Type != from.Type: // a Secret's type cannot be changed
		return r.create(ctx, from, kept)
	case equality.Semantic.DeepEqual(kept.Data, from.Data):
		return nil
	}
	before := kept.DeepCopy()
	kept.Data = from.Data
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if err := r.client.Patch(ctx, kept, patch); err != nil {
		return fmt.Errorf("write Secret %s: %w", r.copy, err)
	}
	return nil
}

// readOriginal gives nil where there is none. mayRead is false where this
// program has no right to look, as on a cluster that has no such namespace.
func (r *reconciler) readOriginal(ctx context.Context) (secret *corev1.Secret, mayRead bool, err error) {
	secret = &corev1.Secret{}
	err = r.live.Get(ctx, original, secret)
	switch {
	case err == nil:
		r.isRefused = false
		return secret, true, nil
	case apierrors.IsNotFound(err):
		return nil, true, nil
	case apierrors.IsForbidden(err):
		if !r.isRefused {
			log.FromContext(ctx).Info("the platform's pull secret may not be read, and is not copied; on OpenShift apply config/openshift-pull-secret", "secret", original)
		}
		r.isRefused = true
		return nil, false, nil
	default:
		return nil, false, fmt.Errorf("read Secret %s: %w", original, err)
	}
}

// create makes the copy, in the place of one with another type.
func (r *reconciler) create(ctx context.Context, from, kept *corev1.Secret) error {
	if kept.UID != "" {
		if err := r.client.Delete(ctx, kept, client.Preconditions{UID: &kept.UID}); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("delete Secret %s: %w", r.copy, err)
		}
	}
	made := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: r.copy.Namespace, Name: r.copy.Name, Annotations: map[string]string{annotationCopyOf: original.String()},
		},
		Type: from.Type, Data: from.Data,
	}
	if err := r.client.Create(ctx, made); err != nil {
		return fmt.Errorf("create Secret %s: %w", r.copy, err)
	}
	return nil
}
