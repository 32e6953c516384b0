package machineconfigpool

import (
	"errors"

	"github.com/imagemode/imagemode/controllers/osimagestream/streams"
)

// waitError says what a render waits for that comes by itself within moments.
// Nothing is wrong with the pool meanwhile, and it keeps the config it has.
type waitError struct{ message string }

func (e *waitError) Error() string { return e.message }

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
		return &waitError{message: err.Error()}
	case errors.As(err, &unknown):
		return &renderError{reason: reasonRuntimeUnknown, message: err.Error()}
	default:
		return &renderError{reason: reasonRuntimeMissing, message: err.Error()}
	}
}
