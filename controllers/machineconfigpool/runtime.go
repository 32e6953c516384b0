package machineconfigpool

import "github.com/imagemode/imagemode/controllers/osimagestream/streams"

// checkRuntime refuses a rendered config that makes a container runtime the
// default one which its OS image lacks: no pod would start on its nodes. Of an
// image that a MachineConfig names, and that is no stream's, nothing is known:
// it passes.
func (s *scope) checkRuntime(wanted *rendered) error {
	if err := streams.CheckConfig(s.streams, streams.OfImage(s.streams, wanted.spec.OSImageURL), wanted.ignition); err != nil {
		return &renderError{reason: reasonRuntimeMissing, message: err.Error()}
	}
	return nil
}
