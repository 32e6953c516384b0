package machineosbuild

import (
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
)

// hasEnded reports whether a Job will make no pod any more.
func hasEnded(job *batchv1.Job) bool {
	return jobHas(job, batchv1.JobComplete) || jobHas(job, batchv1.JobFailed)
}

func jobHas(job *batchv1.Job, kind batchv1.JobConditionType) bool {
	return jobCondition(job, kind) != nil
}

// jobCondition returns a condition that is True, or nil.
func jobCondition(job *batchv1.Job, kind batchv1.JobConditionType) *batchv1.JobCondition {
	for i := range job.Status.Conditions {
		if condition := &job.Status.Conditions[i]; condition.Type == kind && condition.Status == corev1.ConditionTrue {
			return condition
		}
	}
	return nil
}

func deadlineOf(job *batchv1.Job) time.Duration {
	if job.Spec.ActiveDeadlineSeconds == nil {
		return 0
	}
	return time.Duration(*job.Spec.ActiveDeadlineSeconds) * time.Second
}

func isSuspended(job *batchv1.Job) bool { return job.Spec.Suspend != nil && *job.Spec.Suspend }
