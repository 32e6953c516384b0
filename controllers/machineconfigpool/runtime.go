package machineconfigpool

import (
	"errors"

	"github.com/imagemode/imagemode/controllers/osimagestream/streams"
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
	switch {
	case err == nil:
		return nil
	case errors.As(err, &unknown) && unknown.Why == "":
		return &refusedError{wanted.name, &waitError{message: err.Error()}}
	case errors.As(err, &unknown):
		return &refusedError{wanted.name, &renderError{reason: reasonRuntimeUnknown, message: err.Error()}}
	default:
		return &refusedError{wanted.name, &renderError{reason: reasonRuntimeMissing, message: err.Error()}}
	}
}
