package controller

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/imagemode/imagemode/api/v1alpha1"
)

// labelGate marks the Jobs of gates and their pods with the rollout's name, cut to a label's length.
const labelGate = "imagemode.dev/gate-of"

// gateJobKept is how long a Job of a gate is kept where its template does not say:
// its log is what tells why a node went back.
const gateJobKept = int32(24 * 60 * 60)

// unfinishedJob makes the Job of a gate, if it is not there, and says what it
// waits for; empty when the Job has succeeded. Its name holds what it is about,
// so that it is made once.
func (r *Reconciler) unfinishedJob(ctx context.Context, rollout *v1alpha1.ImageRollout, gate v1alpha1.Gate, slot v1alpha1.Slot, node *Node) (string, error) {
	job := &batchv1.Job{}
	key := r.gateJobKey(rollout, gate, slot, node)
	err := r.Live.Get(ctx, key, job)
	if apierrors.IsNotFound(err) {
		return r.createJob(ctx, rollout, gate, node, key)
	}
	if err != nil {
		return "", fmt.Errorf("Job %s of a gate: %w", key, err)
	}
	end := endOf(job)
	switch {
	case job.DeletionTimestamp != nil:
		return fmt.Sprintf("Job %s is being deleted; it is made anew", key), nil // its pods were ended, whatever they say
	case end == nil:
		return fmt.Sprintf("Job %s has not ended", key), nil
	case end.Type == batchv1.JobFailed:
		return fmt.Sprintf("Job %s failed: %s", key, end.Message), nil
	}
	return "", nil
}

// endOf is how the Job has ended; nil: it has not.
func endOf(job *batchv1.Job) *batchv1.JobCondition {
	for i := range job.Status.Conditions {
		condition := &job.Status.Conditions[i]
		if condition.Status == corev1.ConditionTrue && (condition.Type == batchv1.JobComplete || condition.Type == batchv1.JobFailed) {
			return condition
		}
	}
	return nil
}

// endJobs deletes the Jobs of the slot's gates that nobody waits for any more: one that
// goes on would be restarted after the next boot, on another image. Those that have
// ended stay for their logs.
func (r *Reconciler) endJobs(ctx context.Context, rollout *v1alpha1.ImageRollout, slot v1alpha1.Slot, node *Node) error {
	for _, gate := range rollout.Spec.Gates {
		if gate.Job == nil {
			continue
		}
		job := &batchv1.Job{}
		err := r.Live.Get(ctx, r.gateJobKey(rollout, gate, slot, node), job)
		if err == nil && endOf(job) == nil {
			err = r.deleteJob(ctx, job)
		}
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("Job of gate %s could not be ended: %w", gate.Name, err)
		}
	}
	return nil
}

// deleteJob deletes the Job and its pods.
func (r *Reconciler) deleteJob(ctx context.Context, job *batchv1.Job) error {
	err := r.Client.Delete(ctx, job, client.Preconditions{UID: &job.UID}, client.PropagationPolicy(metav1.DeletePropagationBackground))
	if apierrors.IsConflict(err) { // another Job by now
		return nil
	}
	return client.IgnoreNotFound(err)
}

// gateJobOf is the Job of a gate that the pod belongs to; nil: none.
func (r *Reconciler) gateJobOf(pod *corev1.Pod) *batchv1.Job {
	owner := metav1.GetControllerOf(pod)
	if _, isGate := pod.Labels[labelGate]; !isGate || owner == nil || owner.Kind != "Job" || pod.Namespace != r.Options.Namespace {
		return nil
	}
	return &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: owner.Name, UID: owner.UID}}
}

// templateKey is where the template of a gate's Jobs is.
func (r *Reconciler) templateKey(gate v1alpha1.JobGate) client.ObjectKey {
	return client.ObjectKey{Namespace: r.Options.Namespace, Name: gate.CronJob}
}

// missingTemplate names the first template that does not exist, or may not be read; empty:
// all are there. No node is drained for an image that no Job could then speak for.
func (r *Reconciler) missingTemplate(ctx context.Context, gates []v1alpha1.Gate) (string, error) {
	for i, gate := range gates {
		if gate.Job == nil {
			continue
		}
		name := r.templateKey(*gate.Job)
		err := r.Live.Get(ctx, name, &batchv1.CronJob{})
		if apierrors.IsNotFound(err) {
			return fmt.Sprintf("spec.gates[%d].job.cronJob (gate %s): CronJob %s does not exist", i, gate.Name, name), nil
		}
		if isRefused(err) {
			return fmt.Sprintf("spec.gates[%d].job.cronJob (gate %s): CronJob %s could not be read: %s", i, gate.Name, name, oneLine(err.Error())), nil
		}
		if err != nil {
			return "", fmt.Errorf("CronJob %s of gate %s: %w", name, gate.Name, err)
		}
	}
	return "", nil
}

func (r *Reconciler) createJob(ctx context.Context, rollout *v1alpha1.ImageRollout, gate v1alpha1.Gate, node *Node, key client.ObjectKey) (string, error) {
	template := &batchv1.CronJob{}
	name := r.templateKey(*gate.Job)
	err := r.Live.Get(ctx, name, template)
	if apierrors.IsNotFound(err) {
		return fmt.Sprintf("CronJob %s does not exist", name), nil
	}
	if err != nil {
		return "", fmt.Errorf("CronJob %s of a gate: %w", name, err)
	}
	if err := r.Client.Create(ctx, gateJob(rollout, template, node, key), fieldOwner); err != nil && !apierrors.IsAlreadyExists(err) {
		return "", fmt.Errorf("Job %s of a gate could not be made: %w", key, err)
	}
	return fmt.Sprintf("Job %s has not ended", key), nil
}

// gateJob is the Job for one node. It is bound to the node, past the scheduler:
// the node is still cordoned.
func gateJob(rollout *v1alpha1.ImageRollout, template *batchv1.CronJob, node *Node, key client.ObjectKey) *batchv1.Job {
	of := strings.TrimRight(rollout.Name[:min(len(rollout.Name), 63)], "-.")
	job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{
		Name: key.Name, Namespace: key.Namespace,
		Labels: map[string]string{labelGate: of},
		OwnerReferences: []metav1.OwnerReference{{
			APIVersion: v1alpha1.GroupVersion.String(), Kind: "ImageRollout", Name: rollout.Name, UID: rollout.UID,
		}},
	}, Spec: *template.Spec.JobTemplate.Spec.DeepCopy()}
	if job.Spec.TTLSecondsAfterFinished == nil {
		kept := gateJobKept
		job.Spec.TTLSecondsAfterFinished = &kept
	}
	metav1.SetMetaDataLabel(&job.Spec.Template.ObjectMeta, labelGate, of) // by which a drain knows its pods
	job.Spec.Template.Spec.NodeName = node.Name
	for i := range job.Spec.Template.Spec.Containers {
		container := &job.Spec.Template.Spec.Containers[i]
		container.Env = append(container.Env, corev1.EnvVar{Name: "NODE_NAME", Value: node.Name})
	}
	return job
}

// gateJobKey is the same for the same gate, node, image, boot and retry token: what a
// Job has found out in one boot says nothing about the next one.
func (r *Reconciler) gateJobKey(rollout *v1alpha1.ImageRollout, gate v1alpha1.Gate, slot v1alpha1.Slot, node *Node) client.ObjectKey {
	boot := node.Status.NodeInfo.BootID
	if node.Image != nil {
		boot = fmt.Sprint(boot, "\x00", node.Image.Status.SoftReboots)
	}
	about := strings.Join([]string{string(rollout.UID), gate.Name, string(node.UID), slot.Image, boot, rollout.Spec.RetryToken}, "\x00")
	sum := sha256.Sum256([]byte(about))
	return client.ObjectKey{Namespace: r.Options.Namespace, Name: "imagemode-gate-" + hex.EncodeToString(sum[:])[:16]}
}
