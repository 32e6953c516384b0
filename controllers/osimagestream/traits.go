package osimagestream

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/imagemode/imagemode/controllers/osimagestream/streams"
)

// learnTraits asks the OS images of streams that came without labels, those of
// ConfigMap imagemode-streams, what they can do. It is no problem when they do not
// answer: nothing is left out, and it is asked again.
func (r *reconciler) learnTraits(ctx context.Context, s *scope, outcome *outcome, reader *inspector) {
	if s.platform.isExternal {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, discoveryTimeout)
	defer cancel()
	images := map[string]string{}
	var ask []string
	for _, stream := range outcome.Streams {
		if len(outcome.Traits[stream.Name].Runtimes) == 0 {
			images[stream.Name] = string(stream.OSImage)
			ask = append(ask, string(stream.OSImage))
		}
	}
	results := reader.labels(ctx, append(ask, s.overrides...))
	for stream, image := range images {
		result := results[image]
		if result.err != nil {
			outcome.hasUnknownTraits = true
			log.FromContext(ctx).Info("it is not known yet what a stream can do", "stream", stream, "error", result.err.Error())
		}
		outcome.addTraits(stream, s.traitsOf(stream, image, result))
	}
	outcome.learnOverrides(ctx, s, results)
}

// learnOverrides notes what MachineConfigs' images are. One that does not answer
// stays as it was known, and is asked again unless it does not exist.
func (o *outcome) learnOverrides(ctx context.Context, s *scope, results map[string]inspection) {
	o.overrides = map[string]streams.Override{}
	known := streams.DecodeOverrides(s.existing)
	for _, image := range s.overrides {
		digest, result := streams.DigestOf(image), results[image]
		if result.err == nil {
			o.overrides[digest] = streams.OverrideOf(result.labels)
			continue
		}
		log.FromContext(ctx).Info("it is not known yet what a MachineConfig's OS image can do", "image", image, "error", result.err.Error())
		o.hasUnknownTraits = o.hasUnknownTraits || !isGone(result.err)
		if before, isKnown := known[digest]; isKnown {
			o.overrides[digest] = before
		}
	}
}

// traitsOf are those that the labels of an OS image tell, or that were known of
// the same image: a registry that is away must not make a pool render what its
// stream cannot run.
func (s *scope) traitsOf(stream, image string, result inspection) streams.Traits {
	if result.err == nil {
		return streams.TraitsOf(result.labels)
	}
	if s.existing == nil {
		return streams.Traits{}
	}
	for _, known := range s.existing.Status.AvailableStreams {
		if known.Name == stream && string(known.OSImage) == image {
			return streams.DecodeTraits(s.existing)[stream]
		}
	}
	return streams.Traits{}
}

func (o *outcome) addTraits(stream string, learnt streams.Traits) {
	traits := o.Traits[stream]
	traits.Runtimes = learnt.Runtimes
	traits.Deprecated = traits.Deprecated || learnt.Deprecated
	o.Traits[stream] = traits
}
