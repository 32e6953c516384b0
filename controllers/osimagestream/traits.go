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
	results := reader.labels(ctx, ask)
	for stream, image := range images {
		result := results[image]
		if result.err != nil {
			outcome.hasUnknownTraits = true
			log.FromContext(ctx).Info("it is not known yet what a stream can do", "stream", stream, "error", result.err.Error())
			continue
		}
		traits := outcome.Traits[stream]
		traits.Runtimes = streams.TraitsOf(result.labels).Runtimes
		traits.Deprecated = traits.Deprecated || streams.TraitsOf(result.labels).Deprecated
		outcome.Traits[stream] = traits
	}
}
