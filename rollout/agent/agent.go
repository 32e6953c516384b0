package agent

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/imagemode/imagemode/api/v1alpha1"
	"github.com/imagemode/imagemode/rollout/bootc"
)

// stageTimeout bounds one download. What was fetched is kept, so that on a slow
// line the next try goes on from there.
const stageTimeout = 30 * time.Minute

// shortTimeout bounds lock and unlock, which fetch a manifest at most.
const shortTimeout = 5 * time.Minute

// Options are what the agent has to be told.
type Options struct {
	// NodeName is the node's name and that of its NodeImage.
	NodeName string
	// PullSecretDir is where the Secret imagemode-node-pull is mounted, one file
	// per ImageRollout. It need not exist.
	PullSecretDir string
	// PullSecretFile is a file with the node's own credentials, as the kubelet
	// has them: they are used in place of the rollout's. Empty: none.
	PullSecretFile string
	// ActsAsNode: the agent has the kubelet's credential, and may read its Node.
	ActsAsNode bool
	// StandsBackFor is a unit of the host that does what this agent would do: while
	// it is active, nothing is done. Empty: there is none.
	StandsBackFor string
}

// Agent reconciles the NodeImage of its node with its host.
type Agent struct {
	client client.Client
	// live reads from the API server: that it answers shows that the node is well.
	live     client.Reader
	recorder events.EventRecorder
	host     Host
	options  Options
	clock    func() time.Time
	memory   memory
	// isBack: the service of the host is at work.
	isBack bool

	// reported is the status that was written last, to the object of that UID:
	// the cache may still show the one before it.
	reported    *v1alpha1.NodeImageStatus
	reportedUID types.UID
}

// Add adds the agent to a manager whose cache holds the node's own NodeImage.
func Add(mgr ctrl.Manager, host Host, options Options) error {
	if options.NodeName == "" {
		return fmt.Errorf("the agent does not know its node: set --node-name or NODE_NAME")
	}
	agent := &Agent{
		client:   mgr.GetClient(),
		live:     mgr.GetAPIReader(),
		recorder: mgr.GetEventRecorder("imagemode-agent"),
		host:     host,
		options:  options,
		clock:    time.Now,
	}
	isOwn := predicate.NewPredicateFuncs(func(object client.Object) bool { return object.GetName() == options.NodeName })
	return ctrl.NewControllerManagedBy(mgr).
		Named("agent").
		For(&v1alpha1.NodeImage{}, builder.WithPredicates(isOwn, predicate.GenerationChangedPredicate{})).
		Complete(agent)
}

// Reconcile makes one pass. Without a NodeImage the host is not even looked at.
func (a *Agent) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	object := &v1alpha1.NodeImage{}
	if err := a.client.Get(ctx, request.NamespacedName, object); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if isBack, err := a.standsBack(ctx); isBack || err != nil {
		return ctrl.Result{RequeueAfter: recheckInterval}, err
	}
	in, err := a.observe(ctx, object)
	if err != nil {
		a.complain(object, err)
		return ctrl.Result{}, err
	}
	wasRebooting := isRebooting(in)
	in.Attempt = settle(in)
	in.Failed = remember(in.Failed, in.Attempt)
	decision := decide(in)
	decision.Message = withProblem(decision.Message, in.Problem)
	in.Attempt = begin(in, decision)
	if !wasRebooting { // a report would claim that a newer spec was seen in time
		before := a.statusBefore(object)
		if status := statusOf(before, object.Generation, in, decision); isWorthAReport(before, status, in, decision) {
			if err := a.report(ctx, object, status); err != nil {
				return ctrl.Result{}, err
			}
		}
		a.announce(ctx, object, in, decision)
	}
	a.memory.attempt, a.memory.failed = in.Attempt, in.Failed
	if isUnconfirmed(in) && !a.noteContact(ctx, object) {
		decision.Again = min(decision.Again, contactInterval)
	}
	if err := a.act(ctx, in, decision); err != nil {
		a.memory.problem = a.complain(object, err)
		return ctrl.Result{}, err
	}
	a.memory.problem = ""
	if in.LiveProblem != "" {
		decision.Again = min(decision.Again, liveRetry)
	}
	return ctrl.Result{RequeueAfter: decision.Again}, nil
}

// complain makes an event of what the host refuses, at every try, and returns it in
// one line: the pass is made again by itself, and nobody reads the logs of all agents.
func (a *Agent) complain(object *v1alpha1.NodeImage, err error) string {
	problem := bootc.OneLine(err.Error())
	a.recorder.Eventf(object, nil, corev1.EventTypeWarning, ReasonHostRefuses, "Reconcile", "%s", problem)
	return problem
}

// maxProblem is how much of a problem stands in a condition.
const maxProblem = 500

// withProblem says with what a node is about to do that it did not succeed before.
func withProblem(message, problem string) string {
	if problem == "" {
		return message
	}
	return message + "; the last try failed and is made again: " + cutTo(problem, maxProblem)
}

// standsBack says whether the host has the agent as a service: two agents would
// give their orders to one bootc.
func (a *Agent) standsBack(ctx context.Context) (bool, error) {
	if a.options.StandsBackFor == "" {
		return false, nil
	}
	isActive, err := a.host.IsActive(ctx, a.options.StandsBackFor)
	if isActive && !a.isBack {
		log.FromContext(ctx).Info("standing back for the service of the host", "unit", a.options.StandsBackFor)
	}
	a.isBack = isActive
	if isActive {
		a.memory, a.reported = memory{}, nil // the other one knows more by now
	}
	return isActive, err
}

func (a *Agent) statusBefore(object *v1alpha1.NodeImage) v1alpha1.NodeImageStatus {
	if a.reported != nil && a.reportedUID == object.UID {
		return *a.reported
	}
	return object.Status
}

// act does the one thing that was decided. The finished command whose end is
// reported by now is dropped first, or the unit's name would be taken.
func (a *Agent) act(ctx context.Context, in Inputs, decision Decision) error {
	if in.Command.State == CommandFinished && in.Busy == "" {
		observeCommand(in)
		if err := a.host.Forget(ctx, unitBootc); err != nil {
			return err
		}
	}
	if isSpent(in) {
		if err := a.host.RemoveFile(intentPath); err != nil {
			return err
		}
	}
	switch decision.Action {
	case Cancel:
		return a.host.Forget(ctx, unitBootc)
	case Stage:
		return a.start(ctx, in, bootc.StageArguments(in.Desired, in.Features), stageTimeout)
	case Lock:
		return a.start(ctx, in, bootc.LockArguments(), shortTimeout)
	case Unlock:
		if err := writeIntent(a.host, newIntent(in, false)); err != nil {
			return err
		}
		return a.start(ctx, in, unlockArguments(in), shortTimeout)
	case Reboot:
		return a.reboot(ctx, in)
	case GoBack:
		_, err := goBack(ctx, a.host, *in.Intent, in.BootID, in.Now)
		return err
	}
	return nil
}

func (a *Agent) start(ctx context.Context, in Inputs, arguments []string, timeout time.Duration) error {
	if hasSecret(in) {
		if err := writeAuthFile(a.host, in.Secret); err != nil {
			return fmt.Errorf("registry credentials could not be brought to the host: %w", err)
		}
		a.memory.triedSecret = in.Secret.hash()
	}
	log.FromContext(ctx).Info("starting bootc on the host", "arguments", arguments[1:])
	return a.host.Start(ctx, unitBootc, arguments, timeout)
}

func unlockArguments(in Inputs) []string {
	if maySoftReboot(in) {
		return bootc.UnlockSoftArguments()
	}
	return bootc.UnlockArguments()
}

// reboot records that the image was seen ready, once per boot, and reboots. What
// brings the node back if it does not do well is put in place before.
func (a *Agent) reboot(ctx context.Context, in Inputs) error {
	intent := in.Intent
	if !isRebooting(in) {
		if err := arm(a.host, in.Spec.RollbackAfterSeconds); err != nil {
			return fmt.Errorf("the deadline for the image could not be set on the host: %w", err)
		}
		fresh := newIntent(in, true)
		if intent.isFor(in.Spec) && intent.BootID == in.BootID {
			fresh.Soft, fresh.SoftTried = intent.Soft, intent.SoftTried // as it was unlocked
		}
		if err := writeIntent(a.host, fresh); err != nil {
			return err
		}
		intent = &fresh
	}
	log.FromContext(ctx).Info("rebooting the host", "image", in.Spec.DesiredImage, "soft", intent.Soft)
	return a.host.Reboot(ctx, intent.Soft)
}

// announce makes an event of a failure that is new, and of a reboot.
func (a *Agent) announce(ctx context.Context, object *v1alpha1.NodeImage, in Inputs, decision Decision) {
	last, before := in.Attempt, a.memory.attempt
	isNews := last != nil && last.Class != "" && (before == nil || before.Class != last.Class || before.Image != last.Image)
	switch {
	case isNews:
		a.recorder.Eventf(object, nil, corev1.EventTypeWarning, string(last.Class), "Stage", "%s", last.Message)
		log.FromContext(ctx).Info("bootc failed", "class", last.Class, "permanent", last.Permanent, "failures", last.Failures, "message", last.Message)
	case decision.Action == GoBack && in.Intent.WentBack == "":
		a.recorder.Eventf(object, nil, corev1.EventTypeWarning, ReasonGoingBack, "Reboot", "going back from %s to %s", in.Spec.DesiredImage, in.Intent.Previous)
	case decision.Action == Reboot:
		a.recorder.Eventf(object, nil, corev1.EventTypeNormal, ReasonRebooting, "Reboot", "rebooting into %s", in.Spec.DesiredImage)
	}
}
