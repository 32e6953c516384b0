package machineconfigpool

import (
	"fmt"

	"github.com/imagemode/imagemode/controllers/osimagestream/streams"
	"github.com/imagemode/imagemode/ignition"
)

// checkRuntime refuses a rendered config that makes a container runtime the
// default one which its OS image lacks: no pod would start on its nodes. An image
// that a MachineConfig names passes until its labels have been read.
func (s *scope) checkRuntime(wanted *rendered) error {
	config, err := ignition.Parse(wanted.spec.Config.Raw)
	if err != nil {
		return fmt.Errorf("read the rendered config of pool %s: %w", s.pool.Name, err)
	}
	if err := streams.CheckImage(s.streams, wanted.spec.OSImageURL, config); err != nil {
		return &renderError{reason: reasonRuntimeMissing, message: err.Error()}
	}
	return nil
}
