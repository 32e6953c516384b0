package osimagestream

import (
	"context"
	"fmt"
	"slices"
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
// status, then a default that the spec lacks, then the annotations, of which one
// says that the result is complete. Each write can be the last one before a
// crash; the next reconcile goes on from there.
func (r *reconciler) publish(ctx context.Context, s *scope, outcome *outcome, reader *inspector) error {
	stream := s.existing
	if stream == nil {
		if outcome.chosen.Name == "" {
			r.announceAbsence(outcome.Problems)
			return nil
		}
		created, err := r.create(ctx, outcome.chosen)
		if err != nil {
			return err
		}
		stream = created
	}
	if outcome.chosen.Name != "" {
		if err := r.writeStatus(ctx, stream, *outcome); err != nil {
			return err
		}
		if err := r.recordDefault(ctx, stream, outcome.chosen); err != nil {
			return err
		}
	}
	// Only now that the streams are published there is time to ask what they can do.
	r.learnTraits(ctx, s, outcome, reader)
	outcome.Problems = append(outcome.Problems, r.endings(s, *outcome)...)
	if err := r.writeAnnotations(ctx, stream, *outcome); err != nil {
		return err
	}
	return r.publishUpgradeable(ctx, stream, *outcome, s)
}

// announceAbsence says why there is no object: there is none to annotate.
func (r *reconciler) announceAbsence(problems []streams.Problem) {
	text := summarize(problems)
	if text == r.announcedAbsence {
		return
	}
	r.announcedAbsence = text
	absent := &mcfgv1.OSImageStream{ObjectMeta: metav1.ObjectMeta{Name: machineconfiguration.OSImageStreamName}}
	r.events.Eventf(absent, nil, corev1.EventTypeWarning, "NoValidStream", "ReadSources", "%s", text)
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
	r.announceDefault(stream, chosen)
	return stream, nil
}

func (r *reconciler) announceDefault(stream *mcfgv1.OSImageStream, chosen streams.Default) {
	if chosen.Origin == streams.FromFirstName {
		r.events.Eventf(stream, nil, corev1.EventTypeNormal, "DefaultStreamChosen", "ChooseDefault",
			"%s is the default stream because it is the first by name; set --default-stream, or spec.defaultStream, to choose another", chosen.Name)
		return
	}
	r.events.Eventf(stream, nil, corev1.EventTypeNormal, "DefaultStreamChosen", "ChooseDefault",
		"%s is the default stream (%s)", chosen.Name, chosen.Origin)
}

// recordDefault writes the default into the spec of an object that has none,
// which an older version of the API allowed.
func (r *reconciler) recordDefault(ctx context.Context, stream *mcfgv1.OSImageStream, chosen streams.Default) error {
	if stream.Spec.DefaultStream != "" {
		return nil
	}
	before := stream.DeepCopy()
	stream.Spec.DefaultStream = chosen.Name
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if err := r.client.Patch(ctx, stream, patch); err != nil {
		return fmt.Errorf("write spec.defaultStream of OSImageStream %s: %w", stream.Name, err)
	}
	r.announceDefault(stream, chosen)
	return nil
}

// writeStatus publishes the streams and the default where they differ.
func (r *reconciler) writeStatus(ctx context.Context, stream *mcfgv1.OSImageStream, outcome outcome) error {
	if outcome.chosen.Gone == "" {
		r.lastDefault = outcome.chosen.Name
	}
	want := mcfgv1.OSImageStreamStatus{AvailableStreams: outcome.Streams, DefaultStream: outcome.chosen.Name}
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
	r.announceChange(stream, before.Status, want)
	return nil
}

// announceChange says which streams came, went and changed.
func (r *reconciler) announceChange(stream *mcfgv1.OSImageStream, before, after mcfgv1.OSImageStreamStatus) {
	var changes []string
	for _, each := range after.AvailableStreams {
		i := slices.IndexFunc(before.AvailableStreams, func(old streams.Set) bool { return old.Name == each.Name })
		switch {
		case i < 0:
			changes = append(changes, "new: "+each.Name)
		case before.AvailableStreams[i] != each:
			changes = append(changes, "new images: "+each.Name)
		}
	}
	for _, old := range streams.Names(before.AvailableStreams) {
		if !slices.Contains(streams.Names(after.AvailableStreams), old) {
			changes = append(changes, "gone: "+old)
		}
	}
	if before.DefaultStream != after.DefaultStream {
		changes = append(changes, "default: "+after.DefaultStream)
	}
	r.events.Eventf(stream, nil, corev1.EventTypeNormal, "StreamsChanged", "PublishStreams", "%s",
		streams.Truncate(strings.Join(changes, "; "), maxEventNote))
}

// writeAnnotations keeps the problems, which are announced when they are new,
// the traits, what is known of MachineConfigs' images, and the release of a complete result.
func (r *reconciler) writeAnnotations(ctx context.Context, stream *mcfgv1.OSImageStream, outcome outcome) error {
	before := stream.DeepCopy()
	setAnnotation(stream, machineconfiguration.AnnotationProblems, streams.EncodeProblems(outcome.Problems))
	if outcome.chosen.Name != "" {
		setAnnotation(stream, machineconfiguration.AnnotationStreamTraits, streams.EncodeTraits(outcome.Traits))
	}
	if outcome.overrides != nil {
		setAnnotation(stream, machineconfiguration.AnnotationOverrides, streams.EncodeOverrides(outcome.overrides))
	}
	if outcome.release != "" {
		setAnnotation(stream, machineconfiguration.AnnotationReleasePayloadImage, outcome.release)
	}
	if equality.Semantic.DeepEqual(before.Annotations, stream.Annotations) {
		return nil
	}
	if err := r.client.Patch(ctx, stream, client.MergeFrom(before)); err != nil {
		return fmt.Errorf("write annotations of OSImageStream %s: %w", stream.Name, err)
	}
	problems := stream.Annotations[machineconfiguration.AnnotationProblems]
	if problems != "" && problems != before.Annotations[machineconfiguration.AnnotationProblems] {
		r.events.Eventf(stream, nil, corev1.EventTypeWarning, "StreamProblems", "ReadSources", "%s", summarize(outcome.Problems))
	}
	return nil
}

// setAnnotation sets an annotation; an empty value takes it away.
func setAnnotation(object client.Object, key, value string) {
	annotations := object.GetAnnotations()
	if value == "" {
		delete(annotations, key)
	} else if annotations == nil {
		annotations = map[string]string{key: value}
	} else {
		annotations[key] = value
	}
	object.SetAnnotations(annotations)
}

// summarize writes problems as one text that fits an event.
func summarize(problems []streams.Problem) string {
	var lines []string
	for _, problem := range problems {
		where := problem.Source
		if problem.Stream != "" {
			where += ", stream " + problem.Stream
		}
		lines = append(lines, where+": "+problem.Reason)
	}
	return streams.Truncate(strings.Join(lines, "; "), maxEventNote)
}
