package nodepool

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/imagemode/imagemode/api/machineconfiguration"
)

// conditionValid is the condition that users of NodePools know.
const conditionValid = "ValidMachineConfig"

// publish writes the Secret, and the status where it is this controller's. A
// node pool with a problem keeps its Secret: its nodes keep what they run.
func (r *reconciler) publish(ctx context.Context, object *unstructured.Unstructured, pool *nodePool, decided answer, waiting error) error {
	if decided.problem == "" && waiting == nil {
		waiting = r.writeSecret(ctx, object, decided)
	}
	if apierrors.IsConflict(waiting) || apierrors.IsAlreadyExists(waiting) {
		return waiting
	}
	hasOwner, err := r.hasOwner(ctx)
	if err == nil && !hasOwner {
		err = r.writeStatus(ctx, object, pool, decided, waiting)
	}
	return errors.Join(err, waiting)
}

// writeStatus writes the condition and the stream where they differ.
func (r *reconciler) writeStatus(ctx context.Context, object *unstructured.Unstructured, pool *nodePool, decided answer, waiting error) error {
	stream := pool.Status.OSImageStream
	if decided.set.Name != "" {
		stream.Name = decided.set.Name
	}
	want := wanted(pool, decided, waiting, metav1.NewTime(r.options.Clock.Now()))
	conditions := withCondition(pool.Status.Conditions, want)
	if stream == pool.Status.OSImageStream && equality.Semantic.DeepEqual(conditions, pool.Status.Conditions) {
		return nil
	}
	status := map[string]any{"conditions": asList(conditions)}
	if stream.Name != "" {
		status["osImageStream"] = map[string]any{"name": stream.Name}
	}
	patched := object.DeepCopy()
	for field, value := range status {
		if err := unstructured.SetNestedField(patched.Object, value, "status", field); err != nil {
			return fmt.Errorf("write status of NodePool %s/%s: %w", object.GetNamespace(), object.GetName(), err)
		}
	}
	// The list of conditions is written as a whole, so nobody may have written between.
	patch := client.MergeFromWithOptions(object, client.MergeFromWithOptimisticLock{})
	if err := r.client.Status().Patch(ctx, patched, patch); err != nil {
		return fmt.Errorf("write status of NodePool %s/%s: %w", object.GetNamespace(), object.GetName(), err)
	}
	return nil
}

// wanted is the condition ValidMachineConfig. While something cannot be read
// what was said before stays, unless it takes somebody to mend it.
func wanted(pool *nodePool, decided answer, waiting error, now metav1.Time) condition {
	want := condition{
		Type: conditionValid, Status: "True", Reason: decided.reason, Message: decided.note,
		LastTransitionTime: now, ObservedGeneration: pool.Metadata.Generation,
	}
	old, found := findCondition(pool.Status.Conditions)
	var remedied interface{ Remedy() string }
	switch {
	case apierrors.IsForbidden(waiting):
		want.Status, want.Reason = "Unknown", "NoRights"
		want.Message = "imagemode-controller may not read configuration and write Secrets in this namespace; " +
			"bind ClusterRole imagemode-nodepool to its ServiceAccount by a RoleBinding here"
	case errors.As(waiting, &remedied):
		want.Status, want.Reason, want.Message = "Unknown", "CannotProceed", remedied.Remedy()
	case waiting != nil && found:
		return old
	case waiting != nil:
		want.Status, want.Reason = "Unknown", "ReleaseNotRead"
		want.Message = "the release image or the configuration could not be read yet; it is tried again"
	case decided.problem != "":
		want.Status, want.Reason, want.Message = "False", reasonFailed, decided.problem
	}
	if found && old.Status == want.Status {
		want.LastTransitionTime = old.LastTransitionTime
	}
	return want
}

func findCondition(conditions []condition) (condition, bool) {
	i := slices.IndexFunc(conditions, func(each condition) bool { return each.Type == conditionValid })
	if i < 0 {
		return condition{}, false
	}
	return conditions[i], true
}

func withCondition(conditions []condition, want condition) []condition {
	changed := slices.Clone(conditions)
	if i := slices.IndexFunc(changed, func(each condition) bool { return each.Type == want.Type }); i >= 0 {
		changed[i] = want
		return changed
	}
	return append(changed, want)
}

// asList gives conditions in the form of an unstructured object. Times are
// written to the second, as the API has them.
func asList(conditions []condition) []any {
	var list []any
	for i := range conditions {
		conditions[i].LastTransitionTime = metav1.NewTime(conditions[i].LastTransitionTime.Truncate(time.Second))
		entry, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&conditions[i])
		if err != nil {
			panic(err) // strings, numbers and a time
		}
		list = append(list, entry)
	}
	return list
}

// Keys of the Secret <nodepool>-os-image.
const (
	keyStream     = "stream"
	keyVersion    = "version"
	keyOSImage    = "osImage"
	keyExtensions = "osExtensionsImage"
	keyRuntime    = "defaultRuntime"
	keyRuntimes   = "runtimes"
	keyHash       = "configHash"
)

// secretSuffix is what the Secret's name has behind the NodePool's.
const secretSuffix = "-os-image"

func (a answer) data() map[string][]byte {
	return map[string][]byte{
		keyStream: []byte(a.set.Name), keyVersion: []byte(a.version),
		keyOSImage: []byte(a.set.OSImage), keyExtensions: []byte(a.set.OSExtensionsImage),
		keyRuntime: []byte(a.standard), keyRuntimes: []byte(strings.Join(a.runtimes, ",")), keyHash: []byte(a.hash),
	}
}

// writeSecret publishes what the nodes are to run. The Secret goes with its NodePool.
func (r *reconciler) writeSecret(ctx context.Context, owner *unstructured.Unstructured, decided answer) error {
	name := machineconfiguration.Shorten(owner.GetName(), machineconfiguration.MaxName-len(secretSuffix)) + secretSuffix
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: owner.GetNamespace(), Name: name,
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: kind.GroupVersion().String(), Kind: kind.Kind, Name: owner.GetName(), UID: owner.GetUID(),
			}},
		},
		Data: decided.data(),
	}
	existing := &corev1.Secret{}
	err := r.live.Get(ctx, client.ObjectKeyFromObject(secret), existing)
	switch {
	case apierrors.IsNotFound(err):
		err = r.client.Create(ctx, secret)
	case err == nil && !isOwnedBy(existing, owner):
		return &takenError{secret: name, pool: owner.GetName()}
	case err == nil && !equality.Semantic.DeepEqual(existing.Data, secret.Data):
		before := existing.DeepCopy()
		existing.Data = secret.Data
		err = r.client.Patch(ctx, existing, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
	}
	if err != nil {
		return fmt.Errorf("write Secret %s/%s: %w", secret.Namespace, name, err)
	}
	return nil
}

// takenError says that the Secret of a NodePool is somebody else's.
type takenError struct{ secret, pool string }

func (e *takenError) Error() string { return e.Remedy() }

// Remedy says what to do.
func (e *takenError) Remedy() string {
	return fmt.Sprintf("Secret %s belongs to somebody else; rename it, since NodePool %s publishes its OS image there", e.secret, e.pool)
}

func isOwnedBy(secret *corev1.Secret, owner *unstructured.Unstructured) bool {
	return slices.ContainsFunc(secret.OwnerReferences, func(ref metav1.OwnerReference) bool { return ref.UID == owner.GetUID() })
}
