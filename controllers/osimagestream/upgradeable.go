package osimagestream

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/imagemode/imagemode/controllers/osimagestream/streams"
)

const (
	// clusterOperator is the ClusterOperator that holds updates of the platform
	// back while they would take a stream away.
	clusterOperator = "imagemode"
	// reasonStreamEnds is the reason of Upgradeable=False.
	reasonStreamEnds = "OSStreamRemovalPending"
)

var kindClusterOperator = configv1.GroupVersion.WithKind("ClusterOperator")

// endings are problems for the streams in use that will go.
func (r *reconciler) endings(s *scope, decided outcome) []streams.Problem {
	var problems []streams.Problem
	for _, ending := range r.ending(s, decided) {
		problems = append(problems, streams.Problem{Source: "next release", Stream: ending.Stream, Reason: ending.Message})
	}
	return problems
}

func (r *reconciler) ending(s *scope, decided outcome) []streams.EndingUse {
	now := &mcfgv1.OSImageStream{
		Spec:   mcfgv1.OSImageStreamSpec{DefaultStream: decided.chosen.Name},
		Status: mcfgv1.OSImageStreamStatus{AvailableStreams: decided.Streams, DefaultStream: decided.chosen.Name},
	}
	if decided.chosen.Gone != "" {
		now.Spec.DefaultStream = decided.chosen.Gone
	}
	return streams.Ending(streams.Uses(now, s.wishes), decided.Traits, decided.next, decided.Streams)
}

// publishUpgradeable tells the platform whether an update takes a stream away
// that pools use: by a condition where ClusterOperators exist, and by an event.
// The object's problems, and with them the pools, say it everywhere.
func (r *reconciler) publishUpgradeable(ctx context.Context, stream *mcfgv1.OSImageStream, decided outcome, s *scope) error {
	var messages []string
	for _, ending := range r.ending(s, decided) {
		messages = append(messages, ending.Message)
	}
	message := strings.Join(messages, "; ")
	if message != "" && message != r.announcedEnding {
		r.events.Eventf(stream, nil, corev1.EventTypeWarning, reasonStreamEnds, "CheckNextRelease", "%s", streams.Truncate(message, maxEventNote))
	}
	r.announcedEnding = message
	return r.writeUpgradeable(ctx, message)
}

func (r *reconciler) writeUpgradeable(ctx context.Context, message string) error {
	var operator configv1.ClusterOperator
	found, err := readOptional(ctx, r.client, kindClusterOperator, clusterOperator, &operator)
	if err != nil {
		return err
	}
	object := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{}}}
	object.SetGroupVersionKind(kindClusterOperator)
	object.SetName(clusterOperator)
	if !found {
		if message == "" {
			return nil // there is nothing to hold back
		}
		if err := r.client.Create(ctx, object); isAbsent(err) {
			return nil
		} else if err != nil {
			return fmt.Errorf("create ClusterOperator %s: %w", clusterOperator, err)
		}
	}
	conditions := withUpgradeable(operator.Status.Conditions, message, metav1.NewTime(time.Now().Truncate(time.Second)))
	if conditions == nil {
		return nil
	}
	return r.patchConditions(ctx, object, conditions, operator.ResourceVersion)
}

// withUpgradeable returns the conditions with Upgradeable as message says; nil:
// they say so already.
func withUpgradeable(conditions []configv1.ClusterOperatorStatusCondition, message string, now metav1.Time) []configv1.ClusterOperatorStatusCondition {
	want := configv1.ClusterOperatorStatusCondition{
		Type: configv1.OperatorUpgradeable, Status: configv1.ConditionTrue, Reason: "AsExpected", LastTransitionTime: now,
	}
	if message != "" {
		want.Status, want.Reason, want.Message = configv1.ConditionFalse, reasonStreamEnds, message
	}
	i := slices.IndexFunc(conditions, func(each configv1.ClusterOperatorStatusCondition) bool { return each.Type == want.Type })
	if i < 0 {
		return append(slices.Clone(conditions), want)
	}
	if conditions[i].Status == want.Status {
		want.LastTransitionTime = conditions[i].LastTransitionTime
	}
	if conditions[i] == want {
		return nil
	}
	changed := slices.Clone(conditions)
	changed[i] = want
	return changed
}

func (r *reconciler) patchConditions(ctx context.Context, object *unstructured.Unstructured, conditions []configv1.ClusterOperatorStatusCondition, resourceVersion string) error {
	var list []any
	for _, condition := range conditions {
		list = append(list, map[string]any{
			"type": string(condition.Type), "status": string(condition.Status), "reason": condition.Reason,
			"message": condition.Message, "lastTransitionTime": condition.LastTransitionTime.UTC().Format(time.RFC3339),
		})
	}
	patched := object.DeepCopy()
	patched.Object["status"] = map[string]any{"conditions": list}
	if resourceVersion != "" {
		patched.SetResourceVersion(resourceVersion)
	}
	if err := r.client.Status().Patch(ctx, patched, client.MergeFrom(object)); err != nil {
		return fmt.Errorf("write condition Upgradeable of ClusterOperator %s: %w", clusterOperator, err)
	}
	return nil
}
