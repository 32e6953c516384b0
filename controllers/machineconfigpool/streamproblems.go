package machineconfigpool

import (
	"strings"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"

	"github.com/imagemode/imagemode/controllers/osimagestream/streams"
)

// conditionStreamProblems is True while something about the pool's OS image
// stream is not as it should be, which need not keep the pool from working: a
// source that cannot be read, a stream that the next release will not have.
const conditionStreamProblems mcfgv1.MachineConfigPoolConditionType = "OSImageStreamProblems"

// streamProblems repeats what the OSImageStream says about the pool's stream.
func (o observation) streamProblems() verdict {
	var lines []string
	for _, problem := range streams.ProblemsOf(o.streams, o.stream) {
		lines = append(lines, strings.TrimPrefix(problem.Source+": "+problem.Reason, ": "))
	}
	if len(lines) == 0 {
		return isFalseBecause("AsExpected", "")
	}
	return isTrueBecause("StreamProblems", strings.Join(lines, "; "))
}
