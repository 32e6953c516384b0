package osimagestream

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/imagemode/imagemode/controllers/osimagestream/streams"
)

// learnTraits asks the OS images of the streams, and those that MachineConfigs name,
// what they can do. It is no problem when they do not answer: nothing is left out,
// and it is asked again. Which ones did not is noted, for the pools whose config
// depends on it.
func (r *reconciler) learnTraits(ctx context.Context, s *scope, outcome *outcome, reader *inspector) {
	if s.platform.isExternal {
		outcome.knowNoMore(s)
		return
	}
	ctx, cancel := context.WithTimeout(ctx, traitsTimeout)
	defer cancel()
	var ask []string
	for _, stream := range outcome.Streams {
		ask = append(ask, string(stream.OSImage))
	}
	results := reader.labels(ctx, append(ask, s.overrides...))
	for _, stream := range outcome.Streams {
		outcome.learn(ctx, s, stream, results[string(stream.OSImage)])
	}
	outcome.learnOverrides(ctx, s, results)
}

// knowNoMore counts every image as looked at, where no connection is opened: what
// is known of a stream by its name has to do.
func (o *outcome) knowNoMore(s *scope) {
	for _, stream := range o.Streams {
		traits := o.Traits[stream.Name]
		traits.Image = streams.DigestOf(string(stream.OSImage))
		o.Traits[stream.Name] = traits
	}
	o.overrides = map[string]streams.Override{}
	for _, image := range s.overrides {
		o.overrides[streams.DigestOf(image)] = streams.Override{Read: true}
	}
}

// learn notes what the labels of a stream's OS image tell, or what was known of the
// same image: a registry that is away must not make a pool render what its stream
// cannot run.
func (o *outcome) learn(ctx context.Context, s *scope, stream streams.Set, result inspection) {
	traits := o.Traits[stream.Name]
	digest := streams.DigestOf(string(stream.OSImage))
	known := streams.DecodeTraits(s.existing)[stream.Name]
	switch {
	case result.err == nil:
		read := streams.TraitsOf(result.labels)
		traits.Runtimes, traits.Image, traits.Unread = read.Runtimes, digest, ""
		traits.Deprecated = traits.Deprecated || read.Deprecated
	case known.Image == digest:
		o.hasUnknownTraits = true
		traits.Runtimes, traits.Image = known.Runtimes, digest
		traits.Deprecated = traits.Deprecated || known.Deprecated
	default:
		o.hasUnknownTraits = true
		traits.Unread = streams.Truncate(explain(ctx, result.err), maxUnread)
	}
	o.Traits[stream.Name] = traits
}

// learnOverrides notes what MachineConfigs' images are. One that does not answer
// stays as it was known, and is asked again.
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
		o.hasMissingImages = o.hasMissingImages || isGone(result.err)
		switch before := known[digest]; {
		case before.Read:
			o.overrides[digest] = before
		case !o.overrides[digest].Read: // two MachineConfigs may name it at its source and at a mirror
			o.overrides[digest] = streams.Override{Unread: streams.Truncate(explain(ctx, result.err), maxUnread)}
		}
	}
}

// maxUnread bounds in bytes what is kept of why an image was not read.
const maxUnread = 300
