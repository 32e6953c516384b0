package osimagestream

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/imagemode/imagemode/api/machineconfiguration"
	"github.com/imagemode/imagemode/builder/request"
	"github.com/imagemode/imagemode/controllers/osimagestream/streams"
)

// discovery is what the sources say.
type discovery struct {
	// sources in order of precedence, later ones winning.
	sources []streams.Source
	gaps    streams.Gaps
	// next are the streams of the next payload; nil: it is not known.
	next *streams.Source
	// hasPayload: there is a release whose payload was or will be read.
	hasPayload bool
}

// Names of sources, as problems have them.
const (
	sourceOptions = "command line"
	sourceAtHand  = "ControllerConfig and payload ImageStream"
)

// discover reads the sources, side by side, so that one whose registry hangs takes
// no time from the others. Their order of precedence is: the pair of the command
// line, that of ConfigMap machine-config-osimageurl, ConfigMap imagemode-streams,
// the release payload. With an external control plane it opens no connection.
func (r *reconciler) discover(ctx context.Context, s *scope, reader *inspector) discovery {
	var atHand discovery
	if s.platform.isExternal {
		atHand.addAtHand(s, r.options.Pair)
		atHand.addConfigMap(s)
		return atHand
	}
	ctx, cancel := context.WithTimeout(ctx, discoveryTimeout)
	defer cancel()
	var options, pair, payload discovery
	var group errgroup.Group
	for _, read := range []func(){
		func() { r.addOptions(ctx, &options, reader) },
		func() { r.addOSImageURL(ctx, s, &pair, reader) },
		func() { r.addPayload(ctx, s, &payload, reader) },
	} {
		group.Go(func() error { read(); return nil })
	}
	_ = group.Wait() // what went wrong is among the problems
	atHand.addConfigMap(s)
	d := joined(options, pair, atHand, payload)
	d.addNext(ctx, s, reader)
	return d
}

// joined puts one discovery behind the other.
func joined(all ...discovery) discovery {
	var d discovery
	for _, each := range all {
		d.sources = append(d.sources, each.sources...)
		d.hasPayload = d.hasPayload || each.hasPayload
		d.gaps = d.gaps.With(each.gaps)
	}
	return d
}

// addOptions adds the pair of the command line.
func (r *reconciler) addOptions(ctx context.Context, d *discovery, reader *inspector) {
	if r.options.Pair.IsEmpty() {
		return
	}
	pair, err := streams.PairFromOptions(r.options.Pair, "--base-os-image", "--base-os-extensions-image")
	d.addPair(ctx, reader, sourceOptions, pair, err)
}

// addOSImageURL adds the pair of ConfigMap machine-config-osimageurl.
func (r *reconciler) addOSImageURL(ctx context.Context, s *scope, d *discovery, reader *inspector) {
	configMap := s.configMaps[machineconfiguration.ConfigMapOSImageURL]
	if configMap == nil {
		return
	}
	pair, err := streams.PairFromConfigMap(configMap.Data, s.platform.version)
	d.addPair(ctx, reader, r.configMapName(configMap.Name), pair, err)
}

func (r *reconciler) configMapName(name string) string {
	return "ConfigMap " + r.options.Namespace + "/" + name
}

// addPair adds the stream of a pair of images, unless err says why there is none.
func (d *discovery) addPair(ctx context.Context, reader *inspector, source string, pair streams.Pair, err error) {
	if err != nil {
		d.sources = append(d.sources, streams.Source{Name: source, Problems: []streams.Problem{{Source: source, Reason: err.Error()}}})
		return
	}
	d.inspect(ctx, reader, source, "neither image has the label "+streams.LabelStream+" with the name of a stream, and a role", []streams.Candidate{
		{Image: pair.OSImage, Origin: "image " + pair.OSImage},
		{Image: pair.ExtensionsImage, Origin: "image " + pair.ExtensionsImage},
	})
}

// addConfigMap adds the streams of ConfigMap imagemode-streams, which need no look
// at their images.
func (d *discovery) addConfigMap(s *scope) {
	if configMap := s.configMaps[machineconfiguration.ConfigMapStreams]; configMap != nil {
		d.sources = append(d.sources, streams.FromConfigMap("ConfigMap "+configMap.Namespace+"/"+configMap.Name, configMap.Data))
	}
}

// addPayload adds the streams of the release payload: its ImageStream stands in
// ConfigMap imagemode-payload, or in the release image.
func (r *reconciler) addPayload(ctx context.Context, s *scope, d *discovery, reader *inspector) {
	source, payload, err := r.readPayload(ctx, s, reader)
	if source == "" {
		return
	}
	d.hasPayload = true
	if err != nil {
		d.sources = append(d.sources, streams.Source{Name: source, Problems: []streams.Problem{{Source: source, Reason: explain(ctx, err)}}})
		isBroken := isGone(err) || !isOfRegistry(err)
		d.gaps.PayloadUnread, d.gaps.PayloadBroken = !isBroken, isBroken
		return
	}
	d.inspectPayload(ctx, reader, source, payload)
}

// readPayload returns the payload and its source; no source: there is none.
func (r *reconciler) readPayload(ctx context.Context, s *scope, reader *inspector) (string, *streams.Payload, error) {
	if raw, found := s.atHand(machineconfiguration.KeyPayload); found {
		payload, err := streams.ParsePayload([]byte(raw))
		if err != nil {
			err = fmt.Errorf("key %s: %w", machineconfiguration.KeyPayload, err)
		}
		return r.configMapName(machineconfiguration.ConfigMapPayload), payload, err
	}
	image := r.releaseImage(s)
	if image == "" {
		return "", nil, nil
	}
	payload, err := reader.payload(ctx, image)
	return "release image " + image, payload, err
}

// releaseImage is the cluster's, else that of the command line.
func (r *reconciler) releaseImage(s *scope) string {
	if s.platform.releaseImage != "" {
		return s.platform.releaseImage
	}
	return r.options.ReleaseImage
}

// atHand returns a key of ConfigMap imagemode-payload.
func (s *scope) atHand(key string) (string, bool) {
	configMap := s.configMaps[machineconfiguration.ConfigMapPayload]
	if configMap == nil {
		return "", false
	}
	raw, found := configMap.Data[key]
	return raw, found
}

// addNext reads the streams of the next payload. What cannot be read, or is not
// mirrored yet, must not look like a stream that goes: then nothing is known of the
// next payload.
func (d *discovery) addNext(ctx context.Context, s *scope, reader *inspector) {
	payload, err := readNext(ctx, s, reader)
	if err != nil {
		log.FromContext(ctx).Info("the next release is not known: its payload cannot be read", "error", err.Error())
		return
	}
	if payload == nil {
		return
	}
	var next discovery
	next.inspectPayload(ctx, reader, "next payload", payload)
	if !next.gaps.IsPartial() && len(next.gaps.Missing) == 0 {
		d.next = &next.sources[0]
	}
}

// readNext returns the payload in ConfigMap imagemode-payload, else that of the
// last release that ClusterVersion offers and that has another minor version;
// nil: there is none. An update within a minor version keeps its streams.
func readNext(ctx context.Context, s *scope, reader *inspector) (*streams.Payload, error) {
	if raw, found := s.atHand(machineconfiguration.KeyNextPayload); found {
		payload, err := streams.ParsePayload([]byte(raw))
		if err != nil {
			s.report("next payload", fmt.Errorf("ConfigMap %s, key %s: %w", machineconfiguration.ConfigMapPayload, machineconfiguration.KeyNextPayload, err))
		}
		return payload, err
	}
	if s.platform.nextRelease == "" {
		return nil, nil
	}
	return reader.payload(ctx, s.platform.nextRelease)
}

func (d *discovery) inspectPayload(ctx context.Context, reader *inspector, source string, payload *streams.Payload) {
	candidates := make([]streams.Candidate, 0, len(payload.Images))
	for _, image := range payload.Images {
		candidates = append(candidates, streams.Candidate{Image: image.Image, Origin: "tag " + image.Tag})
	}
	d.inspect(ctx, reader, source, fmt.Sprintf("the payload %s has no OS image with the label %s", payload.Version, streams.LabelStream), candidates)
}

// inspect reads the labels of candidates and adds what they make. Those that
// cannot be read become problems, and gaps unless the registry says that there
// is no such image. nothing is the problem where all are read and make no stream.
func (d *discovery) inspect(ctx context.Context, reader *inspector, source, nothing string, candidates []streams.Candidate) {
	var images []string
	var unread []streams.Problem
	candidates = slices.DeleteFunc(candidates, func(candidate streams.Candidate) bool {
		isByTag := !strings.Contains(candidate.Image, "@")
		if isByTag {
			unread = append(unread, streams.Problem{Source: source, Reason: fmt.Sprintf("%s: image %q has no digest, and a tag can move", candidate.Origin, streams.Truncate(candidate.Image, maxReason))})
		} else {
			images = append(images, candidate.Image)
		}
		return isByTag
	})
	results := reader.labels(ctx, images)
	var labelled []streams.Candidate
	for _, candidate := range candidates {
		result := results[candidate.Image]
		if result.err != nil {
			unread = append(unread, streams.Problem{Source: source, Reason: candidate.Origin + ": " + explain(ctx, result.err)})
			if isGone(result.err) {
				d.gaps.Missing = append(d.gaps.Missing, candidate.Image)
			} else {
				d.gaps.Unread = append(d.gaps.Unread, candidate.Image)
			}
			continue
		}
		candidate.Labels = result.labels
		labelled = append(labelled, candidate)
	}
	d.gaps.Named = append(d.gaps.Named, images...)
	grouped := streams.Group(source, labelled)
	grouped.Problems = append(unread, grouped.Problems...)
	if len(grouped.Streams) == 0 && len(grouped.Problems) == 0 {
		grouped.Problems = []streams.Problem{{Source: source, Reason: nothing}}
	}
	d.sources = append(d.sources, grouped)
}

// addAtHand adds what an external control plane knows by itself.
func (d *discovery) addAtHand(s *scope, option streams.Pair) {
	known := streams.AtHand{Pair: s.platform.pair, Requested: s.requested()}
	if known.Pair.IsEmpty() {
		known.Pair = option
	}
	if raw, found := s.atHand(machineconfiguration.KeyPayload); found {
		payload, err := streams.ParsePayload([]byte(raw))
		if err != nil {
			d.addBroken(fmt.Errorf("ConfigMap %s, key %s: %w", machineconfiguration.ConfigMapPayload, machineconfiguration.KeyPayload, err))
			return
		}
		known.Payload = payload
	}
	source, err := streams.FromAtHand(sourceAtHand, known)
	if err != nil {
		d.addBroken(err)
		return
	}
	d.sources = append(d.sources, source)
}

func (d *discovery) addBroken(err error) {
	d.gaps.PayloadBroken = true
	d.sources = append(d.sources, streams.Source{Name: sourceAtHand, Problems: []streams.Problem{{Source: sourceAtHand, Reason: err.Error()}}})
}

// requested is the default stream that was asked for.
func (s *scope) requested() string {
	if s.platform.requested != "" || s.existing == nil {
		return s.platform.requested
	}
	return s.existing.Spec.DefaultStream
}

// isGone reports whether the registry says that an image does not exist, or is
// none that can be used.
func isGone(err error) bool {
	var permanent *PermanentError
	return errors.As(err, &permanent) && permanent.Class == request.Image
}

// isOfRegistry reports whether err comes from reading an image, and not from
// what was in it.
func isOfRegistry(err error) bool {
	var permanent *PermanentError
	var transient *TransientError
	return errors.As(err, &permanent) || errors.As(err, &transient)
}

// explain says for the user why an image could not be read. It is the same as
// long as the reason is: what the registry said, with its numbers that change, is
// in the log.
func explain(ctx context.Context, err error) string {
	log.FromContext(ctx).Info("image not read", "error", err.Error())
	var permanent *PermanentError
	var transient *TransientError
	switch {
	case errors.As(err, &permanent):
		return permanent.Remedy()
	case errors.As(err, &transient):
		return fmt.Sprintf("image %s cannot be read now, and is tried again: its registry or the way to it is at fault", transient.Image)
	default:
		return err.Error()
	}
}

func remedy(err *PermanentError) string {
	switch err.Class {
	case request.Authentication:
		return "its registry refuses the credentials; put the right ones into the pull secret"
	case request.Image:
		return "it does not exist, or is not what it should be: " + innermost(err.Err)
	case request.Network:
		return "the certificate of its registry is not accepted; put the authority's into ConfigMap " + machineconfiguration.ConfigMapTrustBundle
	default:
		return "its registry answered with an error; the controller's log has it"
	}
}

// innermost is what the registry itself said.
func innermost(err error) string {
	for next := errors.Unwrap(err); next != nil; next = errors.Unwrap(err) {
		err = next
	}
	return streams.Truncate(err.Error(), maxReason)
}

// maxReason bounds what of a registry's words is shown, in bytes.
const maxReason = 150
