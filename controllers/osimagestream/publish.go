package osimagestream

import (
	"context"
	"fmt"
	"strings"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/imagemode/imagemode/api/machineconfiguration"
	"github.com/imagemode/imagemode/controllers/osimagestream/streams"
)

// maxEventNote is less than the API's limit of 1024 bytes on an event's text.
const maxEventNote = 1000

// publish writes what differs: the object with its default first, then the
// status, then the problems. Each write can be the last one before a crash; the
// next reconcile goes on from there.
func (r *reconciler) publish(ctx context.Context, scope *scope, outcome outcome) error {
	stream := scope.existing
	if stream == nil {
		if len(outcome.streams) == 0 {
			// There is no object yet to annotate.
			r.events.Eventf(scope.configMap, nil, corev1.EventTypeWarning, "NoValidStream", "ReadSources", "%s", summarize(outcome.problems))
			return nil
		}
		created, err := r.create(ctx, outcome.chosen)
		if err != nil {
			return err
		}
		stream = created
	}
	if len(outcome.streams) > 0 {
		if err := r.writeStatus(ctx, stream, outcome); err != nil {
			return err
		}
	}
	return r.writeProblems(ctx, stream, outcome.problems)
}

// create makes the object with the chosen default. It records the choice in
// spec, once, so that it cannot move by itself later.
func (r *reconciler) create(ctx context.Context, chosen streams.Default) (*mcfgv1.OSImageStream, error) {
	stream := &mcfgv1.OSImageStream{
		ObjectMeta: metav1.ObjectMeta{Name: machineconfiguration.OSImageStreamName},
		Spec:       mcfgv1.OSImageStreamSpec{DefaultStream: chosen.Name},
	}
	if err := r.client.Create(ctx, stream); err != nil {
		return nil, fmt.Errorf("create OSImageStream %s: %w", stream.Name, err)
	}
	if chosen.Origin == streams.FromFirstName {
		r.events.Eventf(stream, nil, corev1.EventTypeNormal, "DefaultStreamChosen", "ChooseDefault",
			"%s is the default stream because it is the first by name; set --default-stream, or spec.defaultStream, to choose another", chosen.Name)
	}
	return stream, nil
}

// writeStatus publishes the streams and the default where they differ.
func (r *reconciler) writeStatus(ctx context.Context, stream *mcfgv1.OSImageStream, outcome outcome) error {
	r.lastDefault = outcome.chosen.Name
	want := mcfgv1.OSImageStreamStatus{AvailableStreams: outcome.streams, DefaultStream: outcome.chosen.Name}
	if equality.Semantic.DeepEqual(stream.Status, want) {
		return nil
	}
	before := stream.DeepCopy()
	stream.Status = want
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if err := r.client.Status().Patch(ctx, stream, patch); err != nil {
		return fmt.Errorf("write status of OSImageStream %s: %w", stream.Name, err)
	}
	log.FromContext(ctx).Info("OS image streams published", "streams", streams.Names(want.AvailableStreams), "default", want.DefaultStream)
	return nil
}

// writeProblems keeps the annotation of problems, and announces new ones.
func (r *reconciler) writeProblems(ctx context.Context, stream *mcfgv1.OSImageStream, problems []streams.Problem) error {
	want := streams.EncodeProblems(problems)
	if stream.Annotations[machineconfiguration.AnnotationProblems] == want {
		return nil
	}
	before := stream.DeepCopy()
	if want == "" {
		delete(stream.Annotations, machineconfiguration.AnnotationProblems)
	} else {
		metav1.SetMetaDataAnnotation(&stream.ObjectMeta, machineconfiguration.AnnotationProblems, want)
	}
	if err := r.client.Patch(ctx, stream, client.MergeFrom(before)); err != nil {
		return fmt.Errorf("write annotation %s of OSImageStream %s: %w", machineconfiguration.AnnotationProblems, stream.Name, err)
	}
	if want != "" {
		r.events.Eventf(stream, nil, corev1.EventTypeWarning, "StreamProblems", "ReadSources", "%s", summarize(problems))
	}
	return nil
}

// summarize writes problems as one text that fits an event.
func summarize(problems []streams.Problem) string {
	var lines []string
	for _, problem := range problems {
		lines = append(lines, strings.TrimPrefix(problem.Source+", stream "+problem.Stream+": "+problem.Reason, ", "))
	}
	return streams.Truncate(strings.Join(lines, "; "), maxEventNote)
}
