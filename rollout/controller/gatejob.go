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

// labelGate marks the Jobs of gates with the rollout's name, cut to a label's length.
const labelGate = "imagemode.dev/gate-of"

// gateJobKept is how long a Job of a gate is kept where its template does not say:
// its log is what tells why a node went back.
const gateJobKept = int32(24 * 60 * 60)

// unfinishedJob makes the Job of a gate, if it is not there, and says what it
// waits for; empty when the Job has succeeded. Its name holds what it is about,
// so that it is made once.
func (r *Reconciler) unfinishedJob(ctx context.Context, rollout *v1alpha1.ImageRollout, gate v1alpha1.Gate, node *Node) (string, error) {
	job := &batchv1.Job{}
	key := client.ObjectKey{Namespace: r.Options.Namespace, Name: gateJobName(rollout, gate, node)}
	err := r.Live.Get(ctx, key, job)
	if apierrors.IsNotFound(err) {
		return r.createJob(ctx, rollout, gate, node, key)
	}
	if err != nil {
		return "", fmt.Errorf("Job %s of a gate: %w", key, err)
	}
	for _, condition := range job.Status.Conditions {
		if condition.Status != corev1.ConditionTrue {
			continue
		}
		switch condition.Type {
		case batchv1.JobComplete:
			return "", nil
		case batchv1.JobFailed:
			return fmt.Sprintf("Job %s failed: %s", key, condition.Message), nil
		}
	}
	return fmt.Sprintf("Job %s has not ended", key), nil
}

func (r *Reconciler) createJob(ctx context.Context, rollout *v1alpha1.ImageRollout, gate v1alpha1.Gate, node *Node, key client.ObjectKey) (string, error) {
	template := &batchv1.CronJob{}
	name := client.ObjectKey{Namespace: r.Options.Namespace, Name: gate.Job.CronJob}
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
	job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{
		Name: key.Name, Namespace: key.Namespace,
		Labels: map[string]string{labelGate: strings.TrimRight(rollout.Name[:min(len(rollout.Name), 63)], "-.")},
		OwnerReferences: []metav1.OwnerReference{{
			APIVersion: v1alpha1.GroupVersion.String(), Kind: "ImageRollout", Name: rollout.Name, UID: rollout.UID,
		}},
	}, Spec: *template.Spec.JobTemplate.Spec.DeepCopy()}
	if job.Spec.TTLSecondsAfterFinished == nil {
		kept := gateJobKept
		job.Spec.TTLSecondsAfterFinished = &kept
	}
	job.Spec.Template.Spec.NodeName = node.Name
	for i := range job.Spec.Template.Spec.Containers {
		container := &job.Spec.Template.Spec.Containers[i]
		container.Env = append(container.Env, corev1.EnvVar{Name: "NODE_NAME", Value: node.Name})
	}
	return job
}

// gateJobName is the same for the same gate, node, image and retry token.
func gateJobName(rollout *v1alpha1.ImageRollout, gate v1alpha1.Gate, node *Node) string {
	about := strings.Join([]string{string(rollout.UID), gate.Name, string(node.UID), rollout.Spec.Image, rollout.Spec.RetryToken}, "\x00")
	sum := sha256.Sum256([]byte(about))
	return "imagemode-gate-" + hex.EncodeToString(sum[:])[:16]
}
