package controller

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/imagemode/imagemode/api/v1alpha1"
)

// Options are what the controller has to be told.
type Options struct {
	// Namespace is where Secret imagemode-node-pull is kept, the agents' own.
	Namespace string
	// Clock is the time; nil means time.Now. Only this clock decides about
	// deadlines: those of nodes may be wrong.
	Clock func() time.Time
}

// Reconciler reconciles ImageRollouts.
type Reconciler struct {
	// Client reads from the cache and writes.
	Client client.Client
	// Live reads from the API server.
	Live     client.Reader
	Recorder events.EventRecorder
	Options  Options
}

const (
	// drainInterval is how often a node that is draining is looked at: pods are
	// not watched. Pods take some seconds to end.
	drainInterval = 5 * time.Second
	// secretInterval is how often a pull secret is looked at: Secrets are not
	// watched, so that the controller needs no right to list them.
	secretInterval = time.Minute
	// deadlineInterval is how late a missed reboot deadline may be noticed.
	deadlineInterval = 30 * time.Second
)

// finalizerSlots keeps a rollout that is deleted until the nodes in its slots
// are back in service. It is there only while there are slots.
const finalizerSlots = "imagemode.dev/slots"

// Reconcile makes one pass over one rollout.
func (r *Reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	result, err := r.reconcile(ctx, request)
	if apierrors.IsConflict(err) {
		return ctrl.Result{RequeueAfter: time.Second}, nil // somebody else wrote: look again
	}
	return result, err
}

func (r *Reconciler) reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	// The slots decide what is done to nodes: an old copy of them would cordon
	// a node again that has just been freed.
	rollout := &v1alpha1.ImageRollout{}
	if err := r.Live.Get(ctx, request.NamespacedName, rollout); err != nil {
		if apierrors.IsNotFound(err) {
			return ctrl.Result{}, r.removeLeftovers(ctx, request.Name)
		}
		return ctrl.Result{}, err
	}
	hash, problem, err := r.syncPullSecret(ctx, rollout)
	if err != nil {
		return ctrl.Result{}, err
	}
	scope, answer, err := r.plan(ctx, rollout, hash, problem)
	if err != nil {
		return ctrl.Result{}, err
	}
	failed := r.applyImages(ctx, scope, answer)
	slots, steps := r.carryOutSlots(ctx, scope, failed)
	slots = append(slots, answer.Grants...)
	if err := r.finish(ctx, scope, statusOf(scope, slots, answer.Held), steps); err != nil {
		return ctrl.Result{}, err
	}
	return ctrl.Result{RequeueAfter: nextLook(scope, slots)}, joined(failed)
}

// plan schedules on what the cache shows; before a slot is given it looks once
// more, past the cache, and that answer counts.
func (r *Reconciler) plan(ctx context.Context, rollout *v1alpha1.ImageRollout, hash, problem string) (*Scope, Schedule, error) {
	for _, reader := range []client.Reader{r.Client, r.Live} {
		scope, err := gather(ctx, reader, rollout, r.now())
		if err != nil {
			return nil, Schedule{}, err
		}
		scope.PullSecretHash, scope.Problem = hash, problem
		answer := schedule(scope)
		if len(answer.Grants) == 0 || reader == r.Live {
			return scope, answer, nil
		}
	}
	panic("the live reader comes last")
}

// carryOutSlots carries out the written phase of every slot and returns the
// slots as they are to be written next. A slot whose node or NodeImage could
// not be changed stays as it is.
func (r *Reconciler) carryOutSlots(ctx context.Context, scope *Scope, failed map[string]error) ([]v1alpha1.Slot, []notice) {
	var slots []v1alpha1.Slot
	var steps []notice
	for _, slot := range scope.Rollout.Status.Slots {
		node := scope.node(slot)
		result, err := r.carryOut(ctx, scope, slot, node)
		if err = errors.Join(err, failed[slot.Node]); err != nil {
			failed[slot.Node] = err
			slots = append(slots, slot)
			continue
		}
		next := advance(scope, slot, node, result)
		if step := stepEvent(node, slot, next); step != nil {
			steps = append(steps, *step)
		}
		if next != nil {
			slots = append(slots, *next)
		}
	}
	return slots, steps
}

// carryOut does what the phase of the slot is about. That an agent may boot is
// in its NodeImage by now. A withdrawn slot is not drained any further.
func (r *Reconciler) carryOut(ctx context.Context, scope *Scope, slot v1alpha1.Slot, node *Node) (outcome, error) {
	result := outcome{wasUnschedulable: slot.WasUnschedulable}
	if node == nil {
		return result, nil
	}
	if slot.Phase == v1alpha1.SlotSoaking {
		return result, r.uncordon(ctx, slot)
	}
	if isWithdrawn(scope, slot) && slot.Phase != v1alpha1.SlotBooting {
		return result, nil
	}
	var err error
	if result.wasUnschedulable, err = r.cordon(ctx, scope.Rollout.Name, slot); err != nil {
		return result, err
	}
	if slot.Phase == v1alpha1.SlotDraining {
		result.isDrained, result.blocked, err = r.drain(ctx, scope.Rollout, slot.Node)
	}
	return result, err
}

// finish writes finalizer and status, and tells about the steps after that.
func (r *Reconciler) finish(ctx context.Context, scope *Scope, status v1alpha1.ImageRolloutStatus, steps []notice) error {
	if len(status.Slots) > 0 {
		if err := r.setFinalizer(ctx, scope.Rollout, true); err != nil {
			return err
		}
	}
	isWritten, err := r.writeStatus(ctx, scope.Rollout, status)
	if err != nil {
		return err
	}
	if isWritten {
		r.emit(scope, steps)
		r.warnOfZero(scope.Rollout)
	}
	if len(status.Slots) == 0 && !isWritten {
		return r.setFinalizer(ctx, scope.Rollout, false)
	}
	return nil
}

// setFinalizer puts the finalizer on the rollout or takes it off, if that is
// not so yet; afterwards rollout has the new resource version.
func (r *Reconciler) setFinalizer(ctx context.Context, rollout *v1alpha1.ImageRollout, isWanted bool) error {
	isThere := false
	for _, finalizer := range rollout.Finalizers {
		isThere = isThere || finalizer == finalizerSlots
	}
	if isThere == isWanted || (isWanted && rollout.DeletionTimestamp != nil) {
		return nil
	}
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("ImageRollout"))
	object.SetName(rollout.Name)
	object.SetResourceVersion(rollout.ResourceVersion)
	if isWanted {
		object.SetFinalizers([]string{finalizerSlots})
	}
	if err := r.Client.Apply(ctx, client.ApplyConfigurationFromUnstructured(object), fieldOwner, client.ForceOwnership); err != nil {
		return fmt.Errorf("ImageRollout %s: finalizer: %w", rollout.Name, err)
	}
	rollout.ResourceVersion = object.GetResourceVersion()
	return nil
}

func (r *Reconciler) now() time.Time {
	if r.Options.Clock != nil {
		return r.Options.Clock()
	}
	return time.Now()
}

// nextLook is when the rollout has to be looked at without an event; 0 for never.
func nextLook(scope *Scope, slots []v1alpha1.Slot) time.Duration {
	var next time.Duration
	look := func(after time.Duration) {
		if next == 0 || after < next {
			next = max(after, time.Second)
		}
	}
	if scope.Rollout.Spec.PullSecretRef != nil {
		look(secretInterval)
	}
	for _, slot := range slots {
		switch node := scope.node(slot); {
		case slot.Phase == v1alpha1.SlotDraining:
			look(drainInterval)
		case slot.Phase == v1alpha1.SlotSoaking && node != nil:
			look(soakLeft(scope, slot, node))
		default:
			look(deadlineInterval)
		}
	}
	return next
}

func joined(failed map[string]error) error {
	var all []error
	for _, err := range failed {
		all = append(all, err)
	}
	return errors.Join(all...)
}
