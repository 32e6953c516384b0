package machineconfigpool

import (
	"fmt"

	"github.com/imagemode/imagemode/controllers/osimagestream/streams"
	"github.com/imagemode/imagemode/ignition"
)

// checkRuntime refuses a rendered config that makes a container runtime the
// default one which the OS image of the pool's stream lacks: no pod would start
// on its nodes.
func (s *scope) checkRuntime(wanted *rendered, stream string) error {
	config, err := ignition.Parse(wanted.spec.Config.Raw)
	if err != nil {
		return fmt.Errorf("read the rendered config of pool %s: %w", s.pool.Name, err)
	}
	if err := streams.CheckConfig(s.streams, stream, config); err != nil {
		return &renderError{reason: reasonRuntimeMissing, message: err.Error()}
	}
	return nil
}
