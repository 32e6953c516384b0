package machineconfigpool

import "github.com/imagemode/imagemode/controllers/osimagestream/streams"

// checkRuntime refuses a rendered config that makes a container runtime the
// default one which its OS image lacks: no pod would start on its nodes. An image
// that a MachineConfig names passes until its labels have been read.
func (s *scope) checkRuntime(wanted *rendered) error {
	if err := streams.CheckImage(s.streams, wanted.spec.OSImageURL, wanted.ignition); err != nil {
		return &renderError{reason: reasonRuntimeMissing, message: err.Error()}
	}
	return nil
}
