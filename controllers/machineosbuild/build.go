package machineosbuild

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"

	keys "github.com/imagemode/imagemode/api/machineconfiguration"
	"github.com/imagemode/imagemode/builder/request"
)

// buildReconciler takes a MachineOSBuild from its creation to its end.
type buildReconciler struct {
	client client.Client
	// live reads from the API server and not from the cache. What decides that a
	// build is over is read from there.
	live     client.Reader
	gatherer gatherer
	images   Images
	absent   *absence
	queue    *queue
	events   reporter
	options  Options
	now      func() time.Time
}

// +kubebuilder:rbac:groups=machineconfiguration.openshift.io,resources=machineosbuilds,verbs=get;list;watch;create;patch
// +kubebuilder:rbac:groups=machineconfiguration.openshift.io,resources=machineosbuilds/status,verbs=patch
// +kubebuilder:rbac:groups=machineconfiguration.openshift.io,resources=machineosbuilds/finalizers,verbs=update
// +kubebuilder:rbac:groups=batch,namespace=openshift-machine-config-operator,resources=jobs,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=batch,namespace=openshift-machine-config-operator,resources=jobs/finalizers,verbs=update
// +kubebuilder:rbac:groups="",namespace=openshift-machine-config-operator,resources=pods,verbs=get;list;watch
// +kubebuilder:rbac:groups="",namespace=openshift-machine-config-operator,resources=secrets;configmaps,verbs=get;list;watch;create;delete

// Reconcile does the next step of one build.
func (r *buildReconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	build := &mcfgv1.MachineOSBuild{}
	if err := r.client.Get(ctx, request.NamespacedName, build); err != nil {
		if apierrors.IsNotFound(err) {
			r.queue.leave(request.Name)
		}
		return resultFor(client.IgnoreNotFound(err))
	}
	if build.DeletionTimestamp != nil {
		// Job and inputs go with it, by ownership.
		r.queue.leave(build.Name)
		return ctrl.Result{}, nil
	}
	scope, err := r.gather(ctx, build)
	if err != nil {
		return resultFor(err)
	}
	next, err := r.decide(ctx, scope)
	if err != nil {
		return resultFor(err)
	}
	status, err := r.act(ctx, scope, next)
	if err == nil && status != nil {
		err = r.writeStatus(ctx, scope, *status)
	}
	if err != nil {
		return resultFor(err)
	}
	return r.wakeAt(next.wakeAt), nil
}

// decide asks for what the next step depends on only when it is about to
// depend on it: a registry, and a turn.
func (r *buildReconciler) decide(ctx context.Context, s *buildScope) (*step, error) {
	for {
		next := nextStep(s)
		switch next.action {
		case ask:
			r.ask(ctx, s)
			if err := r.gatherTwin(ctx, s); err != nil {
				return nil, err
			}
		case queueUp:
			running, err := r.running(ctx)
			if err != nil {
				return nil, err
			}
			answer := r.queue.ask(s.build, running)
			s.turn = &answer
		default:
			return next, nil
		}
	}
}

// running are the builds that have a Job which has not ended.
func (r *buildReconciler) running(ctx context.Context) ([]string, error) {
	var list batchv1.JobList
	selector := client.HasLabels{keys.LabelEphemeralBuildObject}
	if err := r.client.List(ctx, &list, client.InNamespace(r.options.Namespace), selector, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list builder Jobs: %w", err)
	}
	var names []string
	for i := range list.Items {
		owner := metav1.GetControllerOf(&list.Items[i])
		if owner != nil && owner.Kind == "MachineOSBuild" && !hasEnded(&list.Items[i]) && list.Items[i].DeletionTimestamp == nil {
			names = append(names, owner.Name)
		}
	}
	return names, nil
}

// wakeAt asks for another reconcile at a time; zero: for none.
func (r *buildReconciler) wakeAt(at time.Time) ctrl.Result {
	if at.IsZero() {
		return ctrl.Result{}
	}
	return ctrl.Result{RequeueAfter: max(time.Second, at.Sub(r.now()))}
}

// gather reads what a build's next step depends on.
func (r *buildReconciler) gather(ctx context.Context, build *mcfgv1.MachineOSBuild) (*buildScope, error) {
	s := &buildScope{build: build, pendingDeadline: r.options.BuilderPendingDeadline, now: r.now()}
	if err := r.gatherJob(ctx, s); err != nil || isTerminal(build) {
		return s, err
	}
	if err := r.recordDisruptions(ctx, s); err != nil {
		return nil, err
	}
	config, err := find[mcfgv1.MachineOSConfig](ctx, r.client, "", build.Spec.MachineOSConfig.Name)
	if err != nil {
		return nil, err
	}
	if config != nil && !isLetGo(config) && isOwnedBy(build, config.UID) {
		if s.owner, err = r.gatherer.gather(ctx, config); err != nil {
			return nil, err
		}
	}
	return s, r.gatherPushed(ctx, s)
}

// gatherJob reads the Job and its pods. That a Job or a pod is missing is taken
// from the API server: the cache may only be late.
func (r *buildReconciler) gatherJob(ctx context.Context, s *buildScope) error {
	name := jobName(s.build.Name)
	job, err := find[batchv1.Job](ctx, r.client, r.options.Namespace, name)
	if err == nil && job == nil && s.build.Status.Builder != nil && !isTerminal(s.build) {
		job, err = find[batchv1.Job](ctx, r.live, r.options.Namespace, name)
	}
	if err != nil || job == nil {
		return err
	}
	if !isOwnedBy(job, s.build.UID) {
		s.isJobNameTaken = true
		return nil
	}
	s.job = job
	if isTerminal(s.build) {
		return nil
	}
	if s.pods, err = podsOf(ctx, r.client, job); err != nil || !hasEnded(job) {
		return err
	}
	if _, found := resultOf(s.pods); !found {
		s.pods, err = podsOf(ctx, r.live, job)
	}
	return err
}

// gatherPushed looks into the registry when a Job completed and no pod is left
// to name the image.
func (r *buildReconciler) gatherPushed(ctx context.Context, s *buildScope) error {
	if s.owner == nil || s.job == nil || !jobHas(s.job, batchv1.JobComplete) {
		return nil
	}
	if _, found := resultOf(s.pods); found {
		return nil
	}
	var err error
	s.pushedDigest, s.pushedProblem, err = r.pushedImage(ctx, s)
	return err
}

// pushedImage looks for the image that a build pushed under its tag. problem
// says why there is none; err asks for another try.
func (r *buildReconciler) pushedImage(ctx context.Context, s *buildScope) (digest, problem string, err error) {
	ref, tag := s.owner.pushSecretRef(), string(s.build.Spec.RenderedImagePushSpec)
	access, err := s.owner.accessWith(ref)
	if err != nil {
		return "", err.Error(), nil
	}
	found, err := r.images.Read(ctx, access, tag)
	if err != nil {
		if check := s.owner.judge(err, ref, tag); check.readability == unreadable {
			return "", "its image cannot be read: " + check.message, nil
		}
		return "", "", err
	}
	if found.InputsHash != inputsHashOf(s.build) {
		return "", fmt.Sprintf("the image %s is not the one that was asked for (its label %s)", tag, revisionLabel), nil
	}
	return found.Digest, "", nil
}

func podsOf(ctx context.Context, reader client.Reader, job *batchv1.Job) ([]corev1.Pod, error) {
	var list corev1.PodList
	selector := client.MatchingLabels{batchv1.ControllerUidLabel: string(job.UID)}
	if err := reader.List(ctx, &list, client.InNamespace(job.Namespace), selector); err != nil {
		return nil, fmt.Errorf("list the pods of Job %s: %w", job.Name, err)
	}
	slices.SortFunc(list.Items, func(a, b corev1.Pod) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), strings.Compare(a.Name, b.Name))
	})
	return list.Items, nil
}

// act does a step and returns the status to write; nil: none.
func (r *buildReconciler) act(ctx context.Context, s *buildScope, next *step) (*mcfgv1.MachineOSBuildStatus, error) {
	switch next.action {
	case clean:
		r.queue.leave(s.build.Name)
		return nil, r.clean(ctx, s)
	case reuse:
		return r.reuse(ctx, s, next)
	case start:
		return nil, r.start(ctx, s, next)
	case resume:
		return r.resume(ctx, s, next)
	case finish:
		if err := r.recordTags(ctx, s); err != nil {
			return nil, err
		}
	case stop:
		if s.job != nil && s.job.DeletionTimestamp == nil {
			r.events.jobDeleted(s.build, s.job.Name)
		}
		if err := r.deleteJob(ctx, s.job); err != nil {
			return nil, err
		}
	}
	if next.state == nil {
		return nil, nil
	}
	return r.statusWith(s, *next.state), nil
}

// statusWith is the build's status with a state, and with its Job once there is
// one.
func (r *buildReconciler) statusWith(s *buildScope, state state) *mcfgv1.MachineOSBuildStatus {
	status := buildStatus(s.build.Status, repositoryOf(s.build.Spec.RenderedImagePushSpec), state, r.now())
	if s.job != nil {
		jobReferences(&status, s.job.Namespace, s.job.Name)
	}
	return &status
}

// start creates the Job, suspended. Its inputs are made in the next step, which
// knows its UID.
func (r *buildReconciler) start(ctx context.Context, s *buildScope, next *step) error {
	job := newJob(s.build, r.workOf(ctx, s, next.blueprint), s.owner.site.proxy, r.options)
	err := r.client.Create(ctx, job)
	if apierrors.IsAlreadyExists(err) {
		// Created a moment ago: the cache will have it.
		return errLeftover
	}
	if err != nil {
		return fmt.Errorf("create Job %s of MachineOSBuild %s: %w", job.Name, s.build.Name, err)
	}
	r.events.jobCreated(s.build, job)
	return nil
}

// resume makes the inputs, notes the Job in the status and lets it go: from then on,
// a Job that is not there was deleted.
func (r *buildReconciler) resume(ctx context.Context, s *buildScope, next *step) (*mcfgv1.MachineOSBuildStatus, error) {
	if s.job.Spec.Template.Spec.HostUsers == nil {
		return r.giveUp(ctx, s, request.Failure{Class: request.Internal, Message: "the API server took hostUsers out of the builder's pod, " +
			"so the cluster has no user namespaces (feature UserNamespacesSupport); switch them on, or build without them (--builder-host-users)"})
	}
	packed, err := newRequest(s.build, next.blueprint)
	if err != nil {
		return r.giveUp(ctx, s, request.Failure{Class: request.Config, Message: err.Error()})
	}
	objects, err := supplies(s.build, s.job, s.owner, packed)
	if err != nil {
		return nil, err
	}
	group, groupCtx := errgroup.WithContext(ctx)
	group.Go(func() error { return r.createSupplies(groupCtx, s.job, objects) })
	group.Go(func() error {
		return r.writeStatus(groupCtx, s, *r.statusWith(s, state{phase: mcfgv1.MachineOSBuildPrepared}))
	})
	if err := group.Wait(); err != nil {
		return nil, err
	}
	before := s.job.DeepCopy()
	*s.job.Spec.Suspend = false
	if err := r.client.Patch(ctx, s.job, client.MergeFrom(before)); err != nil {
		return nil, fmt.Errorf("resume Job %s: %w", s.job.Name, err)
	}
	return nil, nil
}

// giveUp ends a build whose Job has not been let go.
func (r *buildReconciler) giveUp(ctx context.Context, s *buildScope, failure request.Failure) (*mcfgv1.MachineOSBuildStatus, error) {
	if err := r.deleteJob(ctx, s.job); err != nil {
		return nil, err
	}
	return r.statusWith(s, failedState(failure)), nil
}

// clean removes what must not outlive a build: credentials at once, the Job
// after a time, or at once if another build took this one's place.
func (r *buildReconciler) clean(ctx context.Context, s *buildScope) error {
	group, groupCtx := errgroup.WithContext(ctx)
	for _, name := range credentialNames(s.build.Name) {
		group.Go(func() error { return r.deleteCredentials(groupCtx, s, name) })
	}
	group.Go(func() error { return r.limitJob(groupCtx, s) })
	return group.Wait()
}

// limitJob sees that the Job of a build that ended goes.
func (r *buildReconciler) limitJob(ctx context.Context, s *buildScope) error {
	if s.job == nil || s.job.DeletionTimestamp != nil {
		return nil
	}
	if isSuperseded(s.build) && !hasSucceeded(s.build) {
		return r.deleteJob(ctx, s.job)
	}
	if phaseOf(s.build) == mcfgv1.MachineOSBuildFailed && !hasEnded(s.job) && !(hasFailedForGood(s.build) && endsAtFinalFailure(s.job)) {
		// It would go on with what was corrected since.
		r.events.jobDeleted(s.build, s.job.Name)
		return r.deleteJob(ctx, s.job)
	}
	ttl := failedJobTTL
	if hasSucceeded(s.build) {
		ttl = succeededJobTTL
	}
	if s.job.Spec.TTLSecondsAfterFinished != nil {
		return nil
	}
	before := s.job.DeepCopy()
	s.job.Spec.TTLSecondsAfterFinished = &ttl
	if err := r.client.Patch(ctx, s.job, client.MergeFrom(before)); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("limit how long Job %s is kept: %w", s.job.Name, err)
	}
	return nil
}

// hasFailedForGood reports whether a build failed in a way that ends its Job, too.
func hasFailedForGood(build *mcfgv1.MachineOSBuild) bool {
	failure := request.Failure{Class: request.FailureClass(conditionOf(build).Reason)}
	return failure.IsFinal()
}

// deleteCredentials deletes one Secret of a build, unless a newer build of the
// same name has it.
func (r *buildReconciler) deleteCredentials(ctx context.Context, s *buildScope, name string) error {
	secret, err := find[corev1.Secret](ctx, r.client, r.options.Namespace, name)
	if err != nil || secret == nil || s.job != nil && !isOwnedBy(secret, s.job.UID) {
		return err
	}
	if err := r.client.Delete(ctx, secret, uidOf(secret)); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("delete credentials of MachineOSBuild %s: %w", s.build.Name, err)
	}
	return nil
}

// deleteJob deletes a Job with its pods; their work is not wanted any more.
func (r *buildReconciler) deleteJob(ctx context.Context, job *batchv1.Job) error {
	if job == nil || job.DeletionTimestamp != nil {
		return nil
	}
	background := client.PropagationPolicy(metav1.DeletePropagationBackground)
	if err := r.client.Delete(ctx, job, uidOf(job), background); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("delete Job %s: %w", job.Name, err)
	}
	return nil
}

// writeStatus writes a status that differs, and tells of a new phase.
func (r *buildReconciler) writeStatus(ctx context.Context, s *buildScope, status mcfgv1.MachineOSBuildStatus) error {
	build := s.build
	if equality.Semantic.DeepEqual(build.Status, status) {
		return nil
	}
	before := build.DeepCopy()
	build.Status = status
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if err := r.client.Status().Patch(ctx, build, patch); err != nil {
		if apierrors.IsNotFound(err) {
			// Deleted meanwhile: there is no status to write.
			return nil
		}
		return fmt.Errorf("write the status of MachineOSBuild %s: %w", build.Name, err)
	}
	if phase := phaseOf(build); phase != phaseOf(before) {
		condition := conditionOf(build)
		r.events.phaseChanged(build, state{phase: phase, reason: condition.Reason, message: condition.Message})
		countPhase(s)
	}
	return nil
}

// errLeftover asks for another try soon: an object of the same name is still
// there, or not yet in the cache.
var errLeftover = errors.New("an object of the same name is still there")
