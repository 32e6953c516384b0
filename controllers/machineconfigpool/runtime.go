package machineconfigpool

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/coreos/ignition/v2/config/v3_6/types"

	"github.com/imagemode/imagemode/controllers/osimagestream/streams"
	"github.com/imagemode/imagemode/ignition"
)

// waitError says what a render waits for that comes by itself within moments.
// Nothing is wrong with the pool meanwhile, and it keeps the config it has.
type waitError struct{ message string }

func (e *waitError) Error() string { return e.message }

// refusedError is why a config that could be rendered is not taken.
type refusedError struct {
	// config is the name that it would have.
	config string
	// err is a *waitError or a *renderError.
	err error
}

func (e *refusedError) Error() string { return e.err.Error() }
func (e *refusedError) Unwrap() error { return e.err }

// offered is what may be handed off. A config that is refused and that the pool has
// nevertheless, because it was rendered before there was a reason to refuse it, gets no
// new image to the nodes.
func (s *scope) offered(target target, renderErr error) target {
	var refused *refusedError
	if errors.As(renderErr, &refused) && refused.config == s.pool.Spec.Configuration.Name {
		return target.withoutImage()
	}
	return target
}

// checkRuntime refuses a rendered config that makes a container runtime the
// default one which its OS image lacks: no pod would start on its nodes. Nothing
// is rendered before it is known what the image has; where its labels cannot be
// read, that is what is wrong with the pool.
func (s *scope) checkRuntime(wanted *rendered) error {
	guard := streams.RuntimeGuard{Object: s.streams, IsUnlabelled: s.isUnlabelled}
	err := guard.CheckImage(wanted.spec.OSImageURL, wanted.ignition)
	var unknown *streams.RuntimeUnknownError
	var missing *streams.RuntimeMissingError
	var unread *streams.RuntimeFileError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &unknown):
		unknown.Choice.By = wanted.withSources(unknown.Choice.By)
		if unknown.Why == "" {
			return &refusedError{wanted.name, &waitError{message: err.Error()}}
		}
		return &refusedError{wanted.name, &renderError{reason: reasonRuntimeUnknown, message: err.Error()}}
	case errors.As(err, &missing):
		missing.Choice.By = wanted.withSources(missing.Choice.By)
	case errors.As(err, &unread):
		err = fmt.Errorf("%w (%s)", err, wanted.withSources(streams.ByFile+unread.Path))
	}
	return &refusedError{wanted.name, &renderError{reason: reasonRuntimeMissing, message: err.Error()}}
}

// withSources adds to a file of the rendered config, as a runtime choice names it, the
// MachineConfigs that it comes from: that is where users can change it.
func (w *rendered) withSources(by string) string {
	path, isFile := strings.CutPrefix(by, streams.ByFile)
	if names := w.sourcesOf(path); isFile && len(names) > 0 {
		return by + " of MachineConfig " + strings.Join(names, " and ")
	}
	return by
}

// sourcesOf names the MachineConfigs that a file or link comes from: the last one that
// gives its contents, and those after it that append to them.
func (w *rendered) sourcesOf(path string) []string {
	var names []string
	for _, source := range slices.Backward(w.sources) {
		config, err := ignition.Parse(source.Spec.Config.Raw)
		if err != nil {
			continue // the merge has refused it, too
		}
		isLink := slices.ContainsFunc(config.Storage.Links, func(link types.Link) bool { return link.Path == path })
		i := slices.IndexFunc(config.Storage.Files, func(file types.File) bool { return file.Path == path })
		if !isLink && i < 0 {
			continue
		}
		names = append(names, source.Name)
		if isLink || config.Storage.Files[i].Contents.Source != nil {
			break
		}
	}
	slices.Reverse(names)
	return names
}
