package story

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/imagemode/imagemode/api/machineconfiguration"
)

// diagnosisTimeout bounds the whole diagnosis: whoever waits has waited enough.
const diagnosisTimeout = time.Minute

// questions are what one asks first when the story did not end well, as
// arguments of kubectl, with how many of the last lines are of interest.
var questions = []struct {
	about     string
	lines     int
	arguments string
}{
	{"nodes", 20, "get nodes -o wide"},
	{"pools and builds", 40, "get machineconfigpools,machineosconfigs,machineosbuilds,osimagestreams"},
	{"rollouts", 40, "get imagerollouts,nodeimages -o wide"},
	{"conditions of the MachineOSConfigs", 40, `get machineosconfigs -o jsonpath={range.items[*]}{.metadata.name}{range.status.conditions[*]}{"\n\t"}{.type}={.status}{"\t"}{.reason}{"\t"}{.message}{end}{"\n"}{end}`},
	{"conditions of the MachineOSBuilds", 40, `get machineosbuilds -o jsonpath={range.items[*]}{.metadata.name}{range.status.conditions[*]}{"\n\t"}{.type}={.status}{"\t"}{.reason}{"\t"}{.message}{end}{"\n"}{end}`},
	{"conditions of the pools", 60, `get machineconfigpools -o jsonpath={range.items[*]}{.metadata.name}{range.status.conditions[*]}{"\n\t"}{.type}={.status}{"\t"}{.reason}{"\t"}{.message}{end}{"\n"}{end}`},
	{"status of the NodeImages", 120, "get nodeimages -o yaml"},
	{"pods and jobs", 40, "get pods,jobs -A -o wide"},
	{"events", 60, "get events -A --sort-by=.lastTimestamp"},
	{"the controller's log", 60, "logs deployment/imagemode-controller --tail=60 -n " + machineconfiguration.Namespace},
	{"the agents' logs", 80, "logs -l app.kubernetes.io/component=agent --prefix --tail=40 -n " + machineconfiguration.Namespace},
	{"the builders' logs", 80, "logs -l " + machineconfiguration.LabelMachineOSBuild + " --all-containers --prefix --tail=60 -n " + machineconfiguration.Namespace},
}

// Diagnose prints what helps to find out why the story failed. It has a time of
// its own, since that of the story may be over.
func (s *Story) Diagnose() {
	ctx, cancel := context.WithTimeout(context.Background(), diagnosisTimeout)
	defer cancel()
	s.Log.heading("diagnosis")
	for _, question := range questions {
		answer, err := s.Cluster.Kubectl(ctx, strings.Split(question.arguments, " ")...)
		if err != nil {
			answer += err.Error()
		}
		s.Log.raw(fmt.Sprintf("--- %s\n%s\n", question.about, lastLines(answer, question.lines)))
	}
}

func lastLines(text string, count int) string {
	lines := strings.Split(text, "\n")
	return strings.Join(lines[max(0, len(lines)-count):], "\n")
}
