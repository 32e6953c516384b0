package story

import (
	"fmt"
	"strings"
	"time"

	"github.com/imagemode/imagemode/test/e2e/local"
)

// Summary prints how long everything took and how to look around.
func (s *Story) Summary() {
	s.Log.Times()
	var text strings.Builder
	fmt.Fprintln(&text, "\nNodes")
	outages, reboots := s.Workers.Outages(), s.Workers.Reboots()
	for _, name := range s.Workers.Names() {
		fmt.Fprintf(&text, "  %s: reboots %d, out of service %s\n", name, reboots[name], durations(outages[name]))
	}
	fmt.Fprintf(&text, "  out of service at the same time: at most %d\n", s.Workers.MaxUnavailable())
	fmt.Fprintf(&text, "  pods of the workload available at the same time: at least %d of %d\n", s.Workload.Minimum(), workloadReplicas)
	fmt.Fprintf(&text, "  all run %s\n", s.Image)
	if s.ChangedBuild > 0 {
		fmt.Fprintf(&text, "\nA Containerfile FROM base\n  the first image %.1fs; after a change of a file, without a RUN, %.1fs\n",
			s.FirstBuild.Seconds(), s.ChangedBuild.Seconds())
	}
	fmt.Fprintf(&text, lookAround, local.CacheDir(), local.KubeconfigFile)
	s.Log.raw(text.String())
}

const lookAround = `
Look around
  export PATH=%s/bin:$PATH KUBECONFIG=%s
  kubectl get machineconfigpools,machineosconfigs,machineosbuilds
  kubectl get imagerollouts,nodeimages -o wide
  kubectl get machineosconfig worker -o yaml
  kubectl get machineconfignodes
  kubectl get osimagestream cluster -o yaml
  kubectl -n openshift-machine-config-operator logs deployment/imagemode-controller
  make exec NODE=worker-1 COMMAND="bootc status"
  make exec NODE=worker-1 COMMAND="figlet imagemode"

Change something
  kubectl edit machineconfig 50-worker-demo      # a new image, then a rollout
  kubectl patch machineconfigpool worker --type merge -p '{"spec":{"paused":true}}'
  kubectl patch machineconfigpool worker --type merge -p '{"spec":{"osImageStream":{"name":"debian-13"}}}'   # another OS
  kubectl annotate machineosconfig worker machineconfiguration.openshift.io/rebuild=now

Remove everything: make demo-down
`

func durations(all []time.Duration) string {
	if len(all) == 0 {
		return "never"
	}
	var parts []string
	for _, duration := range all {
		parts = append(parts, fmt.Sprintf("%.1fs", duration.Seconds()))
	}
	return strings.Join(parts, " and ")
}
