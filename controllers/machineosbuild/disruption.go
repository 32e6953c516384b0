package machineosbuild

import (
	"context"
	"fmt"
	"slices"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	keys "github.com/imagemode/imagemode/api/machineconfiguration"
)

// disruptedPods are the UIDs of the Job's pods that were evicted or preempted.
// They are written down: such a pod is deleted, and the Job does not count it.
func disruptedPods(job *batchv1.Job) []string {
	listed := job.Annotations[keys.AnnotationDisruptedPods]
	return slices.DeleteFunc(strings.Split(listed, ","), func(uid string) bool { return uid == "" })
}

// recordDisruptions adds those seen now.
func (r *buildReconciler) recordDisruptions(ctx context.Context, s *buildScope) error {
	if s.job == nil || hasEnded(s.job) {
		return nil
	}
	listed := disruptedPods(s.job)
	known := len(listed)
	for i := range s.pods {
		uid := string(s.pods[i].UID)
		if isDisrupted(&s.pods[i]) && !slices.Contains(listed, uid) && len(listed) < maxDisruptions {
			listed = append(listed, uid)
		}
	}
	if len(listed) == known {
		return nil
	}
	before := s.job.DeepCopy()
	metav1.SetMetaDataAnnotation(&s.job.ObjectMeta, keys.AnnotationDisruptedPods, strings.Join(listed, ","))
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if err := r.client.Patch(ctx, s.job, patch); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("count the evicted pods of Job %s: %w", s.job.Name, err)
	}
	return nil
}
