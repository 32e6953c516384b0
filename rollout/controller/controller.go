package controller

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
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
	// NodeName is the node that this controller runs on: it is updated last.
	// Empty: it takes its turn like any other.
	NodeName string
}

// Reconciler reconciles ImageRollouts.
type Reconciler struct {
	// Client reads from the cache and writes.
	Client client.Client
	// Live reads from the API server.
	Live     client.Reader
	Recorder events.EventRecorder
	Options  Options

	// written are the statuses that were written last, by the rollout's name.
	written map[string]writtenStatus
	// copied are the pull secrets that the agents have, by the rollout's name.
	copied    map[string]copiedSecret
	cordons   lastCordon
	detaching detaching
	// parallel is how many requests are under way at a time; 0: one.
	parallel int
}

const (
	// drainInterval is how often a node that is draining is looked at: pods are
	// not watched. Pods take some seconds to end.
	drainInterval = 5 * time.Second
	// secretInterval is how often a pull secret is looked at, or whether a gate's
	// template is there by now: neither is watched, so that the controller needs no
	// right to list them.
	secretInterval = time.Minute
	// deadlineInterval is how late a missed reboot deadline, or a pod of a gate
	// that has become Ready, may be noticed.
	deadlineInterval = 30 * time.Second
	// statusInterval is how long numbers alone may wait to be written: of a
	// thousand nodes that stage, each changes one.
	statusInterval = 15 * time.Second
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
	rollout, err := r.read(ctx, request.NamespacedName)
	if err != nil {
		if apierrors.IsNotFound(err) {
			forget(request.Name)
			delete(r.written, request.Name)
			delete(r.copied, request.Name)
			return ctrl.Result{}, r.removeLeftovers(ctx, request.Name)
		}
		return ctrl.Result{}, err
	}
	hash, problem, err := r.syncPullSecret(ctx, rollout)
	if err != nil {
		return ctrl.Result{}, err
	}
	scope, err := r.gather(ctx, r.Client, rollout, hash, problem)
	if err != nil {
		return ctrl.Result{}, err
	}
	failed := r.applyImages(ctx, scope, assign(scope))
	progress := r.carryOutSlots(ctx, scope, failed)
	r.returnStrays(ctx, scope, failed)
	scope.Refused = refusedOnly(failed)
	next, answer, err := r.grant(ctx, scope, progress)
	if err != nil {
		return ctrl.Result{}, err
	}
	status := statusOf(next, append(progress.slots, answer.Grants...), answer.Held)
	wait, err := r.finish(ctx, scope, status, append(progress.steps, grantEvents(next, answer.Grants)...))
	if err != nil {
		return ctrl.Result{}, err
	}
	observe(next, status)
	return ctrl.Result{RequeueAfter: shortest(wait, nextLook(next, status.Slots))}, joined(failed)
}

// writtenStatus says when one was written, and which version it made.
type writtenStatus struct {
	at      time.Time
	version string
}

// read reads a rollout past the cache, unless that shows what this controller has
// written last. The slots decide what is done to nodes: an old copy of them would
// cordon a node again that has just been freed.
func (r *Reconciler) read(ctx context.Context, key client.ObjectKey) (*v1alpha1.ImageRollout, error) {
	rollout := &v1alpha1.ImageRollout{}
	if last, isKnown := r.written[key.Name]; isKnown {
		if err := r.Client.Get(ctx, key, rollout); err == nil && rollout.ResourceVersion == last.version {
			return rollout, nil
		}
		rollout = &v1alpha1.ImageRollout{}
	}
	return rollout, r.Live.Get(ctx, key, rollout)
}

func (r *Reconciler) gather(ctx context.Context, reader client.Reader, rollout *v1alpha1.ImageRollout, hash, problem string) (*Scope, error) {
	scope, err := gather(ctx, reader, rollout, r.now())
	if err != nil {
		return nil, err
	}
	scope.PullSecretHash, scope.Problem = hash, problem
	scope.HasNewNodes = r.cordons.isShown(scope.Nodes, r.now())
	scope.Cluster.ControllerNode = r.Options.NodeName
	scope.MissingTemplate, err = r.missingTemplate(ctx, rollout.Spec.Gates)
	return scope, err
}

// progress is what came of carrying out the slots.
type progress struct {
	slots   []v1alpha1.Slot
	skipped []v1alpha1.SkippedNode
	steps   []notice
}

// carryOutSlots carries out the written phase of every slot and returns the
// slots as they are to be written next. A slot whose node or NodeImage could
// not be changed stays as it is, and says so where trying again does not help.
func (r *Reconciler) carryOutSlots(ctx context.Context, scope *Scope, failed map[string]error) progress {
	answer := progress{skipped: stillSkipped(scope)}
	slots := scope.Rollout.Status.Slots
	done := make([]carriedOut, len(slots))
	r.inParallel(len(slots), func(i int) { done[i] = r.carryOutSlot(ctx, scope, slots[i]) })
	for i, slot := range slots {
		node, result, next := scope.node(slot), done[i].outcome, done[i].next
		if err := errors.Join(done[i].err, failed[slot.Node]); err != nil {
			failed[slot.Node] = err
			if isRefused(err) {
				slot.Message = clip(oneLine(err.Error()))
				answer.steps = withStep(answer.steps, stepEvent(node, slots[i], &slot))
			}
			answer.slots = append(answer.slots, slot)
			continue
		}
		if node != nil && isSkipped(scope, slot, result) {
			answer.skipped = withSkipped(answer.skipped, scope, slot, result)
		}
		answer.steps = withStep(answer.steps, stepEvent(node, slot, next))
		answer.steps = withStep(answer.steps, forcedEvent(node, next, result))
		if next != nil {
			answer.slots = append(answer.slots, *next)
		}
	}
	return answer
}

func withStep(steps []notice, step *notice) []notice {
	if step == nil {
		return steps
	}
	return append(steps, *step)
}

// carriedOut is what came of one slot.
type carriedOut struct {
	next    *v1alpha1.Slot
	outcome outcome
	err     error
}

// carryOutSlot carries out one, and what follows at once.
func (r *Reconciler) carryOutSlot(ctx context.Context, scope *Scope, slot v1alpha1.Slot) carriedOut {
	node := scope.node(slot)
	result, err := r.carryOut(ctx, scope, slot, node)
	if err != nil {
		return carriedOut{err: err}
	}
	next := advance(scope, slot, node, result)
	if node != nil && slot.Phase == v1alpha1.SlotBooting && (next == nil || next.Phase != v1alpha1.SlotBooting) {
		if err := r.endJobs(ctx, scope.Rollout, slot, node); err != nil {
			return carriedOut{err: err}
		}
	}
	if next, err = r.putBack(ctx, scope, slot, next, node); err != nil {
		return carriedOut{err: err}
	}
	return carriedOut{next, result, nil}
}

// putBack uncordons a node that has just come to that phase, and frees its slot
// if nothing is left to wait for: to uncordon needs no record beforehand, since
// our mark on the node says that the cordon is ours.
func (r *Reconciler) putBack(ctx context.Context, scope *Scope, before v1alpha1.Slot, slot *v1alpha1.Slot, node *Node) (*v1alpha1.Slot, error) {
	if slot == nil || node == nil || slot.Phase != v1alpha1.SlotSoaking || before.Phase == v1alpha1.SlotSoaking {
		return slot, nil
	}
	if err := r.uncordon(ctx, *slot, node); err != nil {
		return nil, err
	}
	return advance(scope, *slot, node, outcome{wasUnschedulable: slot.WasUnschedulable}), nil
}

// carryOut does what the phase of the slot is about. That an agent may boot is
// in its NodeImage by now. A withdrawn slot is not drained any further.
func (r *Reconciler) carryOut(ctx context.Context, scope *Scope, slot v1alpha1.Slot, node *Node) (outcome, error) {
	result := outcome{wasUnschedulable: slot.WasUnschedulable}
	switch {
	case node == nil:
		return result, nil
	case slot.Phase == v1alpha1.SlotSoaking && !hasRelapsed(scope, slot, node):
		return result, r.uncordon(ctx, slot, node)
	case isWithdrawn(scope, slot) && slot.Phase == v1alpha1.SlotDraining:
		return result, nil
	case scope.isSingleNode():
		result.isDrained = true
	default:
		var err error
		if result.wasUnschedulable, err = r.cordon(ctx, scope.Rollout.Name, slot, node); err != nil {
			return result, err
		}
	}
	return r.work(ctx, scope, slot, node, result)
}

// work is what is done on a node that is out of service.
func (r *Reconciler) work(ctx context.Context, scope *Scope, slot v1alpha1.Slot, node *Node, result outcome) (outcome, error) {
	var err error
	switch {
	case slot.Phase == v1alpha1.SlotDraining && !result.isDrained:
		result.isDrained, result.blocked, err = r.drain(ctx, scope, slot, node)
	case isWithdrawn(scope, slot): // nobody asks any more whether its image is good
	case slot.Phase == v1alpha1.SlotBooting && hasArrived(slot, node):
		result.gate, err = r.unmetGate(ctx, scope.Rollout, slot, node)
	}
	return result, err
}

// finish writes finalizer and status, and tells about the steps after that. It
// returns when a status that can wait is due.
func (r *Reconciler) finish(ctx context.Context, scope *Scope, status v1alpha1.ImageRolloutStatus, steps []notice) (time.Duration, error) {
	if len(status.Slots) > 0 {
		if err := r.setFinalizer(ctx, scope.Rollout, true); err != nil {
			return 0, err
		}
	}
	isChanged := !equality.Semantic.DeepEqual(scope.Rollout.Status, status)
	if isChanged {
		if wait := r.maySkip(scope.Rollout, status); wait > 0 {
			return wait, nil
		}
		if err := r.writeStatus(ctx, scope.Rollout, status); err != nil {
			return 0, err
		}
		observePhases(scope.Rollout.Name, scope.Rollout.Status.Slots, status.Slots, scope.Now)
		r.emit(scope, append(steps, statusEvents(scope.Rollout.Status, status)...))
		r.warnOfZero(scope.Rollout)
	}
	if len(status.Slots) == 0 && !isChanged {
		return 0, r.setFinalizer(ctx, scope.Rollout, false)
	}
	return 0, nil
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
	look := func(after time.Duration) { next = shortest(next, max(after, time.Second)) }
	if scope.Rollout.Spec.PullSecretRef != nil || scope.MissingTemplate != "" {
		look(secretInterval)
	}
	for _, slot := range slots {
		switch node := scope.node(slot); {
		case slot.Phase == v1alpha1.SlotDraining:
			look(drainInterval)
		case slot.Phase == v1alpha1.SlotSoaking && node != nil && node.isReady() && soakLeft(scope, slot, node) > 0:
			look(soakLeft(scope, slot, node))
		default:
			look(deadlineInterval)
		}
	}
	for _, node := range scope.selected() {
		if due := silenceOf(scope, node).due; due.After(scope.Now) {
			look(due.Sub(scope.Now))
		}
		if due := heldUpDue(scope, node); due.After(scope.Now) {
			look(due.Sub(scope.Now))
		}
	}
	if len(strays(scope)) > 0 {
		look(strayAfter)
	}
	if day := nextPausedDay(scope); day > 0 {
		look(day)
	}
	if opening := nextWindow(scope); opening != nil {
		look(opening.Sub(scope.Now))
	}
	if end := canaryEnd(scope); end.After(scope.Now) {
		look(end.Sub(scope.Now))
	}
	for _, skipped := range scope.Rollout.Status.Skipped {
		if due := skipped.Time.Add(drainTimeout(scope)); due.After(scope.Now) {
			look(due.Sub(scope.Now))
		}
	}
	return next
}

// shortest is the shorter of two waits; 0 means for ever.
func shortest(a, b time.Duration) time.Duration {
	if a == 0 || (b != 0 && b < a) {
		return b
	}
	return a
}

func joined(failed map[string]error) error {
	var all []error
	for _, err := range failed {
		all = append(all, err)
	}
	return errors.Join(all...)
}
